"""Recommendation of a method: trials on growing samples of a corpus, extrapolated to the whole corpus."""

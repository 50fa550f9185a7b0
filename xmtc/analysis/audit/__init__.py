"""Audit of a corpus: probably wrong and missing labels, duplicate documents, and duplicate labels."""

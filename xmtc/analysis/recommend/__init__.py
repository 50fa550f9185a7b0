"""Which method to train: methods tried on growing samples of a corpus, and what that tells of the whole.

curves   time and accuracy on more documents than were tried
samples  documents to try on and to measure on
trying   the trials, and which methods go on
advice   which of them to train, and how
"""

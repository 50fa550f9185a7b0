from xmtc.testing import N_LABELS, NOISE_WORDS, make_planted_corpus, planted_label, planted_words

__all__ = ["NOISE_WORDS", "N_LABELS", "make_planted_corpus", "planted_label", "planted_words"]

from xmtc.testing import N_LABELS, NOISE, label_name, own_words, planted

__all__ = ["NOISE", "N_LABELS", "label_name", "own_words", "planted"]

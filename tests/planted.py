"""Data with a known answer: every label has words of its own, and a document has the labels whose words it holds."""

from __future__ import annotations

import numpy as np

N_LABELS = 40
NOISE = [f"noise{i}" for i in range(200)]


def label_name(label: int) -> str:
    return f"label-{label:02d}"


def own_words(label: int) -> list[str]:
    return [f"word{label}{part}" for part in ("alpha", "beta", "gamma")]


def planted(n_docs: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Texts of one to three labels: two of each label's three words among eight of noise."""
    rng = np.random.default_rng(seed)
    texts, tags = [], []
    for _ in range(n_docs):
        labels = rng.choice(N_LABELS, rng.integers(1, 4), replace=False)
        words = [word for label in labels for word in rng.choice(own_words(label), 2, replace=False)]
        words += list(rng.choice(NOISE, 8))
        rng.shuffle(words)
        texts.append(" ".join(words))
        tags.append([label_name(label) for label in labels])
    return texts, tags

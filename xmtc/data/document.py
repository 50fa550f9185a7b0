"""One document of a corpus, the currency of every reader and writer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Document(NamedTuple):
    """A text (or, in corpora that hold features instead of words, its non-zero features) and its label names."""

    id: str
    text: str
    labels: list[str]
    features: tuple[np.ndarray, np.ndarray] | None = None  # column indices int32, values float32

"""One document of a corpus: what every reader yields and every writer takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Document(NamedTuple):
    """A text and the names of its labels; in a corpus of features, the text is empty."""

    id: str
    text: str
    labels: list[str]
    features: tuple[np.ndarray, np.ndarray] | None = None  # non-zero columns int32, their values float32
    kept: tuple[Any, ...] = ()  # values of the fields to carry along, as Fields.keep names them
    pages: tuple[int, ...] = ()  # where in the text each page begins, of a document that has pages

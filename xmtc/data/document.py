"""One document of a corpus: what every reader yields and every writer takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from xmtc.errors import XmtcError


class Document(NamedTuple):
    """A text and the names of its labels; in a corpus of features, the text is empty."""

    id: str
    text: str
    labels: list[str]
    features: tuple[np.ndarray, np.ndarray] | None = None  # non-zero columns int32, their values float32
    extra: tuple[Any, ...] = ()  # values of the fields to carry along, as Fields.keep names them
    page_offsets: tuple[int, ...] = ()  # where in the text each page begins, of a document that has pages


def as_documents(documents: Iterable[str] | Iterable[Document]) -> Iterator[Document]:
    """Yield Documents as they are, and texts as Documents without labels."""
    if isinstance(documents, str):
        raise XmtcError("Found one text where a list of texts was expected; put it in a list: [text].")
    for number, document in enumerate(documents):
        if isinstance(document, Document):
            yield document
        elif isinstance(document, str):
            yield Document(str(number), document, [])
        else:
            raise XmtcError(f"Text {number} is a {type(document).__name__}; expected a string.")

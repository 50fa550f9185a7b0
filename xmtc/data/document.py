"""A document of a corpus: readers yield it, writers take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from xmtc.errors import XmtcError


class Document(NamedTuple):
    """A text, or a feature vector, with the names of its labels.

    Parameters
    ----------
    id : str
        Identifier; readers use the line number if the corpus has none.
    text : str
        Text; empty in a corpus of features.
    labels : list of str
        Names of the labels, each once.
    features : tuple of (numpy.ndarray, numpy.ndarray), optional
        Columns of the non-zero features (int32, ascending) and their values (float32).
    extra : tuple
        Values of the fields named in ``Fields.keep``.
    page_offsets : tuple of int
        Position of each page's first character in the text, for documents with pages.

    Examples
    --------
    >>> from xmtc import Document
    >>> Document("7", "Herring in the North Sea", ["fish", "sea"]).labels
    ['fish', 'sea']
    """

    id: str
    text: str
    labels: list[str]
    features: tuple[np.ndarray, np.ndarray] | None = None
    extra: tuple[Any, ...] = ()
    page_offsets: tuple[int, ...] = ()


class LineNumber(str):
    """Id of a document that has none of its own: its line or position."""

    __slots__ = ()


def as_documents(documents: Iterable[str] | Iterable[Document]) -> Iterator[Document]:
    """Yield documents as they are, and texts as documents without labels; ids of texts are their positions from 0."""
    check_not_single_text(documents)
    for number, document in enumerate(documents):
        if isinstance(document, Document):
            yield document
        elif isinstance(document, str):
            yield Document(LineNumber(number), document, [])
        else:
            raise XmtcError(f"Text {number} is {describe_non_text(document)}; expected a string.")


def check_not_single_text(texts: Any) -> None:
    """Raise XmtcError if one string was passed instead of a list of strings."""
    if isinstance(texts, str):
        raise XmtcError("Found one text where a list of texts was expected; put it in a list: [text].")


def describe_non_text(value: Any) -> str:
    """Return a description of a value that should be a text: its type, or that it is missing."""
    is_missing = value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"
    return f"missing ({value})" if is_missing else f"a {type(value).__name__}"

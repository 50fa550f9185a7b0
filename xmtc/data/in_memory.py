"""Documents that are in memory already: lists, arrays, sparse matrices, tensors and data frames of texts or features.

What holds numbers is a matrix of features, one row a document; what holds strings are texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from numbers import Number
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from xmtc.core.array_validation import NUMERIC_KINDS
from xmtc.data.corpus import Corpus
from xmtc.data.dataframes import UNORDERED, as_array, is_frame
from xmtc.data.document import Document
from xmtc.data.targets import target_of
from xmtc.errors import XmtcError


def documents_of(X: Any, y: Any = None) -> Iterator[Document]:
    """Documents from texts or features, and their labels, in any form that a Classifier takes."""
    X = texts_or_matrix(X)
    X = X if isinstance(X, list) else csr_array(np.asarray(X, np.float32) if not issparse(X) else X, dtype=np.float32)
    return documents(X, None if y is None else target_of(y).labels)


def documents(X: Any, labels: Sequence[list[str]] | None = None) -> Iterator[Document]:
    """Documents from a list of texts or a sparse matrix of features, and the names of their labels."""
    n_docs = X.shape[0] if issparse(X) else len(X)
    if labels is not None and len(labels) != n_docs:
        raise XmtcError(
            f"Found {n_docs} documents and {len(labels)} lists of labels; expected one list for each document."
        )
    rows = rows_of(X) if issparse(X) else ((text, None) for text in X)
    for number, (text, features) in enumerate(rows):
        if not isinstance(text, str):
            raise XmtcError(f"Document {number} is {described(text)}; expected a text or a row of a matrix.")
        yield Document(str(number), text, [] if labels is None else labels[number], features)


def rows_of(X: csr_array) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        yield "", (X.indices[begin:end].astype(np.int32), X.data[begin:end])


def described(value: Any) -> str:
    """What stands where a text should: its type, or that nothing does."""
    is_missing = value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"
    return f"missing ({value})" if is_missing else f"a {type(value).__name__}"


def is_corpus(X: Any) -> bool:
    """Whether X brings its labels along: a corpus, or documents of one."""
    return isinstance(X, Corpus) or (isinstance(X, Sequence) and len(X) > 0 and isinstance(X[0], Document))


def texts_or_matrix(X: Any) -> Any:
    """A list of texts, or what a matrix of features can be made of: a sparse matrix, an array, a data frame."""
    if isinstance(X, str):
        raise XmtcError("Found one text where a list of texts was expected; put it in a list: [text].")
    if issparse(X):
        return X
    if is_frame(X):
        return column_of_texts(X) if texts_in(X) else check_no_times(X)
    array = as_array(X)
    if array is None:
        X = list(as_iterable(X))
        return table_of(X) if holds_rows(X) else X
    if array.ndim == 2 and array.shape[1] == 1 and array.size and isinstance(array[0, 0], str):
        array = array[:, 0]
    return array if array.ndim != 1 or array.dtype.kind in NUMERIC_KINDS else array.tolist()


def texts_in(frame: Any) -> list[Any]:
    """The names of a data frame's columns that hold a text, though some may be missing."""
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    return [
        name
        for name, values in columns.items()
        if values.dtype.kind not in NUMERIC_KINDS and any(isinstance(value, str) for value in values)
    ]


def column_of_texts(frame: Any) -> list[Any]:
    """The texts of a data frame that holds nothing else."""
    names = texts_in(frame)
    if len(frame.columns) > 1:
        named = ", ".join(map(repr, names))
        raise XmtcError(
            f"X is a data frame of {len(frame.columns)} columns, of which {named} hold texts; "
            f"expected one column of texts, such as X[{names[0]!r}], or only numbers."
        )
    return frame[names[0]].to_numpy().tolist()


def check_no_times(frame: Any) -> Any:
    """Refuse times among features, which would become large numbers without a meaning."""
    times = [name for name in frame.columns if frame[name].to_numpy().dtype.kind in "mM"]
    if times:
        raise XmtcError(
            f"Column {times[0]!r} of X holds times; expected numbers, such as the year of each: leave it out."
        )
    return frame


def as_iterable(values: Any) -> Iterable[Any]:
    if not isinstance(values, Iterable) or isinstance(values, UNORDERED):
        raise XmtcError(f"Found a {type(values).__name__} as X; expected a list of texts or a matrix of features.")
    return values


def holds_rows(X: list[Any]) -> bool:
    """Whether a list is one of rows of numbers."""
    return bool(X) and isinstance(X[0], (list, tuple, np.ndarray)) and all(isinstance(v, Number) for v in X[0])


def table_of(rows: list[Any]) -> np.ndarray:
    lengths = {len(row) if isinstance(row, Sized) else 0 for row in rows}
    if len(lengths) > 1:
        raise XmtcError(
            f"The rows of X have from {min(lengths)} to {max(lengths)} numbers; expected as many in each, or texts."
        )
    return np.asarray(rows)

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
from xmtc.data.dataframes import UNORDERED_TYPES, as_array, is_frame
from xmtc.data.document import Document
from xmtc.data.targets import as_label_target
from xmtc.errors import XmtcError


def to_documents(X: Any, y: Any = None) -> Iterator[Document]:
    """Documents from texts or features, and their labels, in any form that a Classifier takes."""
    X = as_texts_or_matrix(X)
    X = X if isinstance(X, list) else csr_array(np.asarray(X, np.float32) if not issparse(X) else X, dtype=np.float32)
    return iter_documents(X, None if y is None else as_label_target(y).labels)


def iter_documents(X: Any, labels: Sequence[list[str]] | None = None) -> Iterator[Document]:
    """Documents from a list of texts or a sparse matrix of features, and the names of their labels."""
    n_docs = X.shape[0] if issparse(X) else len(X)
    if labels is not None and len(labels) != n_docs:
        raise XmtcError(
            f"Found {n_docs} documents and {len(labels)} lists of labels; expected one list for each document."
        )
    rows = iter_feature_rows(X) if issparse(X) else ((text, None) for text in X)
    for number, (text, features) in enumerate(rows):
        if not isinstance(text, str):
            raise XmtcError(f"Document {number} is {describe_non_text(text)}; expected a text or a row of a matrix.")
        yield Document(str(number), text, [] if labels is None else labels[number], features)


def iter_feature_rows(X: csr_array) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        yield "", (X.indices[begin:end].astype(np.int32), X.data[begin:end])


def describe_non_text(value: Any) -> str:
    """What stands where a text should: its type, or that nothing does."""
    is_missing = value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"
    return f"missing ({value})" if is_missing else f"a {type(value).__name__}"


def is_corpus_like(X: Any) -> bool:
    """Whether X brings its labels along: a corpus, or documents of one."""
    return isinstance(X, Corpus) or (isinstance(X, Sequence) and len(X) > 0 and isinstance(X[0], Document))


def as_texts_or_matrix(X: Any) -> Any:
    """A list of texts, or what a matrix of features can be made of: a sparse matrix, an array, a data frame."""
    if isinstance(X, str):
        raise XmtcError("Found one text where a list of texts was expected; put it in a list: [text].")
    if issparse(X):
        return X
    if is_frame(X):
        return get_text_column(X) if find_text_columns(X) else check_no_datetimes(X)
    array = as_array(X)
    if array is None:
        X = list(as_iterable(X))
        return rows_to_array(X) if has_numeric_rows(X) else X
    if array.ndim == 2 and array.shape[1] == 1 and array.size and isinstance(array[0, 0], str):
        array = array[:, 0]
    return array if array.ndim != 1 or array.dtype.kind in NUMERIC_KINDS else array.tolist()


def find_text_columns(frame: Any) -> list[Any]:
    """The names of a data frame's columns that hold a text, though some may be missing."""
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    return [
        name
        for name, values in columns.items()
        if values.dtype.kind not in NUMERIC_KINDS and any(isinstance(value, str) for value in values)
    ]


def get_text_column(frame: Any) -> list[Any]:
    """The texts of a data frame that holds nothing else."""
    names = find_text_columns(frame)
    if len(frame.columns) > 1:
        named = ", ".join(map(repr, names))
        raise XmtcError(
            f"X is a data frame of {len(frame.columns)} columns, of which {named} hold texts; "
            f"expected one column of texts, such as X[{names[0]!r}], or only numbers."
        )
    return frame[names[0]].to_numpy().tolist()


def check_no_datetimes(frame: Any) -> Any:
    """Refuse times among features, which would become large numbers without a meaning."""
    times = [name for name in frame.columns if frame[name].to_numpy().dtype.kind in "mM"]
    if times:
        raise XmtcError(
            f"Column {times[0]!r} of X holds times; expected numbers, such as the year of each: leave it out."
        )
    return frame


def as_iterable(values: Any) -> Iterable[Any]:
    if not isinstance(values, Iterable) or isinstance(values, UNORDERED_TYPES):
        raise XmtcError(f"Found a {type(values).__name__} as X; expected a list of texts or a matrix of features.")
    return values


def has_numeric_rows(X: list[Any]) -> bool:
    """Whether a list is one of rows of numbers."""
    return bool(X) and isinstance(X[0], (list, tuple, np.ndarray)) and all(isinstance(v, Number) for v in X[0])


def rows_to_array(rows: list[Any]) -> np.ndarray:
    lengths = {len(row) if isinstance(row, Sized) else 0 for row in rows}
    if len(lengths) > 1:
        raise XmtcError(
            f"The rows of X have from {min(lengths)} to {max(lengths)} numbers; expected as many in each, or texts."
        )
    return np.asarray(rows)

"""Conversion of arrays, tensors, data frames and lists to texts, features and labels.

pandas, polars and PyTorch are not imported: their objects are recognised by their attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from numbers import Number
from reprlib import repr as abbreviate
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from xmtc.core.array_validation import MAX_INDEX, NUMERIC_KINDS
from xmtc.data.corpus import Corpus, open_corpus
from xmtc.data.document import Document, LineNumber, check_not_single_text, describe_non_text
from xmtc.data.records import Fields
from xmtc.data.tables import is_table, to_arrow
from xmtc.errors import XmtcError

TEXT_COLUMN = Fields.text  # read from a table with several columns
UNORDERED_TYPES = (dict, set, frozenset)


def is_frame(X: Any) -> bool:
    """Return True for a data frame of pandas or polars."""
    return hasattr(X, "columns") and hasattr(X, "to_numpy")


def as_array(values: Any) -> np.ndarray | None:
    """Convert an array-like (tensor, column of a data frame) to an array; return None for a list."""
    if hasattr(values, "detach"):  # a tensor, possibly on a GPU and part of a graph
        values = values.detach().cpu()
    if np.ma.is_masked(values):  # conversion would reveal the masked values
        raise XmtcError("Found an array with masked values; fill them, as in X.filled(0), or drop those documents.")
    if isinstance(values, np.ndarray) or hasattr(values, "__array__"):
        return np.asarray(values)
    return None


# Kinds of targets: a list of labels per document; one label per document in a column, shape (n_docs, 1), or in a
# vector, shape (n_docs,); three kinds of indicators.
LISTS = "lists"
COLUMN, VECTOR = SINGLE_LABELS = "column", "vector"
ARRAY, SPARSE, FRAME = INDICATORS = "array", "sparse", "frame"


@dataclass(frozen=True)
class LabelTarget:
    """Label names of documents, and the form in which the user passed them."""

    kind: str
    labels: list[list[str]]  # of each document
    has_integer_labels: bool = False  # the user passed integers
    columns: list[str] | None = None  # names of all labels in order, if the target is an indicator or a vector

    def as_json(self) -> dict[str, Any]:
        """Return the form of predictions for about.json; empty for lists of names."""
        if self == LabelTarget(LISTS, self.labels):
            return {}
        return {"kind": self.kind, "numbers": self.has_integer_labels}


def check_integer_names(names: Iterable[str]) -> None:
    """Raise ValueError unless all label names are whole numbers, for a model that returns integers."""
    for name in names:
        if str(int(name)) != name:
            raise ValueError(f"its label {name!r:.80} is not a whole number")


def as_label_target(y: Any, names: Sequence[str] | None = None, training_kind: str = "") -> LabelTarget:
    """Convert lists of names, a column or an indicator matrix to a LabelTarget.

    Parameters
    ----------
    y : array-like
        Lists of label names, or a matrix, array or data frame of zeros and ones.
    names : sequence of str, optional
        Label names of a trained model; an indicator without column names must have as many columns.
    training_kind : str
        Kind of target that the model was trained on, which resolves ambiguous values of y: [[0, 1]] are two labels in a
        list or two cells of an indicator, [[0], [1]] one label each in a column.
    """
    if is_frame(y):
        return target_from_frame(y, training_kind)
    if issparse(y):
        return target_from_indicator(SPARSE, csr_array(y, copy=True), names)
    array = as_array(y)
    if array is None:
        rows = list(y) if isinstance(y, Iterable) and not isinstance(y, UNORDERED_TYPES) else y
        if isinstance(rows, list) and rows and all(is_single_label(row) for row in rows):
            return target_from_vector(rows)
        if training_kind == LISTS or not is_binary_table(rows):
            return target_from_lists(rows)
        array = np.array([to_python_list(row) for row in rows])
    if array.ndim == 1 and array.size and all(is_single_label(value) for value in array):
        return target_from_vector(array)
    if is_label_column(array, training_kind):
        return target_from_lists(array, COLUMN)
    if array.ndim == 2 and array.dtype.kind in NUMERIC_KINDS:
        return target_from_indicator(ARRAY, csr_array(check_binary(array)), names)
    return target_from_lists(array)


def target_from_lists(rows: Any, kind: str = LISTS) -> LabelTarget:
    if not isinstance(rows, (Sequence, np.ndarray)):
        raise XmtcError(f"Found {abbreviate(rows)} as labels; expected a list of labels for each document.")
    labels = [validate_label_list(number, row) for number, row in enumerate(rows)]
    are_integers = all(isinstance(label, int) for row in labels for label in row) and any(labels)
    return LabelTarget(kind, [list(dict.fromkeys(map(str, row))) for row in labels], are_integers)


def target_from_vector(values: Iterable[Any]) -> LabelTarget:
    """Convert one label per document; as in scikit-learn, the labels are sorted, numbers by value."""
    labels = [
        validate_label(number, int(value) if isinstance(value, (bool, np.bool_)) else value)
        for number, value in enumerate(values)
    ]
    distinct = set(labels)
    are_integers = all(isinstance(label, int) for label in distinct)
    if not are_integers and any(isinstance(label, int) for label in distinct):
        raise XmtcError("y has numbers and names; expected one label per document, either all numbers or all names.")
    columns = list(map(str, sorted(distinct)))
    return LabelTarget(VECTOR, [[str(label)] for label in labels], are_integers, columns)


def is_single_label(value: Any) -> bool:
    """Return True for a name or a number, also a fraction or a missing value, which `validate_label` refuses."""
    return isinstance(value, (str, Number, np.bool_)) or getattr(value, "ndim", None) == 0


def target_from_frame(frame: Any, training_kind: str = "") -> LabelTarget:
    """Convert a data frame of zeros and ones with the labels as columns, or a data frame with one column of lists."""
    array = np.asarray(frame.to_numpy())
    if is_label_column(array, training_kind):
        return target_from_lists(array, COLUMN)
    if array.dtype.kind not in NUMERIC_KINDS and array.shape[1] == 1:
        return target_from_lists(array[:, 0])
    if array.dtype.kind not in NUMERIC_KINDS:
        array = to_numeric(array)
    if "" in frame.columns:
        raise XmtcError("A column of the labels' data frame has an empty name; expected a name for each label.")
    names = [validate_label(0, name) for name in frame.columns]
    if len(set(map(str, names))) < len(names):
        raise XmtcError("Two columns of the labels' data frame have the same name; expected a name for each label.")
    kind = FRAME if hasattr(frame, "iloc") else ARRAY  # predictions are data frames only for pandas
    target = target_from_indicator(kind, csr_array(check_binary(array)), list(map(str, names)))
    return replace(target, has_integer_labels=all(isinstance(name, int) for name in names))


def target_from_indicator(kind: str, Y: csr_array, names: Sequence[str] | None) -> LabelTarget:
    """Convert a matrix of zeros and ones; without names, labels are column numbers."""
    check_binary(Y.data)
    if names is not None and len(names) != Y.shape[1]:
        raise XmtcError(f"y has {Y.shape[1]} columns, but there are {len(names)} labels; expected one for each.")
    if Y.shape[1] > MAX_INDEX:
        raise XmtcError(f"y has {Y.shape[1]:,} columns; expected at most {MAX_INDEX:,}: leave out those without ones.")
    Y.sum_duplicates()
    Y.eliminate_zeros()
    columns = list(map(str, range(Y.shape[1]))) if names is None else list(names)
    rows = np.split(Y.indices, Y.indptr[1:-1]) if Y.shape[0] else []
    return LabelTarget(kind, [[columns[i] for i in row] for row in rows], has_integer_labels=True, columns=columns)


def check_binary(values: np.ndarray) -> np.ndarray:
    """Return the values; raise XmtcError if there are others than 0 and 1."""
    invalid = values[~np.isin(values, (0, 1))]
    if invalid.size:
        raise XmtcError(
            f"Found {invalid.flat[0]} in a matrix of labels; expected only 0 and 1. "
            "Binarise weights, as in Y >= 0.5; pass label numbers as a list for each document."
        )
    return values


def to_numeric(array: np.ndarray) -> np.ndarray:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise XmtcError(
            "The labels' data frame has values other than numbers; expected columns of 0 and 1, or one column of lists."
        ) from None


def is_label_column(array: np.ndarray, training_kind: str = "") -> bool:
    """Return True if an array has one column of label names or numbers, one per document.

    A column of zeros and ones is an indicator unless the model was trained on single label numbers."""
    if array.ndim != 2 or array.shape[1] != 1:
        return False
    if array.dtype.kind in "iu":
        return training_kind in SINGLE_LABELS or not np.isin(array, (0, 1)).all()
    return array.dtype.kind not in NUMERIC_KINDS and bool(array.size) and all(isinstance(v, str) for v in array[:, 0])


def is_binary_table(rows: Any) -> bool:
    """Return True if lists are the rows of an indicator (`Y.tolist()`).

    The rows have the same length, at least two, and contain only 0, 1, True and False."""
    if not isinstance(rows, list) or not rows or isinstance(rows[0], (str, bytes, dict)):
        return False
    lists = [to_python_list(row) for row in rows]
    if None in lists or len({len(row or ()) for row in lists}) > 1 or len(lists[0] or ()) < 2:
        return False
    return all(isinstance(value, (int, float)) and value in (0, 1) for row in lists for value in row or ())


def to_python_list(row: Any) -> list[Any] | None:
    """Convert a list, tuple, 1-D array or tensor to a list of Python objects; return None for other types."""
    array = as_array(row)
    if array is not None:
        return array.tolist() if array.ndim == 1 else None
    if not isinstance(row, (list, tuple)):
        return None
    return [to_python_scalar(value) for value in row]


def to_python_scalar(value: Any) -> Any:
    """Convert a scalar of NumPy or PyTorch to a Python number."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def validate_label_list(number: int, row: Any) -> list[str | int]:
    """Return the labels of one document; raise XmtcError if they are not a list of labels."""
    if isinstance(row, (str, bytes, dict)) or not isinstance(row, Iterable):
        raise XmtcError(f"The labels of document {number} are {row!r}; expected a list of labels, such as ['a', 'b'].")
    if isinstance(row, (set, frozenset)):
        row = sorted(row, key=str)  # the order of a set of names differs between processes
    values = to_python_list(row)
    return [validate_label(number, value) for value in (row if values is None else values)]


def validate_label(number: int, name: Any) -> str | int:
    """Return a label as a string or integer.

    Raise XmtcError for missing values, fractions (probably weights of labels) and strings that cannot be encoded."""
    name = to_python_scalar(name)
    if isinstance(name, float) and name.is_integer():
        return int(name)
    try:
        if not isinstance(name, (str, int)) or isinstance(name, bool):
            raise TypeError
        str(name).encode()  # fails for a lone surrogate
    except (TypeError, UnicodeEncodeError):
        raise XmtcError(
            f"A label of document {number} is {name!r}; expected a string, such as 'a', or a whole number."
        ) from None
    if name == "":
        raise XmtcError(
            f"The labels of document {number} contain an empty name, expected a list of names; remove it, or pass [] "
            "for a document without labels."
        )
    return name


def to_documents(X: Any, y: Any = None) -> Iterator[Document]:
    """Yield documents from texts or features, and labels, in any form that a Classifier accepts."""
    X = as_texts_or_matrix(X)
    X = X if isinstance(X, list) else csr_array(np.asarray(X, np.float32) if not issparse(X) else X, dtype=np.float32)
    return iter_documents(X, None if y is None else as_label_target(y).labels)


def iter_documents(X: Any, labels: Sequence[list[str]] | None = None) -> Iterator[Document]:
    """Yield documents from a list of texts or a sparse matrix of features, and the names of their labels."""
    n_docs = X.shape[0] if issparse(X) else len(X)
    if labels is not None and len(labels) != n_docs:
        raise XmtcError(
            f"Found {n_docs} documents and {len(labels)} lists of labels; expected one list for each document."
        )
    rows = iter_feature_rows(X) if issparse(X) else ((text, None) for text in X)
    for number, (text, features) in enumerate(rows):
        if not isinstance(text, str):
            raise XmtcError(f"Document {number} is {describe_non_text(text)}; expected a text or a row of a matrix.")
        yield Document(LineNumber(number), text, [] if labels is None else labels[number], features)


def iter_feature_rows(X: csr_array) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        yield "", (X.indices[start:end].astype(np.int32), X.data[start:end])


def as_corpus(X: Any, y: Any) -> Any:
    """Return a table with columns of texts and labels as a corpus if there are no other labels; anything else as is."""
    has_text = is_table(X) and y is None and not isinstance(X, Corpus)
    return open_corpus(X) if has_text else X


def is_corpus_like(X: Any) -> bool:
    """Return True if X contains labels: a corpus, or a sequence of documents."""
    return isinstance(X, Corpus) or (isinstance(X, Sequence) and len(X) > 0 and isinstance(X[0], Document))


def as_texts_or_matrix(X: Any) -> Any:
    """Return a list of texts, or a matrix of features: a sparse matrix, an array or a data frame."""
    check_not_single_text(X)
    if issparse(X):
        return X
    if is_table(X) and not is_frame(X):
        return read_arrow_table(to_arrow(X))
    if is_frame(X):
        text_columns = find_text_columns(X)
        return get_text_column(X, text_columns) if text_columns else check_no_datetimes(X)
    array = as_array(X)
    if array is None:
        X = list(as_iterable(X))
        return rows_to_array(X) if has_numeric_rows(X) else X
    if array.ndim == 2 and array.shape[1] == 1 and any(isinstance(value, str) for value in array[:, 0]):
        array = array[:, 0]
    return array if array.ndim != 1 or array.dtype.kind in NUMERIC_KINDS else array.tolist()


def read_arrow_table(table: Any) -> Any:
    """Return the texts of an Arrow table, or the matrix of its numbers."""
    names = list(table.column_names)
    text_columns = [name for name in names if "string" in str(table.schema.field(name).type)]
    if not text_columns:
        return np.column_stack([table[name].to_numpy() for name in names])
    if len(names) > 1 and TEXT_COLUMN not in text_columns:
        raise ambiguous_columns_error(names, text_columns)
    return table[TEXT_COLUMN if TEXT_COLUMN in text_columns else names[0]].to_pylist()


def ambiguous_columns_error(columns: Sized, text_columns: list[Any]) -> XmtcError:
    listed = ", ".join(map(repr, text_columns))
    return XmtcError(
        f"X is a data frame of {len(columns)} columns, of which {listed} hold texts; "
        f"expected one column of texts, such as X[{text_columns[0]!r}], a column 'text', or only numbers."
    )


def find_text_columns(frame: Any) -> list[Any]:
    """Return the names of the columns of a data frame with at least one text."""
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    return [
        name
        for name, values in columns.items()
        if values.dtype.kind not in NUMERIC_KINDS and any(isinstance(value, str) for value in values)
    ]


def get_text_column(frame: Any, names: list[Any]) -> list[Any]:
    """Return the texts of a data frame with a single column; `names` are its text columns."""
    if len(frame.columns) > 1 and TEXT_COLUMN in names:
        return frame[TEXT_COLUMN].to_numpy().tolist()
    if len(frame.columns) > 1:
        raise ambiguous_columns_error(frame.columns, names)
    return frame[names[0]].to_numpy().tolist()


def check_no_datetimes(frame: Any) -> Any:
    """Return the data frame; raise XmtcError if a column has times, which would become large numbers."""
    time_columns = [name for name in frame.columns if frame[name].to_numpy().dtype.kind in "mM"]
    if time_columns:
        raise XmtcError(f"Column {time_columns[0]!r} of X holds times; expected numbers, such as years: leave it out.")
    return frame


def as_iterable(values: Any) -> Iterable[Any]:
    if not isinstance(values, Iterable) or isinstance(values, UNORDERED_TYPES):
        raise XmtcError(f"Found a {type(values).__name__} as X; expected a list of texts or a matrix of features.")
    return values


def has_numeric_rows(X: list[Any]) -> bool:
    """Return True if the first element of a list is a row of numbers."""
    return bool(X) and isinstance(X[0], (list, tuple, np.ndarray)) and all(isinstance(v, Number) for v in X[0])


def rows_to_array(rows: list[Any]) -> np.ndarray:
    lengths = {len(row) if isinstance(row, Sized) else 0 for row in rows}
    if len(lengths) > 1:
        raise XmtcError(
            f"The rows of X have from {min(lengths)} to {max(lengths)} numbers; expected equal lengths, or texts."
        )
    return np.asarray(rows)

"""Arrays, tensors and data frames of any library. pandas, polars and PyTorch are never imported: their objects are
known by what they can do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from numbers import Number
from reprlib import repr as shortened
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from xmtc.core.array_validation import MAX_INDEX, NUMERIC_KINDS
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.errors import XmtcError

UNORDERED_TYPES = (dict, set, frozenset)  # which say not whose each of their members is


def is_frame(X: Any) -> bool:
    """Whether X is a data frame, of pandas or of polars."""
    return hasattr(X, "columns") and hasattr(X, "to_numpy")


def as_array(values: Any) -> np.ndarray | None:
    """The array that something is or says it is, such as a tensor or a column of a data frame; None for a list."""
    if hasattr(values, "detach"):  # a tensor, perhaps on a GPU and part of a graph
        values = values.detach().cpu()
    if np.ma.is_masked(values):  # an array without its mask would hold what it hides
        raise XmtcError("Found an array with masked values; fill them, as in X.filled(0), or drop those documents.")
    if isinstance(values, np.ndarray) or hasattr(values, "__array__"):
        return np.asarray(values)
    return None


# The kinds of targets: a list of labels for each document; a column of an array, with one label for each; indicators.
LISTS, COLUMN = "lists", "column"
ARRAY, SPARSE, FRAME = INDICATORS = "array", "sparse", "frame"


@dataclass(frozen=True)
class LabelTarget:
    """The labels of documents, as their names, and how they were given."""

    kind: str
    labels: list[list[str]]  # of each document
    has_integer_labels: bool = False  # names are numbers, and were given as such
    columns: list[str] | None = None  # of an indicator: the names of all its labels, in order

    def as_json(self) -> dict[str, Any]:
        """How answers are to be given, for about.json: nothing where they are names."""
        return (
            {} if self == LabelTarget(LISTS, self.labels) else {"kind": self.kind, "numbers": self.has_integer_labels}
        )


def check_integer_names(names: Iterable[str]) -> None:
    """Raise ValueError unless all names of labels are whole numbers, for a model that gives them back as such."""
    for name in names:
        if str(int(name)) != name:
            raise ValueError(f"its label {name!r:.80} is no number")


def as_label_target(y: Any, names: Sequence[str] | None = None, training_kind: str = "") -> LabelTarget:
    """Labels from lists of names or an indicator. `names` are those of the labels of a trained model: an indicator that
    does not name its columns then has theirs, and must have as many. `kind` is that of the numbers that it was trained
    on, where y alone says too little: [[0, 1]] are two labels among lists, [[0], [1]] one each in a column."""
    if is_frame(y):
        return target_from_frame(y, training_kind)
    if issparse(y):
        return target_from_indicator(SPARSE, csr_array(y, copy=True), names)
    array = as_array(y)
    if array is None:
        rows = list(y) if isinstance(y, Iterable) and not isinstance(y, UNORDERED_TYPES) else y
        if training_kind == LISTS or not is_binary_table(rows):
            return target_from_lists(rows)
        array = np.array([to_python_list(row) for row in rows])
    if is_label_column(array, training_kind):
        return target_from_lists(array, COLUMN)
    if array.ndim == 2 and array.dtype.kind in NUMERIC_KINDS:
        return target_from_indicator(ARRAY, csr_array(check_binary(array)), names)
    return target_from_lists(array)


def target_from_lists(rows: Any, kind: str = LISTS) -> LabelTarget:
    if not isinstance(rows, (Sequence, np.ndarray)):
        raise XmtcError(f"Found {shortened(rows)} as labels; expected a list of labels for each document.")
    found = [validate_label_list(number, row) for number, row in enumerate(rows)]
    are_numbers = all(isinstance(label, int) for row in found for label in row) and any(found)
    return LabelTarget(kind, [list(dict.fromkeys(map(str, row))) for row in found], are_numbers)


def target_from_frame(frame: Any, training_kind: str = "") -> LabelTarget:
    """A data frame of zeros and ones, whose columns have the labels' names; or of one column that holds lists."""
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
    kind = FRAME if hasattr(frame, "iloc") else ARRAY  # pandas' frames come back as such
    found = target_from_indicator(kind, csr_array(check_binary(array)), list(map(str, names)))
    return replace(found, has_integer_labels=all(isinstance(name, int) for name in names))


def target_from_indicator(kind: str, Y: csr_array, names: Sequence[str] | None) -> LabelTarget:
    """From a matrix of zeros and ones."""
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
    """Refuse numbers other than 0 and 1."""
    strange = values[~np.isin(values, (0, 1))]
    if strange.size:
        raise XmtcError(
            f"Found {strange.flat[0]} in a matrix of labels; expected only 0 and 1. "
            "Of weights keep what counts, as in Y >= 0.5; label numbers go in a list for each document."
        )
    return values


def to_numeric(array: np.ndarray) -> np.ndarray:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise XmtcError(
            "The labels' data frame holds something else than numbers; expected columns of 0 and 1, or one of lists."
        ) from None


def is_label_column(array: np.ndarray, training_kind: str = "") -> bool:
    """Whether an array has the number of one label for each document in its only column, and not zeros and ones; these
    are such numbers where training had a column of others."""
    is_column = array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind in "iu"
    return is_column and (training_kind == COLUMN or not np.isin(array, (0, 1)).all())


def is_binary_table(rows: Any) -> bool:
    """Whether lists are the rows of an indicator (`Y.tolist()`): equally long, at least two wide, and nothing but 0, 1,
    True and False in them."""
    if not isinstance(rows, list) or not rows or isinstance(rows[0], (str, bytes, dict)):
        return False
    found = [to_python_list(row) for row in rows]
    if None in found or len({len(row or ()) for row in found}) > 1 or len(found[0] or ()) < 2:
        return False
    return all(isinstance(value, (int, float)) and value in (0, 1) for row in found for value in row or ())


def to_python_list(row: Any) -> list[Any] | None:
    """The members of one list, array or tensor, as Python has them; None for what has no order or no members."""
    array = as_array(row)
    if array is not None:
        return array.tolist() if array.ndim == 1 else None
    if not isinstance(row, (list, tuple)):
        return None
    return [to_python_scalar(value) for value in row]


def to_python_scalar(value: Any) -> Any:
    """A number of NumPy or PyTorch as Python has it."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def validate_label_list(number: int, row: Any) -> list[str | int]:
    """The labels of one document."""
    if isinstance(row, (str, bytes, dict)) or not isinstance(row, Iterable):
        raise XmtcError(f"The labels of document {number} are {row!r}; expected a list of labels, such as ['a', 'b'].")
    values = to_python_list(row)
    return [validate_label(number, value) for value in (row if values is None else values)]


def validate_label(number: int, name: Any) -> str | int:
    """A label as text, or as the whole number that it is. What stands for a missing one, what no file could hold and
    what is more likely the weight of a label than its name is refused."""
    name = to_python_scalar(name)
    if isinstance(name, float) and name.is_integer():
        return int(name)
    try:
        if not isinstance(name, (str, int)) or isinstance(name, bool):
            raise TypeError
        str(name).encode()  # half of a surrogate pair has no bytes
    except (TypeError, UnicodeEncodeError):
        raise XmtcError(
            f"A label of document {number} is {name!r}; expected whole text, such as 'a', or a whole number."
        ) from None
    if name == "":  # as in the lists of files, where blanks are names
        raise XmtcError(
            f"The labels of document {number} hold an empty name, expected a list of names; leave it out: of a "
            "document without labels, the list is []."
        )
    return name


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

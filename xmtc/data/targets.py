"""Labels that are in memory already: a list of names for each document, or an indicator, which is a matrix of zeros and
ones with a column for each label.

What is likely to be meant otherwise is refused: rows of numbers between 0 and 1 are no label names, and no indicator.
Equally long rows of nothing but 0 and 1 are an indicator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from reprlib import repr as shortened
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from xmtc.core.array_validation import MAX_INDEX, NUMERIC_KINDS
from xmtc.data.dataframes import UNORDERED_TYPES, as_array, is_frame
from xmtc.errors import XmtcError

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

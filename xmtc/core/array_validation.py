"""Arrays that people give, looked at once, at the door: what can be converted is, the rest is refused in a sentence.
Behind it compiled code takes them as they are. Nobody's own arrays are changed.

What is derived from checked arrays need not be looked at again: `trusted` makes an object without its checks."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse

from xmtc.errors import XmtcError

T = TypeVar("T")
MAX_INDEX = np.iinfo(np.int32).max  # columns, labels or ids that there can be
NUMERIC_KINDS = "biuf"  # of numpy's types: truth values, whole numbers, numbers
MAX_FEATURE_VALUE = 1e15  # value of a feature: sums of its squares are to be finite in float32
MIN_DOCUMENT_WEIGHT, MAX_DOCUMENT_WEIGHT = (
    1e-12,
    1e12,
)  # weights of documents: what they are multiplied by is to stay a number


def is_ascending(values: np.ndarray, strict: bool = False) -> bool:
    """Return True if no number is below the one before it. They are compared, not subtracted: a difference of int64 can
    wrap around, and of unsigned numbers is never negative."""
    return bool((values[1:] > values[:-1]).all() if strict else (values[1:] >= values[:-1]).all())


def is_offset_array(offsets: np.ndarray, n: int, end: int) -> bool:
    """Return True for n + 1 numbers that ascend from 0 to `end`."""
    return bool(offsets.shape == (n + 1,) and offsets[0] == 0 and offsets[-1] == end and is_ascending(offsets))


def construct_unchecked(kind: type[T], **values: Any) -> T:
    """A dataclass made from what was checked before: all of its fields, and no look at them."""
    made = object.__new__(kind)
    made.__dict__.update(values)
    return made


def as_feature_matrix(given: Any) -> csr_array:
    """(n_docs, n_columns) float32 with values of at most LARGEST, of which entries that stand for the same place are
    summed."""
    matrix = as_csr(as_numeric_matrix(given, "X"))
    bad = np.flatnonzero(~(np.abs(matrix.data) <= MAX_FEATURE_VALUE))
    if len(bad):
        row, column = np.searchsorted(matrix.indptr, bad[0], side="right") - 1, matrix.indices[bad[0]]
        raise XmtcError(
            f"X has {matrix.data[bad[0]]:g} in row {row}, column {column}; expected finite numbers of at most "
            f"{MAX_FEATURE_VALUE:g}: drop such rows, or scale the values."
        )
    return matrix


def as_label_matrix(given: Any) -> csr_array:
    """(n_docs, n_labels) float32 with ones at the labels and nothing else. A label given twice is given."""
    matrix = as_numeric_matrix(given, "Y")
    others = matrix.data[(matrix.data != 0) & (matrix.data != 1)]
    if len(others):
        raise XmtcError(
            f"Y has {others[0]:g} among its values; expected ones at the labels of a document, else zeros. Give Y != 0 "
            "if that is meant."
        )
    rows = as_csr(matrix)
    if (rows.data != 1).any():
        rows = csr_array(((rows.data != 0).astype(np.float32), rows.indices, rows.indptr), shape=rows.shape, copy=True)
        rows.eliminate_zeros()
    return rows


def as_numeric_matrix(given: Any, name: str) -> Any:
    """A sparse matrix by rows, columns or entries, whose arrays fit together."""
    matrix: Any = given if issparse(given) else np.asarray(given)
    if matrix.ndim != 2 or matrix.dtype.kind not in NUMERIC_KINDS:
        found = f"{type(given).__name__} of {matrix.ndim} dimensions and type {matrix.dtype}"
        raise XmtcError(f"{name} is a {found}; expected a matrix of numbers: a row for each document.")
    if matrix.shape[1] > MAX_INDEX:
        raise XmtcError(f"{name} has {matrix.shape[1]:,} columns; expected at most {MAX_INDEX:,}: drop or hash some.")
    if not issparse(matrix):
        return csr_array(to_float32(matrix))
    if hasattr(matrix, "check_format"):
        matrix = validate_sparse_matrix(matrix, name)
    return matrix if matrix.format in ("csr", "csc", "coo") else coo_array(matrix)


def to_float32(numbers: Any) -> Any:
    """What is too large becomes inf."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32, copy=False)


def validate_sparse_matrix(matrix: Any, name: str) -> Any:
    """The matrix over the same arrays, once they were looked at: scipy's conversions trust them."""
    try:
        found = type(matrix)((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        found.check_format(full_check=True)
    except (ValueError, TypeError, IndexError) as error:
        raise XmtcError(
            f"{name} is a {matrix.format} matrix whose arrays do not fit together ({error}); make it anew from rows, "
            "columns and values: scipy.sparse.csr_array((values, (rows, columns)))."
        ) from None
    return found


def as_csr(matrix: Any) -> csr_array:
    """As CSR of float32 with column numbers that rise within each row, of 32 bits unless the rows end further on."""
    rows = csr_array(to_float32(matrix))
    if not rows.has_canonical_format:
        rows = rows.copy() if matrix.format == "csr" else rows  # which else are somebody's own arrays
        rows.sum_duplicates()
    width = np.int32 if rows.nnz <= MAX_INDEX else np.int64
    indices, indptr = (np.ascontiguousarray(part, width) for part in (rows.indices, rows.indptr))
    return csr_array((np.ascontiguousarray(rows.data), indices, indptr), shape=rows.shape)


def as_integer_array(given: Any, name: str) -> np.ndarray:
    """(n,) of any type of whole numbers."""
    found = np.asarray(given)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)):
        raise XmtcError(
            f"{name} has {found.ndim} dimensions and type {found.dtype}; expected one array of whole numbers."
        )
    return found


def as_token_ids(given: Any, size: int) -> np.ndarray:
    """(n,) int32 in [0, size)."""
    ids = as_integer_array(given, "ids")
    if len(ids) and (ids.min() < 0 or ids.max() >= min(size, MAX_INDEX)):
        raise XmtcError(
            f"The ids go from {ids.min()} to {ids.max()}; expected 0 to {min(size, MAX_INDEX) - 1}, as size={size} says."
        )
    return np.ascontiguousarray(ids, np.int32)


def as_token_offsets(given: Any, n_tokens: int) -> np.ndarray:
    """(n_docs + 1,) int64 that rise from 0 to the number of tokens."""
    offsets = np.ascontiguousarray(as_integer_array(given, "offsets"), np.int64)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != n_tokens or not is_ascending(offsets):
        ends = f"from {offsets[0]} to {offsets[-1]}" if len(offsets) else "nowhere"
        raise XmtcError(
            f"The offsets lead {ends}; expected them to rise from 0 to the {n_tokens} ids, one more than documents."
        )
    return offsets


def as_document_weights(given: Any, n_docs: int) -> np.ndarray:
    """(n_docs,) float32, 0 or from LIGHTEST to HEAVIEST, and more than 0 for one document at least."""
    weights = np.asarray(given)
    if weights.shape != (n_docs,) or weights.dtype.kind not in NUMERIC_KINDS:
        raise XmtcError(
            f"The weights have the shape {weights.shape} and type {weights.dtype}; expected one number for each of "
            f"the {n_docs} documents."
        )
    weights = np.ascontiguousarray(to_float32(weights))
    counted = (weights >= np.float32(MIN_DOCUMENT_WEIGHT)) & (weights <= np.float32(MAX_DOCUMENT_WEIGHT))
    bad = np.flatnonzero(~(counted | (weights == 0)))
    if len(bad):
        raise XmtcError(
            f"The weight of document {bad[0]} is {weights[bad[0]]:g}; expected 0, or a finite number from {MIN_DOCUMENT_WEIGHT:g} "
            f"to {MAX_DOCUMENT_WEIGHT:g}: scale the weights, or drop the document."
        )
    if n_docs and not weights.any():
        raise XmtcError("All documents have the weight zero; expected more for those to learn from.")
    return weights

"""Validation and conversion of the arrays that users pass in; compiled kernels rely on it.

Arrays are converted where possible and otherwise rejected with an XmtcError. The user's arrays are never modified.
`construct_unchecked` builds objects from arrays that are valid already."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse

from xmtc.errors import XmtcError

T = TypeVar("T")
MAX_INDEX = np.iinfo(np.int32).max  # largest number of columns, labels or token ids
NUMERIC_KINDS = "biuf"  # NumPy type kinds: bool, integer, unsigned, float
MAX_FEATURE_VALUE = 1e15  # sums of squares stay finite in float32
MIN_DOCUMENT_WEIGHT, MAX_DOCUMENT_WEIGHT = 1e-12, 1e12  # products with losses stay finite


def is_ascending(values: np.ndarray, strict: bool = False) -> bool:
    """Return True if no number is below its predecessor, or, if strict, all are above it.

    Numbers are compared, not subtracted, because differences can overflow and unsigned ones are never negative."""
    return bool((values[1:] > values[:-1]).all() if strict else (values[1:] >= values[:-1]).all())


def is_offset_array(offsets: np.ndarray, n: int, end: int) -> bool:
    """Return True for n + 1 numbers that ascend from 0 to `end`."""
    return bool(offsets.shape == (n + 1,) and offsets[0] == 0 and offsets[-1] == end and is_ascending(offsets))


def construct_unchecked(kind: type[T], **values: Any) -> T:
    """Return a dataclass with these field values, without its `__post_init__` validation."""
    instance = object.__new__(kind)
    instance.__dict__.update(values)
    return instance


def as_feature_matrix(X: Any) -> csr_array:
    """Return X as CSR, shape (n_docs, n_columns), float32, with duplicate entries summed."""
    matrix = as_csr(as_numeric_matrix(X, "X"))
    bad = np.flatnonzero(~(np.abs(matrix.data) <= MAX_FEATURE_VALUE))
    if len(bad):
        row, column = np.searchsorted(matrix.indptr, bad[0], side="right") - 1, matrix.indices[bad[0]]
        raise XmtcError(
            f"X has {matrix.data[bad[0]]:g} in row {row}, column {column}; expected finite numbers of at most "
            f"{MAX_FEATURE_VALUE:g}: drop such rows, or scale the values."
        )
    return matrix


def as_label_matrix(Y: Any) -> csr_array:
    """Return Y as CSR, shape (n_docs, n_labels), float32, with ones at the labels; duplicate entries count once."""
    matrix = as_numeric_matrix(Y, "Y")
    others = matrix.data[(matrix.data != 0) & (matrix.data != 1)]
    if len(others):
        raise XmtcError(
            f"Y has {others[0]:g} among its values; expected ones at the labels of a document and zeros elsewhere; "
            "pass Y != 0 if every other value marks a label."
        )
    rows = as_csr(matrix)
    if (rows.data != 1).any():
        rows = csr_array(((rows.data != 0).astype(np.float32), rows.indices, rows.indptr), shape=rows.shape, copy=True)
        rows.eliminate_zeros()
    return rows


def as_numeric_matrix(values: Any, name: str) -> Any:
    """Return a valid sparse matrix in CSR, CSC or COO format."""
    matrix: Any = values if issparse(values) else np.asarray(values)
    if matrix.ndim != 2 or matrix.dtype.kind not in NUMERIC_KINDS:
        description = f"{type(values).__name__} of {matrix.ndim} dimensions and type {matrix.dtype}"
        raise XmtcError(f"{name} is a {description}; expected a matrix of numbers with a row for each document.")
    if matrix.shape[1] > MAX_INDEX:
        raise XmtcError(f"{name} has {matrix.shape[1]:,} columns; expected at most {MAX_INDEX:,}: drop or hash some.")
    if not issparse(matrix):
        return csr_array(to_float32(matrix))
    if hasattr(matrix, "check_format"):
        matrix = validate_sparse_matrix(matrix, name)
    return matrix if matrix.format in ("csr", "csc", "coo") else coo_array(matrix)


def to_float32(numbers: Any) -> Any:
    """Convert to float32; values beyond its range become inf."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32, copy=False)


def validate_sparse_matrix(matrix: Any, name: str) -> Any:
    """Return the matrix after a full check of its arrays, which scipy's conversions do not make."""
    try:
        checked = type(matrix)((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        checked.check_format(full_check=True)
    except (ValueError, TypeError, IndexError) as error:
        raise XmtcError(
            f"{name} is a {matrix.format} matrix with inconsistent arrays ({error}); rebuild it from rows, columns "
            "and values: scipy.sparse.csr_array((values, (rows, columns)))."
        ) from None
    return checked


def as_csr(matrix: Any) -> csr_array:
    """Return a canonical float32 CSR matrix, with 32-bit indices unless it has more than MAX_INDEX entries."""
    rows = csr_array(to_float32(matrix))
    if not rows.has_canonical_format:
        rows = rows.copy() if matrix.format == "csr" else rows  # sum_duplicates works in place
        rows.sum_duplicates()
    width = np.int32 if rows.nnz <= MAX_INDEX else np.int64
    indices, indptr = (np.ascontiguousarray(part, width) for part in (rows.indices, rows.indptr))
    return csr_array((np.ascontiguousarray(rows.data), indices, indptr), shape=rows.shape)


def as_integer_array(values: Any, name: str) -> np.ndarray:
    """Return a one-dimensional array of any integer type."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
        raise XmtcError(f"{name} has {array.ndim} dimensions and type {array.dtype}; expected one array of integers.")
    return array


def as_token_ids(values: Any, size: int) -> np.ndarray:
    """Return ids as int32, each in [0, size)."""
    ids = as_integer_array(values, "ids")
    if len(ids) and (ids.min() < 0 or ids.max() >= min(size, MAX_INDEX)):
        raise XmtcError(
            f"The ids range from {ids.min()} to {ids.max()}; expected 0 to {min(size, MAX_INDEX) - 1}, "
            f"since size={size}."
        )
    return np.ascontiguousarray(ids, np.int32)


def as_token_offsets(values: Any, n_tokens: int) -> np.ndarray:
    """Return offsets as int64, shape (n_docs + 1,), ascending from 0 to the number of tokens."""
    offsets = np.ascontiguousarray(as_integer_array(values, "offsets"), np.int64)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != n_tokens or not is_ascending(offsets):
        ends = f"range from {offsets[0]} to {offsets[-1]}" if len(offsets) else "are empty"
        raise XmtcError(
            f"The offsets {ends}; expected one more than there are documents, ascending from 0 to {n_tokens}, the "
            "number of ids."
        )
    return offsets


def as_document_weights(values: Any, n_docs: int) -> np.ndarray:
    """Return weights as float32, shape (n_docs,), each 0 or in the valid range, and not all 0."""
    weights = np.asarray(values)
    if weights.shape != (n_docs,) or weights.dtype.kind not in NUMERIC_KINDS:
        raise XmtcError(
            f"The weights have shape {weights.shape} and type {weights.dtype}; expected one number for each of the "
            f"{n_docs} documents."
        )
    weights = np.ascontiguousarray(to_float32(weights))
    counted = (weights >= np.float32(MIN_DOCUMENT_WEIGHT)) & (weights <= np.float32(MAX_DOCUMENT_WEIGHT))
    bad = np.flatnonzero(~(counted | (weights == 0)))
    if len(bad):
        raise XmtcError(
            f"The weight of document {bad[0]} is {weights[bad[0]]:g}; expected 0, or a finite number from "
            f"{MIN_DOCUMENT_WEIGHT:g} to {MAX_DOCUMENT_WEIGHT:g}: scale the weights, or drop the document."
        )
    if n_docs and not weights.any():
        raise XmtcError("All documents have zero weight; give a positive weight to the documents to train on.")
    return weights

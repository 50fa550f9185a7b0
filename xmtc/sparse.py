"""What the sparse matrices of several rooms need beyond scipy."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from xmtc.compiled import kernel


def narrow(ends: np.ndarray) -> np.ndarray:
    """Row ends (indptr) as int32 while they fit: scipy gives the column numbers the type of the row ends, so that wide
    ones would double the matrix."""
    return ends.astype(np.int32) if ends[-1] <= np.iinfo(np.int32).max else ends


def with_unit_rows(matrix: csr_array) -> csr_array:
    """The matrix with each row divided by its length; empty rows stay empty."""
    counts = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(matrix.shape[0]), counts)
    squares = np.bincount(rows, matrix.data.astype(np.float64) ** 2, minlength=matrix.shape[0])
    lengths = np.sqrt(np.where(squares > 0, squares, 1))
    data = (matrix.data / np.repeat(lengths, counts)).astype(np.float32)
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


@kernel
def compact(indptr, indices, data, n_features, rows):
    """The rows of a CSR matrix over the columns that occur in them: indptr, indices, data, and those columns."""
    seen = np.zeros(n_features, np.bool_)
    n = 0
    for row in rows:
        n += indptr[row + 1] - indptr[row]
        for i in range(indptr[row], indptr[row + 1]):
            seen[indices[i]] = True
    features = np.flatnonzero(seen).astype(np.int32)
    number = np.empty(n_features, np.uint32)
    number[features] = np.arange(len(features)).astype(np.uint32)
    new_indptr = np.zeros(len(rows) + 1, np.int64)
    new_indices, new_data = np.empty(n, np.uint32), np.empty(n, np.float32)  # unsigned: no check for negative ones
    n = 0
    for position in range(len(rows)):
        for i in range(indptr[rows[position]], indptr[rows[position] + 1]):
            new_indices[n], new_data[n] = number[indices[i]], data[i]
            n += 1
        new_indptr[position + 1] = n
    return new_indptr, new_indices, new_data, features

"""Operations on sparse matrices beyond scipy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel

ROWS_PER_TASK = 1024  # rows that one thread copies at a time


def narrow_indptr(indptr: np.ndarray) -> np.ndarray:
    """Return indptr as int32 if it fits; scipy uses its type for the indices too, which int64 would double in size."""
    return indptr.astype(np.int32) if indptr[-1] <= np.iinfo(np.int32).max else indptr


def to_kernel_arrays(matrix: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indptr as int64, indices as int32 and data of a CSR matrix, the types that kernels are compiled for."""
    return matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int32, copy=False), matrix.data


def normalise_rows(matrix: csr_array) -> csr_array:
    """Return the matrix with rows of Euclidean length 1; empty rows stay empty."""
    counts = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(matrix.shape[0]), counts)
    squares = np.bincount(rows, matrix.data.astype(np.float64) ** 2, minlength=matrix.shape[0])
    lengths = np.sqrt(np.where(squares > 0, squares, 1))
    data = (matrix.data / np.repeat(lengths, counts)).astype(np.float32)
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def scale_rows(matrix: csr_array, weights: np.ndarray | None) -> csr_array:
    """Return the matrix with each row multiplied by its weight, or unchanged without weights."""
    if weights is None:
        return matrix
    data = matrix.data * np.repeat(weights, np.diff(matrix.indptr))
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def compute_indptr(matrix: csr_array, rows: np.ndarray) -> np.ndarray:
    """Return the indptr of matrix[rows] as int64."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(matrix.indptr[rows + 1] - matrix.indptr[rows], out=indptr[1:])
    return indptr


def take_rows(matrix: csr_array, rows: np.ndarray, map_function: Callable[..., Iterable] = map) -> csr_array:
    """Return matrix[rows], copied with `map_function`, which may use several threads."""
    indptr = compute_indptr(matrix, rows)
    indices, data = np.empty(indptr[-1], matrix.indices.dtype), np.empty(indptr[-1], matrix.data.dtype)

    def take(begin: int) -> None:
        source = matrix.indptr, matrix.indices, matrix.data
        copy_rows(
            *source, rows[begin : begin + ROWS_PER_TASK], indptr[begin : begin + ROWS_PER_TASK + 1], indices, data
        )

    list(map_function(take, range(0, len(rows), ROWS_PER_TASK)))
    return csr_array((data, indices, narrow_indptr(indptr)), shape=(len(rows), matrix.shape[1]))


@kernel
def copy_rows(indptr, indices, data, rows, new_indptr, new_indices, new_data):
    for position in range(len(rows)):
        begin, new_begin = indptr[rows[position]], new_indptr[position]
        for i in range(new_indptr[position + 1] - new_begin):
            new_indices[new_begin + i], new_data[new_begin + i] = indices[begin + i], data[begin + i]


class CompactMatrix(NamedTuple):
    """Rows of a sparse matrix, restricted to the columns that occur in them."""

    indptr: np.ndarray  # int64
    indices: np.ndarray  # uint32, so that kernels need not handle negative indices
    data: np.ndarray
    columns: np.ndarray  # int32, ascending: original numbers of the columns


def as_compact(matrix: csr_array) -> CompactMatrix:
    """Return all rows with all columns, without a copy of indices and data."""
    indices = matrix.indices.astype(np.int32, copy=False).view(np.uint32)
    return CompactMatrix(
        matrix.indptr.astype(np.int64), indices, matrix.data, np.arange(matrix.shape[1], dtype=np.int32)
    )


def compact(matrix: csr_array, rows: np.ndarray) -> CompactMatrix:
    """Return some rows, with the columns that occur in them renumbered."""
    rows = rows.astype(np.int64, copy=False)
    indptr = compute_indptr(matrix, rows)
    indices, data = np.empty(indptr[-1], np.uint32), np.empty(indptr[-1], np.float32)
    number, columns = np.empty(matrix.shape[1], np.uint32), np.empty(matrix.shape[1], np.int32)
    eights = np.zeros(-(-matrix.shape[1] // 8), np.uint64)

    source = matrix.indptr, matrix.indices, matrix.data
    n_columns = compact_rows(*source, rows, eights, eights.view(np.uint8), number, columns, indptr, indices, data)
    return CompactMatrix(indptr, indices, data, columns[:n_columns].copy())


@kernel
def compact_rows(indptr, indices, data, rows, eights, seen, number, columns, new_indptr, new_indices, new_data):
    """Fill `columns` and the last three arguments for `compact`, and return the number of columns.

    `seen` starts as zeros and marks the columns that occur; `number` holds their new numbers. `eights` is the same
    memory as `seen`, eight columns per element, so that absent columns are skipped eight at a time."""
    for row in rows:
        for i in range(indptr[row], indptr[row + 1]):
            seen[np.uint32(indices[i])] = 1
    n_columns = np.int64(0)
    for eight in range(len(eights)):
        if eights[eight]:
            for column in range(8 * eight, 8 * eight + 8):
                if seen[column]:
                    columns[n_columns], number[column] = column, n_columns
                    n_columns += 1
    for position in range(len(rows)):
        begin, new_begin = indptr[rows[position]], new_indptr[position]
        for i in range(new_indptr[position + 1] - new_begin):
            new_indices[new_begin + i] = number[np.uint32(indices[begin + i])]
            new_data[new_begin + i] = data[begin + i]
    return n_columns


@kernel
def shell_sort(keys, begin, end):
    """Sort keys[begin:end] in place by Shell's method; np.sort takes a second to compile inside a kernel."""
    gap = 1
    while gap < (end - begin) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(begin + gap, end):
            key, position = keys[i], i
            while position >= begin + gap and keys[position - gap] > key:
                keys[position] = keys[position - gap]
                position -= gap
            keys[position] = key
        gap //= 3

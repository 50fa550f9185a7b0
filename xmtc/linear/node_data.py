"""Documents of a tree node, gathered over the columns that occur in them.

Half of the columns of a small node occur in only one of its documents (singletons). The weight of a singleton is
α y x, so that it needs no updates during training: all singletons of a document together add α Σ x² to its margin.
They are removed here and get their weights after training.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel, prefetch_element
from xmtc.core.sparse import as_compact
from xmtc.linear.coordinate_descent import compute_squared_norms

CACHE_LINE_VALUES = 16  # float32 values of a cache line
PREFETCH_ROWS = 3  # rows to prefetch; rows of a small node are scattered over the matrix
SINGLETON_FLAG = np.uint32(1 << 31)  # set in the number of a singleton column


class WeightRows(NamedTuple):
    """Weights of each column: a row of W times a factor."""

    row_numbers: np.ndarray  # int32
    factors: np.ndarray  # float32


class NodeDocuments(NamedTuple):
    """Documents of a node as a sparse matrix over shared columns (those of several documents), without singletons."""

    indptr: np.ndarray  # int64
    indices: np.ndarray  # uint32: shared columns, numbered from 0
    data: np.ndarray
    singleton_squares: np.ndarray  # (n_rows,) float32, sum of squares of the document's singletons
    squares: np.ndarray  # (n_rows,) float32, ‖x‖² with singletons
    n_shared: int
    n_singletons: int
    columns: np.ndarray  # int32, ascending: shared columns and singletons
    weight_rows: WeightRows  # of `columns`; W has a row per shared column, then one per document


def to_node_documents(matrix: csr_array) -> NodeDocuments:
    """Return all documents over all columns, without a copy of the matrix and without singletons."""
    indptr, indices, data, columns = as_compact(matrix)
    no_singletons, squares = np.zeros(matrix.shape[0], np.float32), compute_squared_norms(indptr, data)
    return NodeDocuments(
        indptr, indices, data, no_singletons, squares, len(columns), 0, columns, make_identity_rows(len(columns))
    )


def make_identity_rows(n_columns: int) -> WeightRows:
    return WeightRows(np.arange(n_columns, dtype=np.int32), np.ones(n_columns, np.float32))


def gather_documents(matrix: csr_array, rows: np.ndarray, squares: np.ndarray) -> NodeDocuments:
    """Return the documents `rows` of a matrix; `squares` are ‖x‖² of all documents."""
    rows, source = rows.astype(np.int64, copy=False), (matrix.indptr, matrix.indices, matrix.data)
    count_words = np.zeros(-(-matrix.shape[1] // 8), np.uint64)
    counts, numbers = count_words.view(np.uint8), np.empty(matrix.shape[1], np.uint32)
    n_values = count_columns(*source[:2], rows, counts)
    columns, row_numbers = np.empty((2, min(n_values, matrix.shape[1])), np.int32)
    n_shared, n_singletons = number_columns(count_words, counts, numbers, columns, row_numbers)

    n_columns, n_shared_values = n_shared + n_singletons, n_values - n_singletons
    indptr, singleton_squares = np.zeros(len(rows) + 1, np.int64), np.empty(len(rows), np.float32)
    indices, data = np.empty(n_shared_values, np.uint32), np.empty(n_shared_values, np.float32)
    columns, row_numbers = columns[:n_columns].copy(), row_numbers[:n_columns].copy()
    factors = np.ones(n_columns, np.float32)
    copy_shared_columns(
        *source, rows, numbers, n_shared, indptr, indices, data, singleton_squares, row_numbers, factors
    )
    return NodeDocuments(
        indptr, indices, data, singleton_squares, squares[rows], n_shared, n_singletons, columns,
        WeightRows(row_numbers, factors),
    )  # fmt: skip


@kernel
def prefetch_row(indptr, array, row):
    for i in range(indptr[row], indptr[row + 1], CACHE_LINE_VALUES):
        prefetch_element(array, i)


@kernel
def count_columns(indptr, indices, rows, counts):
    """Count the rows that have each column, up to 2; return the number of values."""
    n_values = np.int64(0)
    for position in range(len(rows)):
        if position + PREFETCH_ROWS < len(rows):
            prefetch_row(indptr, indices, rows[position + PREFETCH_ROWS])
        begin, end = indptr[rows[position]], indptr[rows[position] + 1]
        for i in range(begin, end):
            column = np.uint32(indices[i])
            counts[column] = np.uint8(1) + np.uint8(counts[column] != 0)
        n_values += end - begin
    return n_values


@kernel
def number_columns(count_words, counts, numbers, columns, row_numbers):
    """Number the shared columns and flag the singletons; return how many there are of each. `count_words` is a view of
    `counts` as 64-bit words, to skip eight empty columns at a time."""
    n, n_shared = np.int64(0), np.int64(0)
    for word in range(len(count_words)):
        if count_words[word]:
            for column in range(8 * word, 8 * word + 8):
                if counts[column]:
                    is_shared = counts[column] > 1
                    columns[n], row_numbers[n] = column, n_shared
                    numbers[column] = np.uint32(n_shared) if is_shared else SINGLETON_FLAG | np.uint32(n)
                    n, n_shared = n + 1, n_shared + np.int64(is_shared)
    return n_shared, n - n_shared


@kernel
def copy_shared_columns(
    indptr, indices, data, rows, numbers, n_shared, new_indptr, new_indices, new_data, singleton_squares, row_numbers,
    factors,
):  # fmt: skip
    """Copy the values of shared columns; write the squares, W rows and factors of the singletons."""
    at = np.int64(0)
    for position in range(len(rows)):
        if position + PREFETCH_ROWS < len(rows):
            prefetch_row(indptr, indices, rows[position + PREFETCH_ROWS])
            prefetch_row(indptr, data, rows[position + PREFETCH_ROWS])
        square = np.float32(0)
        for i in range(indptr[rows[position]], indptr[rows[position] + 1]):
            number, value = numbers[np.uint32(indices[i])], data[i]
            if number & SINGLETON_FLAG:
                row_numbers[number ^ SINGLETON_FLAG], factors[number ^ SINGLETON_FLAG] = n_shared + position, value
                square += value * value
            else:
                new_indices[at], new_data[at] = number, value
                at += 1
        singleton_squares[position], new_indptr[position + 1] = square, at

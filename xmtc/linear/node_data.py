"""The documents of a node, gathered from the matrix over columns of their own.

Half the columns of a small node occur in one of its documents only. Such a column's weight is that document's dual
variable times its value, so that it need not be added to while the node is trained: what all such columns of a document
say is its dual variable times the sum of their squares. They are set apart here, and get their weights in the end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel, prefetch_element
from xmtc.core.sparse import as_compact
from xmtc.linear.coordinate_descent import write_squared_norms

CACHE_LINE_VALUES = 16  # numbers that the processor fetches from memory at once
PREFETCH_ROWS = 3  # that are fetched: rows of a small node lie scattered over the matrix
SINGLETON_FLAG = np.uint32(1 << 31)  # marks the place of a column that one row has


class WeightRows(NamedTuple):
    """Where the weights of each column are: a row of a matrix, times a factor."""

    row_numbers: np.ndarray  # int32
    factors: np.ndarray  # float32


class NodeDocuments(NamedTuple):
    """Some rows of a sparse matrix, by the columns that several of them have; those that one has are set apart."""

    indptr: np.ndarray  # int64
    indices: np.ndarray  # uint32: shared columns, numbered from 0 on
    data: np.ndarray
    singleton_squares: np.ndarray  # (n_rows,) float32, the squared length of what is set apart
    squares: np.ndarray  # (n_rows,) float32, and of all
    n_shared: int
    n_singletons: int
    columns: np.ndarray  # int32, ascending: all that occur
    weight_rows: WeightRows  # of them: shared ones in their order, and after them a row for each document


def to_node_documents(matrix: csr_array) -> NodeDocuments:
    """All rows over all columns, whether they occur or not, without a copy of the matrix; none is set apart."""
    indptr, indices, data, columns = as_compact(matrix)
    own, squares = np.zeros((2, matrix.shape[0]), np.float32)
    write_squared_norms(indptr, data, squares)
    return NodeDocuments(
        indptr, indices, data, own, squares, len(columns), 0, columns, make_identity_rows(len(columns))
    )


def make_identity_rows(n_columns: int) -> WeightRows:
    return WeightRows(np.arange(n_columns, dtype=np.int32), np.ones(n_columns, np.float32))


def gather_documents(matrix: csr_array, rows: np.ndarray, squares: np.ndarray) -> NodeDocuments:
    """Some rows; `squares` are the squared lengths of all."""
    rows, source = rows.astype(np.int64, copy=False), (matrix.indptr, matrix.indices, matrix.data)
    eights = np.zeros(-(-matrix.shape[1] // 8), np.uint64)
    counts, number = eights.view(np.uint8), np.empty(matrix.shape[1], np.uint32)
    n_values = count_columns(*source[:2], rows, counts)
    columns, places = np.empty((2, min(n_values, matrix.shape[1])), np.int32)
    n_shared, n_alone = number_columns(eights, counts, number, columns, places)

    indptr, own = np.zeros(len(rows) + 1, np.int64), np.empty(len(rows), np.float32)
    indices, data = np.empty(n_values - n_alone, np.uint32), np.empty(n_values - n_alone, np.float32)
    columns, places = columns[: n_shared + n_alone].copy(), places[: n_shared + n_alone].copy()
    factors = np.ones(n_shared + n_alone, np.float32)
    copy_shared_columns(*source, rows, number, n_shared, indptr, indices, data, own, places, factors)
    where = WeightRows(places, factors)
    return NodeDocuments(indptr, indices, data, own, squares[rows], n_shared, n_alone, columns, where)


@kernel
def prefetch_row(indptr, array, row):
    for i in range(indptr[row], indptr[row + 1], CACHE_LINE_VALUES):
        prefetch_element(array, i)


@kernel
def count_columns(indptr, indices, rows, counts):
    """How many of the rows have each column: one, or 2 for several; returns how many values there are."""
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
def number_columns(eights, counts, number, columns, places):
    """Number the columns that several rows have, and mark the others; return how many there are. Rows may be few and
    columns many: they are looked through eight at a time, which `eights` sees as one."""
    n, n_shared = np.int64(0), np.int64(0)
    for eight in range(len(eights)):
        if eights[eight]:
            for column in range(8 * eight, 8 * eight + 8):
                if counts[column]:
                    is_shared = counts[column] > 1
                    columns[n], places[n] = column, n_shared
                    number[column] = np.uint32(n_shared) if is_shared else SINGLETON_FLAG | np.uint32(n)
                    n, n_shared = n + 1, n_shared + np.int64(is_shared)
    return n_shared, n - n_shared


@kernel
def copy_shared_columns(
    indptr, indices, data, rows, number, n_shared, new_indptr, new_indices, new_data, own, places, factors
):  # fmt: skip
    at = np.int64(0)
    for position in range(len(rows)):
        if position + PREFETCH_ROWS < len(rows):
            prefetch_row(indptr, indices, rows[position + PREFETCH_ROWS])
            prefetch_row(indptr, data, rows[position + PREFETCH_ROWS])
        square = np.float32(0)
        for i in range(indptr[rows[position]], indptr[rows[position] + 1]):
            found, value = number[np.uint32(indices[i])], data[i]
            if found & SINGLETON_FLAG:
                places[found ^ SINGLETON_FLAG], factors[found ^ SINGLETON_FLAG] = n_shared + position, value
                square += value * value
            else:
                new_indices[at], new_data[at] = found, value
                at += 1
        own[position], new_indptr[position + 1] = square, at

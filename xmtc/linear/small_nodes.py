"""Batches of small tree nodes, each gathered, trained, pruned and packed by one compiled call.

A tree over many labels has thousands of nodes with a dozen documents. For one node at a time, the Python code between
the kernels would take longer than the kernels and hold the interpreter lock. Here the same kernels run node after node
over concatenated arrays. The result of a node does not depend on the other nodes of the batch, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel
from xmtc.linear.blocks import TrainingBlock, mark_members
from xmtc.linear.coordinate_descent import descend_block, descend_pair, initialise_bias
from xmtc.linear.node_data import copy_shared_columns, count_columns, number_columns
from xmtc.linear.packing import (
    MAX_DENSE_ROW_RATIO,
    PackedWeights,
    SparseWeights,
    choose_bucket_count,
    fill_table,
    quantise_weights,
    sort_by_bucket,
    to_offsets,
    write_pruned_weights,
)
from xmtc.linear.solver import Solver, choose_run_length, padded_width, seed_state, select_row_weights


class BatchedDocuments(NamedTuple):
    """Concatenated `NodeDocuments` of several nodes."""

    sizes: np.ndarray  # (n_nodes, 3) int64: shared columns, singletons, values
    indptr: np.ndarray  # (n_rows + n_nodes,) int64, starting from 0 for each node
    indices: np.ndarray
    data: np.ndarray
    singleton_squares: np.ndarray
    columns: np.ndarray
    row_numbers: np.ndarray
    factors: np.ndarray


class BatchedWeights(NamedTuple):
    """Concatenated `SparseWeights` of several nodes, and the progress of their training."""

    sizes: np.ndarray  # (n_nodes, 2) int64: features, weights
    bias: np.ndarray
    features: np.ndarray
    ends: np.ndarray  # starting from 0 for each node
    slots: np.ndarray
    weights: np.ndarray
    progress: np.ndarray  # (n_nodes, 2) float32: see `write_progress`


def train_small_nodes(
    solver: Solver,
    X: csr_array,
    squares: np.ndarray,
    doc_weights: np.ndarray | None,
    blocks: Sequence[TrainingBlock],
    min_weight: float,
) -> BatchedWeights:
    """Train all blocks and return their pruned weights. `squares` are ‖x‖² of all documents of X."""
    rows, first_rows = concatenate_arrays([block.rows for block in blocks])
    children, first_children = concatenate_arrays([block.children for block in blocks])
    documents = gather_batched_documents(X, rows, first_rows)
    widths = np.diff(first_children)
    padded = [padded_width(int(width)) for width in widths]
    passes = [solver.pass_limit(int(n), width) for n, width in zip(documents.sizes[:, 2], padded, strict=True)]
    lengths = [choose_run_length(int(n), width) for n, width in zip(np.diff(first_rows), padded, strict=True)]
    settings = np.array([padded, passes, lengths], np.int64)

    n_columns = documents.sizes[:, 0] + documents.sizes[:, 1]
    n_features, n_weights = int(n_columns.sum()), int((n_columns * widths).sum())
    batch = BatchedWeights(
        sizes=np.empty((len(blocks), 2), np.int64),
        bias=np.empty(len(children), np.float32),
        features=np.empty(n_features, np.int32),
        ends=np.empty(n_features, np.int64),
        slots=np.empty(n_weights, np.int16),  # maximum size; pages that are not written take no memory
        weights=np.empty(n_weights, np.float32),
        progress=np.empty((len(blocks), 2), np.float32),
    )
    solve_nodes(
        *documents, squares[rows], select_row_weights(doc_weights, rows), rows, first_rows, children, first_children,
        *blocks[0].members, settings, solver.loss == "logistic", np.float32(solver.C),
        np.float32(solver.eps), seed_state(solver.seed), np.float32(min_weight), *batch,
    )  # fmt: skip
    n_features, n_weights = map(int, batch.sizes.sum(axis=0))
    return batch._replace(
        features=batch.features[:n_features].copy(),
        ends=batch.ends[:n_features].copy(),
        slots=batch.slots[:n_weights].copy(),
        weights=batch.weights[:n_weights].copy(),
    )


def concatenate_arrays(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated arrays and their offsets."""
    return np.concatenate(arrays).astype(np.int64, copy=False), to_offsets([len(array) for array in arrays])


def gather_batched_documents(matrix: csr_array, rows: np.ndarray, first_rows: np.ndarray) -> BatchedDocuments:
    ends = to_offsets(matrix.indptr[rows + 1] - matrix.indptr[rows])[first_rows]
    n_values, n_columns = int(ends[-1]), int(np.minimum(np.diff(ends), matrix.shape[1]).sum())  # upper bounds
    batch = BatchedDocuments(
        sizes=np.empty((len(first_rows) - 1, 3), np.int64),
        indptr=np.empty(len(rows) + len(first_rows) - 1, np.int64),
        indices=np.empty(n_values, np.uint32),
        data=np.empty(n_values, np.float32),
        singleton_squares=np.empty(len(rows), np.float32),
        columns=np.empty(n_columns, np.int32),
        row_numbers=np.empty(n_columns, np.int32),
        factors=np.ones(n_columns, np.float32),
    )
    count_words, numbers = np.zeros(-(-matrix.shape[1] // 8), np.uint64), np.empty(matrix.shape[1], np.uint32)
    source = matrix.indptr, matrix.indices, matrix.data
    gather_nodes(*source, rows, first_rows, count_words, count_words.view(np.uint8), numbers, *batch)
    return batch


@kernel
def gather_nodes(
    indptr, indices, data, rows, first_rows, count_words, counts, numbers,
    sizes, new_indptr, new_indices, new_data, singleton_squares, columns, row_numbers, factors,
):  # fmt: skip
    """Gather the documents of each node as `gather_documents` does. `counts` are zeros before and after each node."""
    column, value = np.int64(0), np.int64(0)
    for node in range(len(sizes)):
        begin, end = first_rows[node], first_rows[node + 1]
        node_rows, node_indptr = rows[begin:end], new_indptr[begin + node : end + node + 1]
        count_columns(indptr, indices, node_rows, counts)
        n_shared, n_singletons = number_columns(count_words, counts, numbers, columns[column:], row_numbers[column:])
        node_indptr[0] = 0
        copy_shared_columns(
            indptr, indices, data, node_rows, numbers, n_shared, node_indptr, new_indices[value:], new_data[value:],
            singleton_squares[begin:end], row_numbers[column:], factors[column:],
        )  # fmt: skip
        for i in range(column, column + n_shared + n_singletons):
            counts[columns[i]] = 0
        n_values = node_indptr[end - begin]
        sizes[node, 0], sizes[node, 1], sizes[node, 2] = n_shared, n_singletons, n_values
        column, value = column + n_shared + n_singletons, value + n_values


@kernel
def solve_nodes(
    sizes, indptr, indices, data, singleton_squares, columns, row_numbers, factors, squares, row_weights, rows,
    first_rows, children, first_children, members_indptr, members, settings, is_logistic, C, eps, state, min_weight,
    pruned_sizes, pruned_bias, features, ends, slots, weights, progress,
):  # fmt: skip
    """Train each node and write its pruned weights to the last seven arguments (the fields of BatchedWeights).

    `settings` has the padded width, the maximum number of passes and the run length of each node.
    """
    column, value, feature, weight = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for node in range(len(sizes)):
        begin, end, first = first_rows[node], first_rows[node + 1], first_children[node]
        n_rows, n_labels = end - begin, first_children[node + 1] - first
        width, max_passes, run_length = settings[0, node], settings[1, node], settings[2, node]
        n_shared, n_singletons, n_values = sizes[node]
        n_columns = n_shared + n_singletons
        signs, bias = np.empty((n_rows, width), np.float32), np.empty(width, np.float32)
        for row in range(n_rows):
            for j in range(width):
                signs[row, j] = -1
        mark_members(members_indptr, members, children[first : first + n_labels], rows[begin:end], signs)
        node_weights = row_weights[begin:end]
        initialise_bias(signs, node_weights, bias)
        runs = np.empty((n_rows + run_length - 1) // run_length, np.int64)
        for run in range(len(runs)):
            runs[run] = run

        node_indptr = indptr[begin + node : end + node + 1]
        node_indices, node_data = indices[value : value + n_values], data[value : value + n_values]
        node_singletons, node_squares = singleton_squares[begin:end], squares[begin:end]
        if width == 2:
            W = descend_pair(
                node_indptr, node_indices, node_data, node_singletons, node_squares, n_shared, n_singletons, signs,
                is_logistic, C, node_weights, eps, max_passes, run_length, runs, state, bias, progress[node],
            )  # fmt: skip
        else:
            W = descend_block(
                node_indptr, node_indices, node_data, node_singletons, node_squares, n_shared, n_singletons, signs,
                is_logistic, C, node_weights, None, None, None, eps, max_passes, run_length, runs, state, bias,
                progress[node],
            )  # fmt: skip
        for j in range(n_labels):
            pruned_bias[first + j] = bias[j]

        n_used = write_pruned_weights(
            columns[column : column + n_columns], W, row_numbers[column:], factors[column:], n_labels, min_weight,
            features[feature:], ends[feature:], slots[weight:], weights[weight:],
        )  # fmt: skip
        n_weights = np.int64(ends[feature + n_used - 1]) if n_used else np.int64(0)
        pruned_sizes[node, 0], pruned_sizes[node, 1] = n_used, n_weights
        column, value, feature, weight = column + n_columns, value + n_values, feature + n_used, weight + n_weights


def split_weights(batch: BatchedWeights, widths: Sequence[int]) -> list[SparseWeights]:
    """Return the weights of each node as views of the batch."""
    slots, features, weights = map(to_offsets, (widths, *batch.sizes.T))
    return [
        SparseWeights(
            batch.bias[slots[i] : slots[i + 1]],
            batch.features[features[i] : features[i + 1]],
            batch.ends[features[i] : features[i + 1]],
            batch.slots[weights[i] : weights[i + 1]],
            batch.weights[weights[i] : weights[i + 1]],
        )
        for i in range(len(widths))
    ]


def pack_batched_weights(batch: BatchedWeights, widths: Sequence[int]) -> list[PackedWeights]:
    """Pack the weights of each node as `pack_weights` does; the results are views of shared arrays."""
    n_features = batch.sizes[:, 0]
    bucket_counts = choose_bucket_count(n_features)
    table = np.empty((int((bucket_counts + n_features + 1).sum()), 2), np.uint32)
    entries = np.zeros(MAX_DENSE_ROW_RATIO * len(batch.weights), np.int16)
    sizes, scales = np.empty((len(widths), 2), np.int64), np.empty(len(widths))
    pack_nodes(*batch[:1], *batch[2:6], np.array(widths), bucket_counts, table, entries, sizes, scales)
    cells, firsts = map(to_offsets, sizes.T)
    table, entries, slots = table[: cells[-1]].copy(), entries[: firsts[-1]].copy(), to_offsets(widths)
    return [
        PackedWeights(
            batch.bias[slots[i] : slots[i + 1]],
            float(scales[i]),
            int(bucket_counts[i]),
            table[cells[i] : cells[i + 1]],
            entries[firsts[i] : firsts[i + 1]],
        )
        for i in range(len(widths))
    ]


@kernel
def pack_nodes(sizes, features, ends, slots, weights, widths, bucket_counts, table, entries, packed_sizes, scales):
    """Pack the weights of each node; write its cells and entries to `packed_sizes`."""
    feature, weight, cell, entry = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for node in range(len(sizes)):
        n_rows, n_weights, n_buckets = sizes[node, 0], sizes[node, 1], bucket_counts[node]
        node_features, node_ends = features[feature : feature + n_rows], ends[feature : feature + n_rows]
        quantised, by_bucket = np.empty(n_weights, np.int16), np.empty(n_rows, np.int64)
        bucket_ends = np.zeros(n_buckets + 1, np.int64)
        scales[node] = quantise_weights(weights[weight : weight + n_weights], quantised)
        n_entries = sort_by_bucket(node_features, node_ends, widths[node], n_buckets, bucket_ends, by_bucket)
        size = fill_table(
            node_features, node_ends, slots[weight : weight + n_weights], quantised, widths[node], n_buckets,
            by_bucket, table[cell:], entries[entry:],
        )  # fmt: skip
        packed_sizes[node, 0], packed_sizes[node, 1] = size, n_entries
        feature, weight, cell, entry = feature + n_rows, weight + n_weights, cell + size, entry + n_entries

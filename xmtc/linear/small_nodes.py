"""Small nodes of a label tree, several of them trained by one call.

A tree over many labels has thousands of nodes of a dozen documents. One by one, what Python does between the kernels
takes longer than they do, and keeps other threads from working. Here the same kernels take node after node, over arrays
that lie end to end; what lies beside a node changes nothing, to the last bit."""

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
from xmtc.linear.solver import Solver, choose_run_length, padded_width, seed_state


class BatchedDocuments(NamedTuple):
    """`Documents` of several nodes, end to end."""

    sizes: np.ndarray  # (n_nodes, 3) int64: columns that several rows have, those that one has, values
    indptr: np.ndarray  # (n_rows + n_nodes,) int64, from 0 on for each node
    indices: np.ndarray
    data: np.ndarray
    singleton_squares: np.ndarray
    columns: np.ndarray
    row_numbers: np.ndarray
    factors: np.ndarray


class BatchedWeights(NamedTuple):
    """`Rows` of several nodes, end to end."""

    sizes: np.ndarray  # (n_nodes, 2) int64: features, weights
    bias: np.ndarray
    features: np.ndarray
    ends: np.ndarray  # from 0 on for each node
    slots: np.ndarray
    weights: np.ndarray


def train_small_nodes(
    solver: Solver,
    X: csr_array,
    squares: np.ndarray,
    doc_weights: np.ndarray | None,
    blocks: Sequence[TrainingBlock],
    min_weight: float,
) -> BatchedWeights:
    """The weights of all blocks, pruned. `squares` are the squared lengths of all documents."""
    rows, first_rows = concatenate_arrays([block.rows for block in blocks])
    children, first_children = concatenate_arrays([block.children for block in blocks])
    documents = gather_batched_documents(X, rows, first_rows)
    widths = np.diff(first_children)
    padded = [padded_width(int(width)) for width in widths]
    passes = [solver.pass_limit(int(n), width) for n, width in zip(documents.sizes[:, 2], padded, strict=True)]
    lengths = [choose_run_length(int(n), width) for n, width in zip(np.diff(first_rows), padded, strict=True)]
    plan = np.array([padded, passes, lengths], np.int64)

    n_columns = documents.sizes[:, 0] + documents.sizes[:, 1]
    n_features, n_weights = int(n_columns.sum()), int((n_columns * widths).sum())
    found = BatchedWeights(
        sizes=np.empty((len(blocks), 2), np.int64),
        bias=np.empty(len(children), np.float32),
        features=np.empty(n_features, np.int32),
        ends=np.empty(n_features, np.int64),
        slots=np.empty(n_weights, np.int16),  # room for all of them, of which only what is written takes memory
        weights=np.empty(n_weights, np.float32),
    )
    solve_nodes(
        *documents, squares[rows], None if doc_weights is None else doc_weights[rows], rows, first_rows, children,
        first_children, *blocks[0].members, plan, solver.loss == "logistic", np.float32(solver.C),
        np.float32(solver.eps), seed_state(solver.seed), np.float32(min_weight), *found,
    )  # fmt: skip
    n_features, n_weights = map(int, found.sizes.sum(axis=0))
    return found._replace(
        features=found.features[:n_features].copy(),
        ends=found.ends[:n_features].copy(),
        slots=found.slots[:n_weights].copy(),
        weights=found.weights[:n_weights].copy(),
    )


def concatenate_arrays(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All of them as one, and where each begins and the last ends."""
    return np.concatenate(arrays).astype(np.int64, copy=False), to_offsets([len(array) for array in arrays])


def gather_batched_documents(matrix: csr_array, rows: np.ndarray, first_rows: np.ndarray) -> BatchedDocuments:
    ends = to_offsets(matrix.indptr[rows + 1] - matrix.indptr[rows])[first_rows]
    n_values, n_columns = int(ends[-1]), int(np.minimum(np.diff(ends), matrix.shape[1]).sum())  # at most
    eights = np.zeros(-(-matrix.shape[1] // 8), np.uint64)
    found = BatchedDocuments(
        sizes=np.empty((len(first_rows) - 1, 3), np.int64),
        indptr=np.empty(len(rows) + len(first_rows) - 1, np.int64),
        indices=np.empty(n_values, np.uint32),
        data=np.empty(n_values, np.float32),
        singleton_squares=np.empty(len(rows), np.float32),
        columns=np.empty(n_columns, np.int32),
        row_numbers=np.empty(n_columns, np.int32),
        factors=np.ones(n_columns, np.float32),
    )
    number = np.empty(matrix.shape[1], np.uint32)
    source = matrix.indptr, matrix.indices, matrix.data
    gather_nodes(*source, rows, first_rows, eights, eights.view(np.uint8), number, *found)
    return found


@kernel
def gather_nodes(
    indptr, indices, data, rows, first_rows, eights, counts, number,
    sizes, new_indptr, new_indices, new_data, own, columns, places, factors,
):  # fmt: skip
    """`gather` of each node. `counts` are zeros before, after, and between two of them."""
    column, value = np.int64(0), np.int64(0)
    for node in range(len(sizes)):
        begin, end = first_rows[node], first_rows[node + 1]
        ours, its_indptr = rows[begin:end], new_indptr[begin + node : end + node + 1]
        count_columns(indptr, indices, ours, counts)
        n_shared, n_alone = number_columns(eights, counts, number, columns[column:], places[column:])
        its_indptr[0] = 0
        copy_shared_columns(
            indptr, indices, data, ours, number, n_shared, its_indptr, new_indices[value:], new_data[value:],
            own[begin:end], places[column:], factors[column:],
        )  # fmt: skip
        for i in range(column, column + n_shared + n_alone):
            counts[columns[i]] = 0
        n_values = its_indptr[end - begin]
        sizes[node, 0], sizes[node, 1], sizes[node, 2] = n_shared, n_alone, n_values
        column, value = column + n_shared + n_alone, value + n_values


@kernel
def solve_nodes(
    sizes, indptr, indices, data, own, columns, places, factors, squares, row_weights, rows, first_rows,
    children, first_children, members_indptr, members, plan, is_logistic, C, eps, state, min_weight,
    found_sizes, found_bias, features, ends, slots, weights,
):  # fmt: skip
    """What is left of each node's weights, written into the last six arguments, and the first of them how much. The
    plan is of each node the padded width, how many passes it may take, and the documents in a run."""
    column, value, feature, weight = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for node in range(len(sizes)):
        begin, end, first = first_rows[node], first_rows[node + 1], first_children[node]
        n_rows, n_labels, width = end - begin, first_children[node + 1] - first, plan[0, node]
        n_shared, n_alone, n_values = sizes[node]
        n_columns = n_shared + n_alone
        signs, bias = np.empty((n_rows, width), np.float32), np.empty(width, np.float32)
        for row in range(n_rows):
            for j in range(width):
                signs[row, j] = -1
        mark_members(members_indptr, members, children[first : first + n_labels], rows[begin:end], signs)
        its_weights = slice_row_weights(row_weights, begin, end)
        initialise_bias(signs, its_weights, bias)
        runs = np.empty((n_rows + plan[2, node] - 1) // plan[2, node], np.int64)
        for run in range(len(runs)):
            runs[run] = run

        its_indptr = indptr[begin + node : end + node + 1]
        its_indices, its_data = indices[value : value + n_values], data[value : value + n_values]
        if width == 2:
            W = descend_pair(
                its_indptr, its_indices, its_data, own[begin:end], squares[begin:end], n_shared, n_alone, signs,
                is_logistic, C, its_weights, eps, plan[1, node], plan[2, node], runs, state, bias,
            )  # fmt: skip
        else:
            W = descend_block(
                its_indptr, its_indices, its_data, own[begin:end], squares[begin:end], n_shared, n_alone, signs,
                is_logistic, C, its_weights, None, None, None, eps, plan[1, node], plan[2, node], runs, state, bias,
            )  # fmt: skip
        for j in range(n_labels):
            found_bias[first + j] = bias[j]

        n_used = write_pruned_weights(
            columns[column : column + n_columns], W, places[column:], factors[column:], n_labels, min_weight,
            features[feature:], ends[feature:], slots[weight:], weights[weight:],
        )  # fmt: skip
        n_weights = np.int64(ends[feature + n_used - 1]) if n_used else np.int64(0)
        found_sizes[node, 0], found_sizes[node, 1] = n_used, n_weights
        column, value, feature, weight = column + n_columns, value + n_values, feature + n_used, weight + n_weights


@kernel
def slice_row_weights(row_weights, begin, end):
    if row_weights is None:
        return None
    return row_weights[begin:end]


def split_weights(found: BatchedWeights, widths: Sequence[int]) -> list[SparseWeights]:
    """Of each node; they share memory."""
    slots, features, weights = map(to_offsets, (widths, *found.sizes.T))
    return [
        SparseWeights(
            found.bias[slots[i] : slots[i + 1]],
            found.features[features[i] : features[i + 1]],
            found.ends[features[i] : features[i + 1]],
            found.slots[weights[i] : weights[i + 1]],
            found.weights[weights[i] : weights[i + 1]],
        )
        for i in range(len(widths))
    ]


def pack_batched_weights(found: BatchedWeights, widths: Sequence[int]) -> list[PackedWeights]:
    """Of each node, as `pack` does; they share memory."""
    n_features = found.sizes[:, 0]
    room = int((choose_bucket_count(n_features) + n_features + 1).sum())
    table, entries = np.empty((room, 2), np.uint32), np.zeros(MAX_DENSE_ROW_RATIO * len(found.weights), np.int16)
    sizes, scales = np.empty((len(widths), 2), np.int64), np.empty(len(widths))
    pack_nodes(*found[:1], *found[2:], np.array(widths), choose_bucket_count(n_features), table, entries, sizes, scales)
    cells, firsts = map(to_offsets, sizes.T)
    table, entries, slots = table[: cells[-1]].copy(), entries[: firsts[-1]].copy(), to_offsets(widths)
    return [
        PackedWeights(
            found.bias[slots[i] : slots[i + 1]],
            float(scales[i]),
            int(choose_bucket_count(n_features[i])),
            table[cells[i] : cells[i + 1]],
            entries[firsts[i] : firsts[i + 1]],
        )
        for i in range(len(widths))
    ]


@kernel
def pack_nodes(sizes, features, ends, slots, weights, widths, homes, table, entries, found_sizes, scales):
    feature, weight, cell, entry = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for node in range(len(sizes)):
        n_rows, n_weights, n_homes = sizes[node, 0], sizes[node, 1], homes[node]
        its_features, its_ends = features[feature : feature + n_rows], ends[feature : feature + n_rows]
        steps, by_home = np.empty(n_weights, np.int16), np.empty(n_rows, np.int64)
        after = np.zeros(n_homes + 1, np.int64)
        scales[node] = quantise_weights(weights[weight : weight + n_weights], steps)
        n_entries = sort_by_bucket(its_features, its_ends, widths[node], n_homes, after, by_home)
        its_slots = slots[weight : weight + n_weights]
        size = fill_table(
            its_features, its_ends, its_slots, steps, widths[node], n_homes, by_home, table[cell:], entries[entry:]
        )
        found_sizes[node, 0], found_sizes[node, 1] = size, n_entries
        feature, weight, cell, entry = feature + n_rows, weight + n_weights, cell + size, entry + n_entries

"""Packing of trained node classifiers into the searchable form `LinearTree`.

Pruned weights (`SparseWeights`) are quantised to 16 bits and stored in one hash table per chunk (`PackedWeights`).
Adjacent levels with few children share a chunk, so that a search reads few tables.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel
from xmtc.labels.tree import LabelTree
from xmtc.linear.node_data import make_identity_rows
from xmtc.linear.search import hash_feature
from xmtc.linear.solver import LinearWeights
from xmtc.linear.tree import EMPTY_FEATURE_CODE, SAME_CHUNK, LinearTree, get_pair_length
from xmtc.storage.disk_arrays import ArrayCollector

QUANTISATION_LEVELS = 32767  # weights are int16 multiples of (largest weight of the chunk) / QUANTISATION_LEVELS
SHORT_LEVELS = 127  # the same for int8
MAX_CHUNK_SLOTS = 32768  # slot numbers are int16
MAX_DENSE_ROW_RATIO = 5  # maximum slots per stored weight of a dense row; adding a dense row needs no branches
MAX_GROUPED_SLOTS = 128  # maximum slots of adjacent levels that share a chunk


@dataclass(frozen=True)
class SparseWeights:
    """Pruned weights of several slots (labels or child nodes), sorted by feature."""

    bias: np.ndarray  # (n_slots,)
    features: np.ndarray  # ascending
    ends: np.ndarray  # (len(features),) end of each feature's weights; int32 if that is wide enough
    slots: np.ndarray  # (n_weights,) int16
    weights: np.ndarray  # (n_weights,) float32


@dataclass(frozen=True)
class PackedWeights:
    """Weights of one chunk in the layout of `LinearTree`."""

    bias: np.ndarray
    scale: float
    n_buckets: int
    table: np.ndarray
    entries: np.ndarray  # in the order of the table


TrainedNode: TypeAlias = SparseWeights | PackedWeights  # leaves are packed by the thread that trains them


def prune_weights(weights: LinearWeights, min_weight: float) -> SparseWeights:
    """Return the weights with an absolute value of at least `min_weight`.

    The arrays are allocated at their maximum size; pages that are not written take no memory.
    """
    n_features, size = len(weights.features), len(weights.features) * weights.n_labels
    features, ends = np.empty(n_features, np.int32), np.empty(n_features, np.int64)
    slots, kept = np.empty(size, np.int16), np.empty(size, np.float32)

    rows, output = weights.rows or make_identity_rows(n_features), (features, ends, slots, kept)
    n_used = write_pruned_weights(weights.features, weights.W, *rows, weights.n_labels, np.float32(min_weight), *output)
    n = ends[n_used - 1] if n_used else 0
    bias = weights.W[-1, : weights.n_labels].copy()
    ends = ends[:n_used].astype(np.int32 if n <= np.iinfo(np.int32).max else np.int64)
    return SparseWeights(bias, features[:n_used].copy(), ends, slots[:n].copy(), kept[:n].copy())


def make_constant_weights(n: int, margin: float) -> SparseWeights:
    """Return the weights of n slots whose margin is the same for every document."""
    empty = np.zeros(0, np.int32)
    return SparseWeights(np.full(n, margin, np.float32), empty, empty, empty.astype(np.int16), empty.astype(np.float32))


@kernel
def write_pruned_weights(features, W, row_numbers, factors, n_slots, min_weight, used, ends, slots, kept):
    """Write the arrays of `prune_weights` to the last four arguments; return the number of features with a weight."""
    n, n_used = np.int64(0), np.int64(0)
    for feature in range(len(features)):
        begin, row, factor = n, W[row_numbers[feature]], factors[feature]
        for slot in range(n_slots):
            weight = factor * row[slot]
            if abs(weight) >= min_weight:
                slots[n], kept[n] = slot, weight
                n += 1
        if n > begin:
            used[n_used], ends[n_used] = features[feature], n
            n_used += 1
    return n_used


def concatenate_slots(parts: Sequence[SparseWeights]) -> SparseWeights:
    """Return the slots of all parts, renumbered consecutively."""
    if len(parts) == 1:
        return parts[0]
    first_slots = np.cumsum([0] + [len(part.bias) for part in parts])
    features, weights, bias = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("features", "weights", "bias")
    )
    slots = np.concatenate([part.slots + np.int16(first) for part, first in zip(parts, first_slots[:-1], strict=True)])
    lengths = np.concatenate([np.diff(part.ends, prepend=0) for part in parts])
    ends = np.zeros(int(features.max(initial=-1)) + 2, np.int64)
    merged_slots, merged_weights = np.empty_like(slots), np.empty_like(weights)
    merge_feature_rows(features, lengths, slots, weights, ends, merged_slots, merged_weights)
    used = np.flatnonzero(np.bincount(features))
    return SparseWeights(bias, used.astype(np.int32), ends[used], merged_slots, merged_weights)


@kernel
def merge_feature_rows(features, lengths, slots, weights, ends, merged_slots, merged_weights):
    """Concatenate the rows of each feature (counting sort). `ends` starts as zeros and becomes each feature's end."""
    for row in range(len(features)):
        ends[features[row] + 1] += lengths[row]
    for feature in range(len(ends) - 1):
        ends[feature + 1] += ends[feature]
    begin = np.int64(0)
    for row in range(len(features)):
        at = ends[features[row]]
        for i in range(lengths[row]):
            merged_slots[at + i], merged_weights[at + i] = slots[begin + i], weights[begin + i]
        begin += lengths[row]
        ends[features[row]] = at + lengths[row]


def group_by_feature(features: np.ndarray, slots: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> SparseWeights:
    """Return SparseWeights from (feature, slot, weight) triples in any order."""
    W = csr_array((weights, (features, slots)), shape=(int(features.max(initial=-1)) + 1, len(bias)))
    used = np.flatnonzero(np.diff(W.indptr))
    return SparseWeights(bias, used.astype(np.int32), W.indptr[used + 1], W.indices.astype(np.int16), W.data)


def pack_weights(rows: SparseWeights) -> PackedWeights:
    """Quantise the weights and store them in a hash table."""
    n_slots, n_rows = len(rows.bias), len(rows.features)
    quantised, n_buckets = np.empty(len(rows.weights), np.int16), choose_bucket_count(n_rows)
    scale, ends = quantise_weights(rows.weights, quantised), rows.ends.astype(np.int64, copy=False)
    by_bucket, bucket_ends = np.empty(n_rows, np.int64), np.zeros(n_buckets + 1, np.int64)
    n_entries = sort_by_bucket(rows.features, ends, n_slots, n_buckets, bucket_ends, by_bucket)

    table, entries = np.empty((n_buckets + n_rows + 1, 2), np.uint32), np.zeros(n_entries, np.int16)
    size = fill_table(rows.features, ends, rows.slots, quantised, n_slots, n_buckets, by_bucket, table, entries)
    return PackedWeights(rows.bias, scale, n_buckets, table[:size].copy(), entries)


def choose_bucket_count(n_rows: Any) -> Any:
    """Return the number of buckets (of one chunk or an array of chunks) that makes a table two thirds full."""
    return n_rows * 3 // 2 + 1


@kernel
def quantise_weights(weights, quantised):
    """Write the weights as integer multiples of a scale and return the scale."""
    largest = np.float32(1e-30)
    for i in range(len(weights)):
        largest = max(largest, abs(weights[i]))
    scale = np.float64(largest) / QUANTISATION_LEVELS
    for i in range(len(weights)):
        quantised[i] = np.int16(np.rint(weights[i] / np.float32(scale)))
    return scale


@kernel
def compute_row_length(ends, row, n_slots):
    """Return the entries of a row: all slots if it is dense, else (slot, weight) pairs."""
    n_weights = ends[row] - (ends[row - 1] if row else 0)
    return n_slots if MAX_DENSE_ROW_RATIO * n_weights >= n_slots else 2 * n_weights


@kernel
def sort_by_bucket(features, ends, n_slots, n_buckets, bucket_ends, by_bucket):
    """Write the rows in bucket order (counting sort) and return their number of entries. `bucket_ends` starts as
    zeros."""
    n_entries = np.int64(0)
    for row in range(len(features)):
        bucket_ends[hash_feature(np.uint32(features[row]), n_buckets) + 1] += 1
        n_entries += compute_row_length(ends, row, n_slots)
    for bucket in range(n_buckets):
        bucket_ends[bucket + 1] += bucket_ends[bucket]
    for row in range(len(features)):
        bucket = hash_feature(np.uint32(features[row]), n_buckets)
        by_bucket[bucket_ends[bucket]] = row
        bucket_ends[bucket] += 1
    return n_entries


@kernel
def fill_table(features, ends, slots, quantised, n_slots, n_buckets, by_bucket, table, entries):
    """Write each row to its bucket or the first free cell after it (linear probing); return the table's length."""
    cell, size = np.int64(0), np.int64(0)
    for row in by_bucket:
        bucket = hash_feature(np.uint32(features[row]), n_buckets)
        while cell < bucket:
            table[cell, 0], table[cell, 1] = EMPTY_FEATURE_CODE, size
            cell += 1
        table[cell, 0], table[cell, 1] = features[row], size
        cell += 1

        length, begin = compute_row_length(ends, row, n_slots), ends[row - 1] if row else 0
        for i in range(begin, ends[row]):
            if length == n_slots:
                entries[size + slots[i]] = quantised[i]
            else:
                pair = size + 2 * (i - begin)
                entries[pair], entries[pair + 1] = slots[i], quantised[i]
        size += length
    last = max(cell, n_buckets)
    for empty in range(cell, last + 1):
        table[empty, 0], table[empty, 1] = EMPTY_FEATURE_CODE, size
    return last + 1


def shorten_weights(tree: LinearTree) -> LinearTree:
    """Return the tree with weights of 8 bits instead of 16, which are multiples of the largest weight of the chunk
    divided by SHORT_LEVELS."""
    table, scale, parts = tree.table.copy(), tree.scale.copy(), []
    for chunk in range(tree.n_chunks):
        cells = slice(tree.places[chunk], tree.places[chunk + 1])
        entries, n_slots = tree.entries[tree.firsts[chunk] : tree.firsts[chunk + 1]], np.diff(tree.slots)[chunk]
        short = np.empty(2 * len(entries), np.int8)  # maximum size; pages that are not written take no memory
        largest = find_largest_weight(tree.table[cells, 1], entries, n_slots)
        size = write_short_entries(tree.table[cells, 1], entries, n_slots, SHORT_LEVELS / largest, table[cells], short)
        scale[chunk] *= largest / SHORT_LEVELS
        parts.append(short[:size].copy())
    return replace(
        tree, table=table, scale=scale, entries=np.concatenate(parts), firsts=to_offsets([len(part) for part in parts])
    )


@kernel
def find_largest_weight(starts, entries, n_slots):
    """Return the largest absolute weight of a chunk with 16-bit entries, at least 1."""
    largest = np.int64(1)
    for cell in range(len(starts) - 1):
        begin, end = np.int64(starts[cell]), np.int64(starts[cell + 1])
        is_dense = end - begin == n_slots
        for entry in range(begin if is_dense else begin + 1, end, 1 if is_dense else 2):
            largest = max(largest, abs(np.int64(entries[entry])))
    return largest


@kernel
def write_short_entries(starts, entries, n_slots, factor, table, short):
    """Write the 16-bit entries of a chunk as 8-bit entries and their new starts; return their number."""
    size, pair_length = np.int64(0), get_pair_length(1, n_slots)
    for cell in range(len(starts) - 1):
        begin, end = np.int64(starts[cell]), np.int64(starts[cell + 1])
        table[cell, 1] = size
        if end - begin == n_slots:
            for entry in range(begin, end):
                short[size] = np.int8(np.rint(factor * entries[entry]))
                size += 1
        else:
            for entry in range(begin, end, 2):
                slot = np.int64(np.uint16(entries[entry]))
                short[size] = np.int8(slot & 0xFF)
                if pair_length == 3:
                    short[size + 1] = np.int8(slot >> 8)
                short[size + pair_length - 1] = np.int8(np.rint(factor * entries[entry + 1]))
                size += pair_length
    table[len(starts) - 1, 1] = size
    return size


@dataclass(frozen=True)
class Chunk:
    """Weights of some slots and their place in the tree; `above` and `leads` as in `LinearTree`."""

    weights: TrainedNode
    above: np.ndarray
    leads: np.ndarray


class ChunkPacker:
    """Collector of chunks, in memory or in files of a folder, for the arrays of one `LinearTree`."""

    def __init__(self, folder: Path | None = None) -> None:
        self._above, self._leads, self._bias = (ArrayCollector(None) for _ in range(3))
        self._table, self._entries = ArrayCollector(folder), ArrayCollector(folder)
        self._scales: list[float] = []
        self._bucket_counts: list[int] = []
        self._last: tuple[SparseWeights, PackedWeights] | None = None

    def add(self, chunk: Chunk) -> None:
        packed = self._pack(chunk.weights)
        self._above.add(chunk.above.astype(np.int32, copy=False))
        self._leads.add(chunk.leads.astype(np.int32, copy=False))
        self._bias.add(packed.bias)
        self._table.add(packed.table)
        self._entries.add(packed.entries)
        self._scales.append(packed.scale)
        self._bucket_counts.append(packed.n_buckets)

    def _pack(self, weights: TrainedNode) -> PackedWeights:
        if isinstance(weights, PackedWeights):
            return weights
        if self._last is None or weights is not self._last[0]:  # nodes with a single child share one object
            self._last = weights, pack_weights(weights)
        return self._last[1]

    def to_tree(self) -> LinearTree:
        """Concatenate the chunks. The collected pieces are released, so that they are not held twice."""
        self._last = None
        return LinearTree(
            slots=to_offsets(self._leads.lengths),
            above=self._above.to_array(),
            leads=self._leads.to_array(),
            bias=self._bias.to_array(),
            scale=np.array(self._scales, np.float32),
            homes=np.array(self._bucket_counts, np.int64),
            places=to_offsets(self._table.lengths),
            table=self._table.to_array(),
            firsts=to_offsets(self._entries.lengths),
            entries=self._entries.to_array(),
        )


def pack_tree(chunks: Iterable[Chunk]) -> LinearTree:
    packer = ChunkPacker()
    for chunk in chunks:
        packer.add(chunk)
    return packer.to_tree()


def to_offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the start of each of several concatenated pieces, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


class TreeBuilder:
    """Trained label tree under construction; nodes are added in any order.

    Nodes are numbered from the root, level by level. A chunk is packed, and the weights of its nodes are released, as
    soon as its nodes and all chunks before it are complete: if nodes arrive chunk by chunk, only those of one chunk
    wait in memory. Nodes with one child are not trained and not added; `single_child` is used for each of them.
    """

    def __init__(self, tree: LabelTree, single_child: SparseWeights, folder: Path | None = None) -> None:
        for level in tree.levels[:-1]:
            assert np.array_equal(level.indices, np.arange(level.shape[1])), "children must be numbered in order"
        self._levels, self._single_child = tree.levels, single_child
        self._groups = [*group_levels(tree), (len(tree.levels) - 1, len(tree.levels))]
        self._first_nodes = [0, *accumulate(level.shape[0] for level in tree.levels)]
        self._first_chunks = [0, *accumulate(tree.levels[top].shape[0] for top, _ in self._groups)]
        self._leaf_starts = tree.levels[-1].indptr.tolist()
        self._leaf_above = np.full(tree.levels[-1].shape[1], SAME_CHUNK, np.int32)
        self._leaf_labels = tree.levels[-1].indices.astype(np.int32, copy=False)
        self._chunk_of_node = number_chunks(tree)
        is_trained = np.concatenate([np.diff(level.indptr) > 1 for level in tree.levels])
        self._n_missing = np.bincount(self._chunk_of_node[is_trained], minlength=self._first_chunks[-1])
        self._nodes: dict[int, TrainedNode] = {}
        self._packer, self._next_chunk = ChunkPacker(folder), 0
        self._pack_complete_chunks()

    @property
    def is_complete(self) -> bool:
        return self._next_chunk == self._first_chunks[-1]

    @property
    def n_waiting(self) -> int:
        """Number of nodes that wait for other nodes of their chunk or of a chunk before it."""
        return len(self._nodes)

    def add_node(self, node: int, weights: TrainedNode) -> None:
        self._nodes[node] = weights
        self._n_missing[self._chunk_of_node[node]] -= 1
        self._pack_complete_chunks()

    def to_tree(self) -> LinearTree:
        assert self.is_complete, "every node must be added before the tree is built"
        return self._packer.to_tree()

    def _pack_complete_chunks(self) -> None:
        while not self.is_complete and self._n_missing[self._next_chunk] == 0:
            group = bisect_right(self._first_chunks, self._next_chunk) - 1
            number = self._next_chunk - self._first_chunks[group]
            is_leaf = group == len(self._groups) - 1
            self._packer.add(self._take_leaf(number) if is_leaf else self._take_inner_chunk(group, number))
            self._next_chunk += 1

    def _take_leaf(self, leaf: int) -> Chunk:
        labels = slice(self._leaf_starts[leaf], self._leaf_starts[leaf + 1])
        weights = self._take_node(self._first_nodes[-2] + leaf)
        return Chunk(weights, self._leaf_above[labels], self._leaf_labels[labels])

    def _take_inner_chunk(self, group: int, number: int) -> Chunk:
        """Join a node of the group's top level and all nodes under it in the group."""
        top, bottom = self._groups[group]
        parts, above, begin, end = [], [], number, number + 1
        slots = np.array([SAME_CHUNK])  # slots that lead to the nodes begin:end
        for depth in range(top, bottom):
            level = self._levels[depth]
            parts += [self._take_node(self._first_nodes[depth] + node) for node in range(begin, end)]
            above.append(np.repeat(slots, np.diff(level.indptr[begin : end + 1])))
            begin, end = level.indptr[begin], level.indptr[end]
            slots = sum(map(len, above[:-1])) + np.arange(end - begin)
        leads = np.full(sum(map(len, above)), SAME_CHUNK)
        leads[slots] = -1 - self._first_chunks[group + 1] - np.arange(begin, end)
        sparse_parts = [part for part in parts if isinstance(part, SparseWeights)]  # inner nodes are never packed
        return Chunk(concatenate_slots(sparse_parts), np.concatenate(above), leads)

    def _take_node(self, node: int) -> TrainedNode:
        return self._nodes.pop(node, self._single_child)


def assemble_tree(
    tree: LabelTree, nodes: Mapping[int, TrainedNode], single_child: SparseWeights, folder: Path | None = None
) -> LinearTree:
    """Build a tree from all its trained nodes, by number; see `TreeBuilder`."""
    builder = TreeBuilder(tree, single_child, folder)
    for node, weights in nodes.items():
        builder.add_node(node, weights)
    return builder.to_tree()


def number_chunks(tree: LabelTree) -> np.ndarray:
    """Return the chunk number of each node."""
    chunk_of_node, n_chunks = [], 0
    for top, bottom in [*group_levels(tree), (len(tree.levels) - 1, len(tree.levels))]:
        numbers = n_chunks + np.arange(tree.levels[top].shape[0])
        n_chunks += len(numbers)
        for level in tree.levels[top:bottom]:
            chunk_of_node.append(numbers)
            numbers = np.repeat(numbers, np.diff(level.indptr))
    return np.concatenate(chunk_of_node)


def group_levels(tree: LabelTree) -> list[tuple[int, int]]:
    """Group the levels above the leaves, from below, as ranges (top, bottom) with up to MAX_GROUPED_SLOTS slots per
    chunk."""
    groups, bottom = [], len(tree.levels) - 1
    while bottom > 0:
        top = bottom - 1
        sizes = np.diff(tree.levels[top].indptr)
        while top > 0:
            starts = tree.levels[top - 1].indptr
            larger = np.diff(starts) + np.add.reduceat(sizes, starts[:-1])
            if larger.max() > MAX_GROUPED_SLOTS:
                break
            top, sizes = top - 1, larger
        groups.append((top, bottom))
        bottom = top
    return groups[::-1]

"""From trained nodes to the form that is searched: levels of few children made one chunk, weights in hash tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel
from xmtc.labels.tree import LabelTree
from xmtc.linear.node_data import make_identity_rows
from xmtc.linear.search import hash_feature
from xmtc.linear.solver import LinearWeights
from xmtc.linear.tree import EMPTY_FEATURE_CODE, SAME_CHUNK, LinearTree
from xmtc.storage.disk_arrays import ArrayCollector

QUANTISATION_LEVELS = 32767  # weights are kept as whole multiples of their chunk's largest divided by this
MAX_CHUNK_SLOTS = 32768  # slots of a chunk, so that 16 bits number them
MAX_DENSE_ROW_RATIO = (
    5  # a row of all weights may be this many times as long as what it holds: adding it up takes no decisions
)
MAX_GROUPED_SLOTS = 128  # slots of levels that are scored together, at most


@dataclass(frozen=True)
class SparseWeights:
    """The weights of some slots, feature by feature, without those that were dropped."""

    bias: np.ndarray  # (n_slots,)
    features: np.ndarray  # ascending
    ends: np.ndarray  # (len(features),), where each feature's weights end; int32 where that is wide enough
    slots: np.ndarray  # (n_weights,) int16
    weights: np.ndarray  # (n_weights,) float32


def prune_weights(weights: LinearWeights, min_weight: float) -> SparseWeights:
    """The weights of at least min_weight. There is room for all of them, of which only what is written takes memory."""
    n_features, size = len(weights.features), len(weights.features) * weights.n_labels
    features, ends = np.empty(n_features, np.int32), np.empty(n_features, np.int64)
    slots, kept = np.empty(size, np.int16), np.empty(size, np.float32)

    rows, found = weights.rows or make_identity_rows(n_features), (features, ends, slots, kept)
    n_used = write_pruned_weights(weights.features, weights.W, *rows, weights.n_labels, np.float32(min_weight), *found)
    n = ends[n_used - 1] if n_used else 0
    bias = weights.W[-1, : weights.n_labels].copy()
    ends = ends[:n_used].astype(np.int32 if n <= np.iinfo(np.int32).max else np.int64)
    return SparseWeights(bias, features[:n_used].copy(), ends, slots[:n].copy(), kept[:n].copy())


def make_constant_weights(n: int, margin: float) -> SparseWeights:
    """Slots that decide without looking at the document."""
    nothing = np.zeros(0, np.int32)
    return SparseWeights(
        np.full(n, margin, np.float32), nothing, nothing, nothing.astype(np.int16), nothing.astype(np.float32)
    )


@kernel
def write_pruned_weights(features, W, places, factors, n_slots, min_weight, used, ends, slots, kept):
    """`pruned`, written into its last four arguments; returns how many features have a weight left."""
    n, n_used = np.int64(0), np.int64(0)
    for feature in range(len(features)):
        begin, row, factor = n, W[places[feature]], factors[feature]
        for slot in range(n_slots):
            weight = factor * row[slot]
            if abs(weight) >= min_weight:
                slots[n], kept[n] = slot, weight
                n += 1
        if n > begin:
            used[n_used], ends[n_used] = features[feature], n
            n_used += 1
    return n_used


def concatenate_slots(parts: list[SparseWeights]) -> SparseWeights:
    """The slots of all parts in one, numbered on."""
    if len(parts) == 1:
        return parts[0]
    first = np.cumsum([0] + [len(part.bias) for part in parts])
    features, weights, bias = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("features", "weights", "bias")
    )
    slots = np.concatenate([part.slots + np.int16(number) for part, number in zip(parts, first[:-1], strict=True)])
    lengths = np.concatenate([np.diff(part.ends, prepend=0) for part in parts])
    ends = np.zeros(int(features.max(initial=-1)) + 2, np.int64)
    merged_slots, merged_weights = np.empty_like(slots), np.empty_like(weights)
    merge_feature_rows(features, lengths, slots, weights, ends, merged_slots, merged_weights)
    used = np.flatnonzero(np.bincount(features))
    return SparseWeights(bias, used.astype(np.int32), ends[used], merged_slots, merged_weights)


@kernel
def merge_feature_rows(features, lengths, slots, weights, ends, merged_slots, merged_weights):
    """Rows of the same feature, which come from several parts, one after the other. `ends` begins as zeros: it takes
    where each feature's weights begin, and then, row by row, where they end."""
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
    """From single weights in any order."""
    W = csr_array((weights, (features, slots)), shape=(int(features.max(initial=-1)) + 1, len(bias)))
    used = np.flatnonzero(np.diff(W.indptr))
    return SparseWeights(bias, used.astype(np.int32), W.indptr[used + 1], W.indices.astype(np.int16), W.data)


@dataclass(frozen=True)
class PackedWeights:
    """The weights of a chunk as Tree holds them."""

    bias: np.ndarray
    scale: float
    n_buckets: int
    table: np.ndarray
    entries: np.ndarray  # in the order of the table


def pack_weights(rows: SparseWeights) -> PackedWeights:
    n_slots, n_rows = len(rows.bias), len(rows.features)
    steps, n_homes = np.empty(len(rows.weights), np.int16), choose_bucket_count(n_rows)
    scale, ends = quantise_weights(rows.weights, steps), rows.ends.astype(np.int64, copy=False)
    by_home, after = np.empty(n_rows, np.int64), np.zeros(n_homes + 1, np.int64)
    n_entries = sort_by_bucket(rows.features, ends, n_slots, n_homes, after, by_home)

    table, entries = np.empty((n_homes + n_rows + 1, 2), np.uint32), np.zeros(n_entries, np.int16)
    size = fill_table(rows.features, ends, rows.slots, steps, n_slots, n_homes, by_home, table, entries)
    return PackedWeights(rows.bias, scale, n_homes, table[:size].copy(), entries)


def choose_bucket_count(n_rows: Any) -> Any:
    """So many that the table is two thirds full; of one chunk, or an array of them."""
    return n_rows * 3 // 2 + 1


@kernel
def quantise_weights(weights, steps):
    """Write the weights as whole multiples of a scale, which is returned."""
    largest = np.float32(1e-30)
    for i in range(len(weights)):
        largest = max(largest, abs(weights[i]))
    scale = np.float64(largest) / QUANTISATION_LEVELS
    for i in range(len(weights)):
        steps[i] = np.int16(np.rint(weights[i] / np.float32(scale)))
    return scale


@kernel
def compute_row_length(ends, row, n_slots):
    """Of all weights, or of pairs (slot, weight) where few slots have one."""
    n_weights = ends[row] - (ends[row - 1] if row else 0)
    return n_slots if MAX_DENSE_ROW_RATIO * n_weights >= n_slots else 2 * n_weights


@kernel
def sort_by_bucket(features, ends, n_slots, n_homes, after, by_home):
    """Write the rows in the order of their features' homes; return how many entries they have. `after` begins as zeros:
    it takes where each home's rows begin, and then, row by row, where they end."""
    n_entries = np.int64(0)
    for row in range(len(features)):
        after[hash_feature(np.uint32(features[row]), n_homes) + 1] += 1
        n_entries += compute_row_length(ends, row, n_slots)
    for at in range(n_homes):
        after[at + 1] += after[at]
    for row in range(len(features)):
        at = hash_feature(np.uint32(features[row]), n_homes)
        by_home[after[at]] = row
        after[at] += 1
    return n_entries


@kernel
def fill_table(features, ends, slots, steps, n_slots, n_homes, by_home, table, entries):
    """Write the table, row by row, each at its home or at the first free cell after it; return its length."""
    cell, size = np.int64(0), np.int64(0)
    for row in by_home:
        at = hash_feature(np.uint32(features[row]), n_homes)
        while cell < at:
            table[cell, 0], table[cell, 1] = EMPTY_FEATURE_CODE, size
            cell += 1
        table[cell, 0], table[cell, 1] = features[row], size
        cell += 1

        length, begin = compute_row_length(ends, row, n_slots), ends[row - 1] if row else 0
        for i in range(begin, ends[row]):
            if length == n_slots:
                entries[size + slots[i]] = steps[i]
            else:
                pair = size + 2 * (i - begin)
                entries[pair], entries[pair + 1] = slots[i], steps[i]
        size += length
    last = max(cell, n_homes)
    for empty in range(cell, last + 1):
        table[empty, 0], table[empty, 1] = EMPTY_FEATURE_CODE, size
    return last + 1


@dataclass(frozen=True)
class Chunk:
    """Some slots' weights, and where they hang and lead, as in Tree."""

    weights: SparseWeights | PackedWeights
    above: np.ndarray
    leads: np.ndarray


def pack_tree(chunks: Iterable[Chunk], folder: Path | None = None) -> LinearTree:
    """Chunks may be made as they are asked for: of each, only what is packed is held, and that not twice; with a
    folder, in files there."""
    small = {name: ArrayCollector(None) for name in ("above", "leads", "bias")}
    table, entries, scales, homes = ArrayCollector(folder), ArrayCollector(folder), [], []
    last: tuple[SparseWeights, PackedWeights] | None = None
    for chunk in chunks:
        part = chunk.weights
        if isinstance(part, SparseWeights):
            if last is None or part is not last[0]:  # nodes of one child are all the same
                last = part, pack_weights(part)
            part = last[1]
        small["above"].add(chunk.above.astype(np.int32, copy=False))
        small["leads"].add(chunk.leads.astype(np.int32, copy=False))
        small["bias"].add(part.bias)
        table.add(part.table)
        entries.add(part.entries)
        scales.append(part.scale)
        homes.append(part.n_buckets)
    del chunk, last, part
    return LinearTree(
        slots=to_offsets(small["leads"].lengths),
        **{name: found.to_array() for name, found in small.items()},
        scale=np.array(scales, np.float32),
        homes=np.array(homes, np.int64),
        places=to_offsets(table.lengths),
        table=table.to_array(),
        firsts=to_offsets(entries.lengths),
        entries=entries.to_array(),
    )


def to_offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where each of several things that lie end to end begins, and the last ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


NodeGetter = Callable[
    [int], SparseWeights | PackedWeights
]  # a node by its number, counted from the root on, level by level; once only


def assemble_tree(tree: LabelTree, take: NodeGetter, folder: Path | None = None) -> LinearTree:
    """The nodes of a tree as chunks: each leaf for itself, which may have been packed already; above them, as many
    levels together as have few enough slots. Nodes are taken chunk by chunk, and let go as they are packed."""
    for level in tree.levels[:-1]:
        assert np.array_equal(level.indices, np.arange(level.shape[1])), "children must be numbered in order"
    return pack_tree(generate_chunks(tree, take), folder)


def generate_chunks(tree: LabelTree, take: NodeGetter) -> Iterator[Chunk]:
    """What `tree_of` takes, in the order of `chunk_numbers`."""
    first, firsts = 0, number_first_nodes(tree)
    for top, bottom in group_levels(tree):
        first += tree.levels[top].shape[0]
        for node in range(tree.levels[top].shape[0]):
            yield make_inner_chunk(node, tree.levels[top:bottom], firsts[top:bottom], take, first)
    leaves = tree.levels[-1]
    labels, above = leaves.indices.astype(np.int32, copy=False), np.full(leaves.shape[1], SAME_CHUNK, np.int32)
    for node, (begin, end) in enumerate(pairwise(leaves.indptr.tolist()), firsts[-1]):
        yield Chunk(take(node), above[begin:end], labels[begin:end])


def number_first_nodes(tree: LabelTree) -> list[int]:
    """The number of each level's first node."""
    return [0, *accumulate(level.shape[0] for level in tree.levels[:-1])]


def number_chunks(tree: LabelTree) -> np.ndarray:
    """The chunk of each node."""
    found, n_chunks = [], 0
    for top, bottom in [*group_levels(tree), (len(tree.levels) - 1, len(tree.levels))]:
        numbers = n_chunks + np.arange(tree.levels[top].shape[0])
        n_chunks += len(numbers)
        for level in tree.levels[top:bottom]:
            found.append(numbers)
            numbers = np.repeat(numbers, np.diff(level.indptr))
    return np.concatenate(found)


def group_levels(tree: LabelTree) -> list[tuple[int, int]]:
    """The levels above the leaves in groups top:bottom, from below, each as tall as TOGETHER allows."""
    found, bottom = [], len(tree.levels) - 1
    while bottom > 0:
        top = bottom - 1
        sizes = np.diff(tree.levels[top].indptr)
        while top > 0:
            above = tree.levels[top - 1].indptr
            taller = np.diff(above) + np.add.reduceat(sizes, above[:-1])
            if taller.max() > MAX_GROUPED_SLOTS:
                break
            top, sizes = top - 1, taller
        found.append((top, bottom))
        bottom = top
    return found[::-1]


def make_inner_chunk(
    node: int, levels: Sequence[csr_array], firsts: Sequence[int], take: NodeGetter, next_band: int
) -> Chunk:
    """What lies under a node of the first of these levels, whose nodes are numbered from `firsts` on, in one chunk. The
    last level's slots lead to the chunks numbered from next_band on."""
    parts, above, begin, end = [], [], node, node + 1
    numbers = np.array([SAME_CHUNK])  # of the slots that lead to begin:end
    for level, first in zip(levels, firsts, strict=True):
        parts += [take(first + child) for child in range(begin, end)]
        above.append(np.repeat(numbers, np.diff(level.indptr[begin : end + 1])))
        begin, end = level.indptr[begin], level.indptr[end]
        numbers = sum(map(len, above[:-1])) + np.arange(end - begin)
    leads = np.full(sum(map(len, above)), SAME_CHUNK)
    leads[numbers] = -1 - next_band - np.arange(begin, end)
    return Chunk(
        concatenate_slots([part for part in parts if isinstance(part, SparseWeights)]), np.concatenate(above), leads
    )

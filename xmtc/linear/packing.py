"""From trained nodes to the form that is searched: levels of few children made one chunk, weights in hash tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.compiled import kernel
from xmtc.labels.tree import LabelTree
from xmtc.linear.search import home
from xmtc.linear.solver import Weights
from xmtc.linear.tree import EMPTY, HERE, Tree

FINEST = 32767  # weights are kept as whole multiples of their chunk's largest divided by this
WIDEST = 32768  # slots of a chunk, so that 16 bits number them
FULL = 5  # a row of all weights may be this many times as long as what it holds: adding it up takes no decisions
TOGETHER = 128  # slots of levels that are scored together, at most


@dataclass(frozen=True)
class Rows:
    """The weights of some slots, feature by feature, without those that were dropped."""

    bias: np.ndarray  # (n_slots,)
    features: np.ndarray  # ascending
    ends: np.ndarray  # (len(features),), where each feature's weights end
    slots: np.ndarray  # (n_weights,) int16
    weights: np.ndarray  # (n_weights,) float32


def pruned(weights: Weights, min_weight: float) -> Rows:
    return Rows(weights.W[-1].copy(), *prune(weights.features, weights.W, np.float32(min_weight)))


def constant(n: int, margin: float) -> Rows:
    """Slots that decide without looking at the document."""
    nothing = np.zeros(0, np.int32)
    return Rows(np.full(n, margin, np.float32), nothing, nothing, nothing.astype(np.int16), nothing.astype(np.float32))


@kernel
def prune(features, W, min_weight):
    """The weights of at least min_weight: their features, where each one's end, their slots, and they themselves."""
    n_rows, n_slots = len(features), W.shape[1]
    counts = np.zeros(n_rows, np.int64)
    for row in range(n_rows):
        for slot in range(n_slots):
            counts[row] += abs(W[row, slot]) >= min_weight
    used = np.flatnonzero(counts)
    ends = np.cumsum(counts[used])
    n = ends[-1] if len(ends) else 0
    slots, weights, n = np.empty(n, np.int16), np.empty(n, np.float32), 0
    for row in used:
        for slot in range(n_slots):
            if abs(W[row, slot]) >= min_weight:
                slots[n], weights[n] = slot, W[row, slot]
                n += 1
    return features[used], ends, slots, weights


def side_by_side(parts: list[Rows]) -> Rows:
    """The slots of all parts in one, numbered on."""
    if len(parts) == 1:
        return parts[0]
    first = np.cumsum([0] + [len(part.bias) for part in parts])
    features = np.concatenate([np.repeat(part.features, np.diff(part.ends, prepend=0)) for part in parts])
    slots = np.concatenate([part.slots + number for part, number in zip(parts, first[:-1], strict=True)])
    weights = np.concatenate([part.weights for part in parts])
    W = csr_array((weights, (features, slots)), shape=(int(features.max(initial=-1)) + 1, int(first[-1])))
    used = np.flatnonzero(np.diff(W.indptr))
    bias = np.concatenate([part.bias for part in parts])
    return Rows(bias, used.astype(np.int32), W.indptr[used + 1], W.indices.astype(np.int16), W.data)


@kernel
def pack(features, ends, slots, steps, n):
    """The hash table of one chunk with n slots, its number of homes, and its rows of entries in the table's order."""
    n_homes, n_rows, size = len(features) * 3 // 2 + 1, len(features), 0
    after = np.zeros(n_homes + 1, np.int64)
    for row in range(n_rows):
        after[home(np.uint32(features[row]), n_homes) + 1] += 1
        size += row_length(ends, row, n)
    after = np.cumsum(after)
    order = np.empty(n_rows, np.int64)  # of the rows, by their homes
    for row in range(n_rows):
        at = home(np.uint32(features[row]), n_homes)
        order[after[at]] = row
        after[at] += 1
    table, entries = np.empty((n_homes + n_rows + 1, 2), np.uint32), np.zeros(size, np.int16)
    place, size = 0, 0
    for row in order:
        at = home(np.uint32(features[row]), n_homes)
        while place < at:
            table[place, 0], table[place, 1] = EMPTY, size
            place += 1
        table[place, 0], table[place, 1] = features[row], size
        place += 1
        length = row_length(ends, row, n)
        begin = ends[row - 1] if row else 0
        for i in range(begin, ends[row]):
            if length == n:
                entries[size + slots[i]] = steps[i]
            else:
                entries[size + 2 * (i - begin)], entries[size + 2 * (i - begin) + 1] = slots[i], steps[i]
        size += length
    last = max(place, n_homes)
    for empty in range(place, last + 1):
        table[empty, 0], table[empty, 1] = EMPTY, size
    return table[: last + 1].copy(), n_homes, entries


@kernel
def row_length(ends, row, n):
    """Of all n weights, or of pairs (slot, weight) where few slots have one."""
    n_weights = ends[row] - (ends[row - 1] if row else 0)
    return n if FULL * n_weights >= n else 2 * n_weights


@dataclass(frozen=True)
class Chunk:
    """Some slots' weights, and where they hang and lead, as in Tree."""

    rows: Rows
    above: np.ndarray
    leads: np.ndarray


def tree_of(chunks: list[Chunk]) -> Tree:
    packed, scales = [], []
    for chunk in chunks:
        rows, n = chunk.rows, len(chunk.rows.bias)
        scales.append(max(float(np.abs(rows.weights).max(initial=0)), 1e-30) / FINEST)
        steps = np.round(rows.weights / np.float32(scales[-1])).astype(np.int16)
        packed.append(pack(rows.features, rows.ends, rows.slots, steps, n))
    tables, homes, entries = zip(*packed, strict=True)
    return Tree(
        slots=offsets([len(chunk.rows.bias) for chunk in chunks]),
        above=np.concatenate([chunk.above for chunk in chunks]).astype(np.int32),
        leads=np.concatenate([chunk.leads for chunk in chunks]).astype(np.int32),
        bias=np.concatenate([chunk.rows.bias for chunk in chunks]),
        scale=np.array(scales, np.float32),
        homes=np.array(homes, np.int64),
        places=offsets([len(table) for table in tables]),
        table=np.concatenate(tables),
        firsts=offsets([len(part) for part in entries]),
        entries=np.concatenate(entries),
    )


def offsets(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def assemble(tree: LabelTree, nodes: list[Rows]) -> Tree:
    """The nodes of a tree, in the order of levels, as chunks: each leaf for itself; above them, as many levels together
    as have few enough slots."""
    for level in tree.levels[:-1]:
        assert np.array_equal(level.indices, np.arange(level.shape[1])), "children must be numbered in order"
    by_level = np.split(np.array(nodes, object), np.cumsum([level.shape[0] for level in tree.levels])[:-1])
    chunks: list[Chunk] = []
    for top, bottom in bands(tree):
        next_band = len(chunks) + tree.levels[top].shape[0]
        chunks += [
            under(node, tree.levels[top:bottom], by_level[top:bottom], next_band)
            for node in range(tree.levels[top].shape[0])
        ]
    leaves = tree.levels[-1]
    for node, rows in enumerate(by_level[-1]):
        labels = leaves.indices[leaves.indptr[node] : leaves.indptr[node + 1]]
        chunks.append(Chunk(rows, np.full(len(labels), HERE), labels))
    return tree_of(chunks)


def bands(tree: LabelTree) -> list[tuple[int, int]]:
    """The levels above the leaves in groups top:bottom, from below, each as tall as TOGETHER allows."""
    found, bottom = [], len(tree.levels) - 1
    while bottom > 0:
        top = bottom - 1
        sizes = np.diff(tree.levels[top].indptr)
        while top > 0:
            above = tree.levels[top - 1].indptr
            taller = np.diff(above) + np.add.reduceat(sizes, above[:-1])
            if taller.max() > TOGETHER:
                break
            top, sizes = top - 1, taller
        found.append((top, bottom))
        bottom = top
    return found[::-1]


def under(node: int, levels: Sequence[csr_array], nodes: Sequence[np.ndarray], next_band: int) -> Chunk:
    """What lies under a node of the first of these levels, in one chunk. The last level's slots lead to the chunks
    numbered from next_band on."""
    parts, above, begin, end = [], [], node, node + 1
    numbers = np.array([HERE])  # of the slots that lead to begin:end
    for level, rows in zip(levels, nodes, strict=True):
        parts += list(rows[begin:end])
        above.append(np.repeat(numbers, np.diff(level.indptr[begin : end + 1])))
        begin, end = level.indptr[begin], level.indptr[end]
        numbers = sum(map(len, above[:-1])) + np.arange(end - begin)
    leads = np.full(sum(map(len, above)), HERE)
    leads[numbers] = -1 - next_band - np.arange(begin, end)
    return Chunk(side_by_side(parts), np.concatenate(above), leads)

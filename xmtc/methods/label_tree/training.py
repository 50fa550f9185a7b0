"""Training of label trees: one set of linear classifiers per node, each on the documents that reach the node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.compiled import kernel
from xmtc.data.dataset import Dataset
from xmtc.labels.tree import LabelTree
from xmtc.linear.solver import Solver, Weights, shuffled
from xmtc.methods.label_tree.model import Tree
from xmtc.run import Run

FINEST = 32767  # weights are kept as whole multiples of their node's largest divided by this


@dataclass(frozen=True)
class Chunk:
    """One node's pruned weights: sorted feature rows of (child, weight) entries."""

    bias: np.ndarray
    features: np.ndarray
    ends: np.ndarray  # (len(features),) uint32, where each feature's entries end
    entry_child: np.ndarray
    entry_weight: np.ndarray  # int16
    scale: float


@dataclass(frozen=True)
class Node:
    """What a node learns from: its documents (rows) and which children each belongs to."""

    rows: np.ndarray
    positives: csr_array  # (len(rows), n_children)


def train_trees(data: Dataset, trees: list[LabelTree], solver: Solver, min_weight: float, run: Run) -> tuple[Tree, ...]:
    """Train every node of every tree; weights smaller than min_weight are dropped."""
    data = data.rows(shuffled(data.n_docs, solver.seed))  # once for all: a node's documents are then in random order
    memberships = [[csc_array(level) for level in tree.memberships(data.Y)] for tree in trees]
    total = sum(level.nnz for levels in memberships for level in levels)
    nodes = (node for tree, levels in zip(trees, memberships, strict=True) for node in nodes_of(tree, levels))

    def train(node: Node) -> Chunk:
        return pruned(solver.fit(data.X, node.rows, node.positives), min_weight)

    chunks = run.map(train, nodes, "training", size=lambda node: node.positives.nnz, total=total)
    n_nodes = [sum(level.shape[0] for level in tree.levels) for tree in trees]
    return tuple(assemble(tree, [next(chunks) for _ in range(n)]) for tree, n in zip(trees, n_nodes, strict=True))


def nodes_of(tree: LabelTree, memberships: list[csc_array]) -> Iterator[Node]:
    """The nodes of a tree in the order of their numbers."""
    for level, documents in zip(tree.levels, memberships, strict=True):
        for number in range(level.shape[0]):
            children = level.indices[level.indptr[number] : level.indptr[number + 1]]
            found = [documents.indices[documents.indptr[c] : documents.indptr[c + 1]] for c in children]
            rows, positions = np.unique(np.concatenate(found), return_inverse=True)
            columns = np.repeat(np.arange(len(children)), [len(f) for f in found])
            ones = np.ones(len(columns), np.float32)
            yield Node(rows, csr_array((ones, (positions, columns)), shape=(len(rows), len(children))))


def pruned(weights: Weights, min_weight: float) -> Chunk:
    features, ends, children, kept, largest = prune(weights.features, weights.W, np.float32(min_weight))
    scale = max(largest, 1e-30) / FINEST
    narrow = np.uint8 if weights.W.shape[1] <= 256 else np.uint32
    steps = np.round(kept / scale).astype(np.int16)
    return Chunk(weights.W[-1].copy(), features, ends, children.astype(narrow), steps, scale)


@kernel
def prune(features, W, min_weight):
    """The weights of at least min_weight: their features, where each feature's end, their labels, and they themselves;
    and the largest of them."""
    n_rows, n_labels = len(features), W.shape[1]
    counts = np.zeros(n_rows, np.int64)
    for row in range(n_rows):
        for j in range(n_labels):
            counts[row] += abs(W[row, j]) >= min_weight
    used = np.flatnonzero(counts)
    ends = np.cumsum(counts[used])
    n = ends[-1] if len(ends) else 0
    children, kept, largest = np.empty(n, np.uint32), np.empty(n, np.float32), np.float32(0)
    n = 0
    for row in used:
        for j in range(n_labels):
            if abs(W[row, j]) >= min_weight:
                children[n], kept[n] = j, W[row, j]
                largest = max(largest, abs(W[row, j]))
                n += 1
    return features[used], ends.astype(np.uint32), children, kept, largest


def assemble(tree: LabelTree, chunks: list[Chunk]) -> Tree:
    """A tree's chunks in one piece."""
    for level in tree.levels[:-1]:
        assert np.array_equal(level.indices, np.arange(level.shape[1])), "children must be numbered in order"
    widest = max(len(chunk.bias) for chunk in chunks)
    return Tree(
        children=offsets([len(chunk.bias) for chunk in chunks]),
        labels=tree.levels[-1].indices.astype(np.int32),
        bias=np.concatenate([chunk.bias for chunk in chunks]),
        scale=np.array([chunk.scale for chunk in chunks], np.float32),
        rows=offsets([len(chunk.features) for chunk in chunks]),
        features=np.concatenate([chunk.features for chunk in chunks]),
        firsts=offsets([len(chunk.entry_weight) for chunk in chunks]),
        starts=np.concatenate([part for chunk in chunks for part in (np.zeros(1, np.uint32), chunk.ends)]),
        entry_child=np.concatenate(
            [chunk.entry_child for chunk in chunks], dtype=np.uint8 if widest <= 256 else np.uint32
        ),
        entry_weight=np.concatenate([chunk.entry_weight for chunk in chunks]),
    )


def offsets(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

"""Training of label trees: one set of linear classifiers per node, each on the documents that reach the node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.data.dataset import Dataset
from xmtc.labels.tree import LabelTree
from xmtc.linear.solver import SquaredHinge, Weights
from xmtc.methods.label_tree.model import Tree
from xmtc.run import Run


@dataclass(frozen=True)
class Chunk:
    """One node's pruned weights: sorted feature rows of (child, weight) entries."""

    bias: np.ndarray
    features: np.ndarray
    entries: np.ndarray  # (len(features),) entries per feature
    entry_child: np.ndarray
    entry_weight: np.ndarray


@dataclass(frozen=True)
class Node:
    """What a node learns from: its documents (rows) and which child each belongs to."""

    rows: np.ndarray
    positives: csr_array  # (len(rows), n_children)


def train_trees(
    data: Dataset, trees: list[LabelTree], solver: SquaredHinge, min_weight: float, run: Run
) -> tuple[Tree, ...]:
    """Train every node of every tree; weights smaller than min_weight are dropped."""
    assert data.Y is not None
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
    W = weights.W[:-1]
    rows, children = np.nonzero(np.abs(W) >= min_weight)
    used, counts = np.unique(rows, return_counts=True)
    return Chunk(weights.W[-1], weights.features[used], counts, children.astype(np.uint16), W[rows, children])


def assemble(tree: LabelTree, chunks: list[Chunk]) -> Tree:
    """A tree's chunks in one piece."""
    for level in tree.levels[:-1]:
        assert np.array_equal(level.indices, np.arange(level.shape[1])), "children must be numbered in order"
    return Tree(
        children=offsets([len(chunk.bias) for chunk in chunks]),
        labels=tree.levels[-1].indices.astype(np.int32),
        bias=np.concatenate([chunk.bias for chunk in chunks]),
        rows=offsets([len(chunk.features) for chunk in chunks]),
        features=np.concatenate([chunk.features for chunk in chunks]),
        entries=offsets(np.concatenate([chunk.entries for chunk in chunks])),
        entry_child=np.concatenate([chunk.entry_child for chunk in chunks]),
        entry_weight=np.concatenate([chunk.entry_weight for chunk in chunks]),
    )


def offsets(lengths: list[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

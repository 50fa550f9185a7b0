"""Training of label trees: one set of linear classifiers per node, each on the documents that reach the node.

Which documents reach a node is the teacher's word, those with a label under it; with matched negatives (PECOS's
XR-Linear) also those that the levels above, already trained, let through by mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.base.dataset import Dataset
from xmtc.base.run import Run
from xmtc.labels.tree import LabelTree, as_ones
from xmtc.linear.model import TreeModel
from xmtc.linear.packing import Rows, assemble, constant, pruned
from xmtc.linear.solver import Solver, shuffled
from xmtc.linear.tree import Tree

CERTAIN = {"squared_hinge": 1.0, "logistic": 30.0}  # margins of probability 1
LET_THROUGH = 10  # nodes a level lets through to the next where the beam does not say


@dataclass(frozen=True)
class Node:
    """What a node learns from: its documents (rows) and which children each belongs to."""

    rows: np.ndarray
    positives: csr_array  # (len(rows), n_children)


@dataclass(frozen=True)
class TreeTrainer:
    """What all nodes share: the solver, the smallest weight kept, the beam, and whether negatives are matched."""

    solver: Solver
    min_weight: float
    beam: int
    match: bool = False

    def train(self, data: Dataset, trees: list[LabelTree], run: Run) -> TreeModel:
        """Train every node of every tree. Documents are shuffled once for all, so that a node's are in random order."""
        if run.checkpoint.folder:
            shapes = [tree.levels[-1].indices.sum() for tree in trees]
            run.checkpoint.claim(f"{self} {[len(tree.levels) for tree in trees]} {shapes} {data.fingerprint()}")
        data = data.rows(shuffled(data.n_docs, self.solver.seed))
        grown = self._matched(data, trees, run) if self.match else self._taught(data, trees, run)
        return self._model(data, data.n_labels, grown)

    def _model(self, data: Dataset, n_labels: int, trees: tuple[Tree, ...]) -> TreeModel:
        return TreeModel(n_labels=n_labels, views=data.sizes, link=self.solver.loss, beam=self.beam, trees=trees)

    def _taught(self, data: Dataset, trees: list[LabelTree], run: Run) -> tuple[Tree, ...]:
        """All nodes of all trees that are not finished yet in one stream, so that no thread ever waits."""
        finished = [run.checkpoint.recall(f"tree-{number}") for number in range(len(trees))]
        waiting = [tree for tree, kept in zip(trees, finished, strict=True) if kept is None]
        memberships = [tree.memberships(data.Y) for tree in waiting]
        total = sum(level.nnz for levels in memberships for level in levels)
        nodes = (
            node
            for tree, levels in zip(waiting, memberships, strict=True)
            for level, members in zip(tree.levels, levels, strict=True)
            for node in nodes_of(level, members)
        )
        rows = self._rows(data, nodes, run, total)

        def trained(number: int) -> Tree:
            if (kept := finished[number]) is not None:
                return Tree(**kept)
            n_nodes = sum(level.shape[0] for level in trees[number].levels)
            tree = assemble(trees[number], list(islice(rows, n_nodes)))
            run.checkpoint.keep(f"tree-{number}", vars(tree))
            return tree

        grown = tuple(trained(number) for number in range(len(trees)))
        next(rows, None)  # there is none left: this ends the stream, and with it the stage
        return grown

    def _matched(self, data: Dataset, trees: list[LabelTree], run: Run) -> tuple[Tree, ...]:
        def trained(number: int) -> Tree:
            kept = run.checkpoint.recall(f"tree-{number}")
            tree = self._matched_tree(data, trees[number], run) if kept is None else Tree(**kept)
            run.checkpoint.keep(f"tree-{number}", vars(tree))
            return tree

        return tuple(trained(number) for number in range(len(trees)))

    def _matched_tree(self, data: Dataset, tree: LabelTree, run: Run) -> Tree:
        """Level by level: what the levels so far let through joins the next level's documents."""
        trained: list[Rows] = []
        reaching = csr_array(np.ones((data.n_docs, 1), np.float32))
        for depth, (level, members) in enumerate(zip(tree.levels, tree.memberships(data.Y), strict=True), 1):
            trained += self._rows(data, nodes_of(level, members, csc_array(reaching)), run, members.nnz)
            if depth < len(tree.levels):
                so_far = assemble(LabelTree(tree.levels[:depth]), trained)
                model = self._model(data, level.shape[1], (so_far,))
                found = model.predict(data, self.beam or LET_THROUGH, run).labels
                reaching = as_ones(members + indicator(found, level.shape[1]))
        return assemble(tree, trained)

    def _rows(self, data: Dataset, nodes: Iterator[Node], run: Run, total: int) -> Iterator[Rows]:
        def train(node: Node) -> Rows:
            if node.positives.shape[1] == 1:  # a part that was not divided any further
                return constant(1, CERTAIN[self.solver.loss])
            return pruned(self.solver.fit(data.X, node.rows, node.positives, data.weights), self.min_weight)

        return run.spread(train, nodes, "training", size=lambda node: node.positives.nnz, total=total)


def indicator(labels: np.ndarray, n_labels: int) -> csr_array:
    """Ones at the labels of each row; NO_LABEL is negative and left out."""
    rows, columns = np.nonzero(labels >= 0)
    ones = np.ones(len(rows), np.float32)
    return csr_array((ones, (rows, labels[rows, columns])), shape=(len(labels), n_labels))


def nodes_of(level: csr_array, members: csr_array, reaching: csc_array | None = None) -> Iterator[Node]:
    """The nodes of a level in the order of their numbers. `members` says which documents belong to which child;
    `reaching`, if given, which documents come to a node beside those."""
    documents = csc_array(members)
    for number in range(level.shape[0]):
        children = level.indices[level.indptr[number] : level.indptr[number + 1]]
        found = [documents.indices[documents.indptr[c] : documents.indptr[c + 1]] for c in children]
        columns = np.repeat(np.arange(len(children)), [len(f) for f in found])
        if reaching is not None:
            found.append(reaching.indices[reaching.indptr[number] : reaching.indptr[number + 1]])
        rows, positions = np.unique(np.concatenate(found), return_inverse=True)
        entries = positions[: len(columns)], columns
        yield Node(rows, csr_array((np.ones(len(columns), np.float32), entries), shape=(len(rows), len(children))))

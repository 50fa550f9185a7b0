"""Training of label trees: one set of linear classifiers per node, each on the documents that reach the node.

Which documents reach a node is the teacher's word, those with a label under it; with matched negatives (PECOS's
XR-Linear) also those that the levels above, already trained, let through by mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.memory import trim_heap
from xmtc.core.run import Run
from xmtc.core.sparse import take_rows
from xmtc.labels.tree import LabelTree, as_ones
from xmtc.linear.blocks import Block, blocks_of, shared_out, taught_blocks, together
from xmtc.linear.model import TreeModel
from xmtc.linear.node_data import Documents, everything, gather
from xmtc.linear.packing import Packed, Rows, assemble, constant, pack, pruned, side_by_side
from xmtc.linear.small_nodes import pack_several, taken_apart, train_several
from xmtc.linear.solver import Solver, shuffled
from xmtc.linear.tree import Tree

CERTAIN = {"squared_hinge": 1.0, "logistic": 30.0}  # margins of probability 1
LET_THROUGH = 10  # nodes a level lets through to the next where the beam does not say
AHEAD = 32  # blocks handed out for each thread, so that none waits for a large one to end


Node = Rows | Packed  # trained; leaves are packed at once


@dataclass(frozen=True)
class TreeTrainer:
    """What all nodes share: the solver, how margins become probabilities, the smallest weight kept, the beam, and
    whether negatives are matched."""

    solver: Solver
    link: str
    min_weight: float
    beam: int
    match: bool = False

    def train(self, data: Dataset, trees: list[LabelTree], run: Run) -> TreeModel:
        """Train every node of every tree. Documents are shuffled once for all, so that a node's are in random order."""
        if run.checkpoint.folder:
            shapes = [tree.levels[-1].indices.sum() for tree in trees]
            run.checkpoint.claim(f"{self} {[len(tree.levels) for tree in trees]} {shapes} {data.fingerprint()}")
        trim_heap()  # what the trees were grown from
        data = in_random_order(data, self.solver.seed, run)
        grown = self._matched(data, trees, run) if self.match else self._taught(data, trees, run)
        return self._model(data, data.n_labels, grown)

    def _model(self, data: Dataset, n_labels: int, trees: tuple[Tree, ...]) -> TreeModel:
        return TreeModel(n_labels=n_labels, views=data.sizes, link=self.link, beam=self.beam, trees=trees)

    def _taught(self, data: Dataset, trees: list[LabelTree], run: Run) -> tuple[Tree, ...]:
        """All nodes of all trees that are not finished yet in one stream, so that no thread ever waits."""
        kept = {number: run.checkpoint.load_piece(f"tree-{number}") for number in range(len(trees))}
        finished = {number: Tree(**arrays) for number, arrays in kept.items() if arrays is not None}
        waiting = {number: tree for number, tree in enumerate(trees) if number not in finished}
        blocks = [block for number, tree in waiting.items() for block in taught_blocks(tree, data.Y, number)]
        trained = self._trained(data, blocks, run)
        for number in waiting:
            finished[number] = assemble(trees[number], partial(trained.take, number), run.workdir)
            run.checkpoint.save_piece(f"tree-{number}", vars(finished[number]))
        trained.end()
        return tuple(finished[number] for number in range(len(trees)))

    def _matched(self, data: Dataset, trees: list[LabelTree], run: Run) -> tuple[Tree, ...]:
        def trained(number: int) -> Tree:
            kept = run.checkpoint.load_piece(f"tree-{number}")
            tree = self._matched_tree(data, trees[number], run) if kept is None else Tree(**kept)
            run.checkpoint.save_piece(f"tree-{number}", vars(tree))
            return tree

        return tuple(trained(number) for number in range(len(trees)))

    def _matched_tree(self, data: Dataset, tree: LabelTree, run: Run) -> Tree:
        """Level by level: what the levels so far let through joins the next level's documents."""
        nodes: list[Node] = []
        reaching = csr_array(np.ones((data.n_docs, 1), np.float32))
        for depth, (level, members) in enumerate(zip(tree.levels, tree.memberships(data.Y), strict=True), 1):
            is_last = depth == len(tree.levels)
            chunks = np.arange(level.shape[0])
            trained = self._trained(
                data, blocks_of(level, csc_array(members), csc_array(reaching), chunks, is_last), run
            )
            nodes += [trained.take(0, node) for node in range(level.shape[0])]
            trained.end()
            if not is_last:
                so_far = assemble(LabelTree(tree.levels[:depth]), nodes.__getitem__)
                model = self._model(data, level.shape[1], (so_far,))
                found = model.predict(data, self.beam or LET_THROUGH, run).labels
                reaching = as_ones(members + indicator(found, level.shape[1]))
        return assemble(tree, nodes.__getitem__, run.workdir)

    def _trained(self, data: Dataset, blocks: Iterable[Block], run: Run) -> Trained:
        """The nodes that the blocks make, trained as they are taken."""
        blocks = shared_out(list(blocks))
        total = sum(block.cost for block in blocks)
        order = list(together(sorted(blocks, key=lambda block: block.turn(total)), data.n_docs))
        train = partial(self._train, data, everything(data.X))
        results = run.map_on_cluster(train, order, "training", size=cost_of, total=total, max_pending_per_thread=AHEAD)
        return Trained(one_by_one(order, results), blocks, constant(1, CERTAIN[self.solver.loss]))

    def _train(self, data: Dataset, all_documents: Documents, blocks: list[Block]) -> list[Node]:
        if not blocks[0].is_small(data.n_docs):
            return [self._train_one(data, all_documents, blocks[0])]
        found = train_several(self.solver, data.X, all_documents.squares, data.weights, blocks, self.min_weight)
        widths = [len(block.children) for block in blocks]
        return [*(pack_several if blocks[0].is_leaf else taken_apart)(found, widths)]

    def _train_one(self, data: Dataset, all_documents: Documents, block: Block) -> Node:
        is_all = len(block.rows) == data.n_docs
        documents = all_documents if is_all else gather(data.X, block.rows, all_documents.squares)
        weights = None if data.weights is None else data.weights[block.rows]
        W = self.solver.solve_gathered(documents, block.signs(), len(block.children), weights)
        found = pruned(W, self.min_weight)
        return pack(found) if block.is_leaf else found


def cost_of(blocks: list[Block]) -> int:
    return sum(block.cost for block in blocks)


def one_by_one(order: list[list[Block]], results: Iterable[list[Node]]) -> Iterator[tuple[Block, Node]]:
    for blocks, nodes in zip(order, results, strict=True):
        yield from zip(blocks, nodes, strict=True)


def in_random_order(data: Dataset, seed: int, run: Run) -> Dataset:
    order = shuffled(data.n_docs, seed)
    with run.open_thread_map() as each:
        bag = data.bag.copy_with(matrix=take_rows(data.X, order, each))
    (name,) = data.views
    assert data.Y is not None
    weights = None if data.weights is None else data.weights[order]
    return data.copy_with(views={name: bag}, Y=data.Y[order], weights=weights)


class Trained:
    """Nodes, put together from their blocks as these are trained. Those without a block have one child."""

    def __init__(self, results: Iterator[tuple[Block, Node]], blocks: list[Block], only_child: Node) -> None:
        self.results, self.only_child = results, only_child
        self.n_left = Counter((block.tree, block.node) for block in blocks)
        self.parts: dict[tuple[int, int], list[tuple[Block, Node]]] = {node: [] for node in self.n_left}

    def take(self, tree: int, node: int) -> Node:
        """A node, for the only time: nothing of it stays here."""
        if (tree, node) not in self.parts:
            return self.only_child
        while self.n_left[tree, node]:
            block, found = next(self.results)
            self.parts[block.tree, block.node].append((block, found))
            self.n_left[block.tree, block.node] -= 1
        return joined(self.parts.pop((tree, node)))

    def end(self) -> None:
        """There is nothing left to train: this ends the stream, and with it the stage."""
        next(self.results, None)


def joined(parts: list[tuple[Block, Node]]) -> Node:
    """A node from its blocks, which may have been trained in any order."""
    if len(parts) == 1:
        return parts[0][1]
    in_order = sorted(parts, key=lambda part: part[0].first)
    return side_by_side([found for _, found in in_order if isinstance(found, Rows)])


def indicator(labels: np.ndarray, n_labels: int) -> csr_array:
    """Ones at the labels of each row; NO_LABEL is negative and left out."""
    rows, columns = np.nonzero(labels >= 0)
    ones = np.ones(len(rows), np.float32)
    return csr_array((ones, (rows, labels[rows, columns])), shape=(len(labels), n_labels))

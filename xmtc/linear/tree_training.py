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
from xmtc.labels.tree import LabelTree, as_binary
from xmtc.linear.blocks import (
    TrainingBlock,
    group_small_blocks,
    make_level_blocks,
    make_tree_blocks,
    split_large_blocks,
)
from xmtc.linear.model import TreeModel
from xmtc.linear.node_data import NodeDocuments, gather_documents, to_node_documents
from xmtc.linear.packing import (
    PackedWeights,
    SparseWeights,
    assemble_tree,
    concatenate_slots,
    make_constant_weights,
    pack_weights,
    prune_weights,
)
from xmtc.linear.small_nodes import pack_batched_weights, split_weights, train_small_nodes
from xmtc.linear.solver import Solver, make_random_order
from xmtc.linear.tree import LinearTree

CERTAIN_MARGINS = {"squared_hinge": 1.0, "logistic": 30.0}  # margins of probability 1
DEFAULT_MATCHED_NODES = 10  # nodes a level lets through to the next where the beam does not say
QUEUED_BLOCKS_PER_THREAD = 32  # blocks handed out for each thread, so that none waits for a large one to end


TrainedNode = SparseWeights | PackedWeights  # trained; leaves are packed at once


@dataclass(frozen=True)
class TreeTrainer:
    """What all nodes share: the solver, how margins become probabilities, the smallest weight kept, the beam, and
    whether negatives are matched."""

    solver: Solver
    link: str
    min_weight: float
    beam: int
    should_match_negatives: bool = False

    def train(self, data: Dataset, trees: list[LabelTree], run: Run) -> TreeModel:
        """Train every node of every tree. Documents are shuffled once for all, so that a node's are in random order."""
        if run.checkpoint.folder:
            shapes = [tree.levels[-1].indices.sum() for tree in trees]
            run.checkpoint.claim(f"{self} {[len(tree.levels) for tree in trees]} {shapes} {data.fingerprint()}")
        trim_heap()  # what the trees were grown from
        data = shuffle_documents(data, self.solver.seed, run)
        grown = (
            self._train_matcher_aware(data, trees, run)
            if self.should_match_negatives
            else self._train_teacher_forcing(data, trees, run)
        )
        return self._make_model(data, data.n_labels, grown)

    def _make_model(self, data: Dataset, n_labels: int, trees: tuple[LinearTree, ...]) -> TreeModel:
        return TreeModel(n_labels=n_labels, views=data.sizes, link=self.link, beam=self.beam, trees=trees)

    def _train_teacher_forcing(self, data: Dataset, trees: list[LabelTree], run: Run) -> tuple[LinearTree, ...]:
        """All nodes of all trees that are not finished yet in one stream, so that no thread ever waits."""
        kept = {number: run.checkpoint.load_piece(f"tree-{number}") for number in range(len(trees))}
        finished = {number: LinearTree(**arrays) for number, arrays in kept.items() if arrays is not None}
        waiting = {number: tree for number, tree in enumerate(trees) if number not in finished}
        blocks = [block for number, tree in waiting.items() for block in make_tree_blocks(tree, data.Y, number)]
        trained = self._train_blocks(data, blocks, run)
        for number in waiting:
            finished[number] = assemble_tree(trees[number], partial(trained.pop_node, number), run.workdir)
            run.checkpoint.save_piece(f"tree-{number}", vars(finished[number]))
        trained.close()
        return tuple(finished[number] for number in range(len(trees)))

    def _train_matcher_aware(self, data: Dataset, trees: list[LabelTree], run: Run) -> tuple[LinearTree, ...]:
        def trained(number: int) -> LinearTree:
            kept = run.checkpoint.load_piece(f"tree-{number}")
            tree = self._train_matcher_aware_tree(data, trees[number], run) if kept is None else LinearTree(**kept)
            run.checkpoint.save_piece(f"tree-{number}", vars(tree))
            return tree

        return tuple(trained(number) for number in range(len(trees)))

    def _train_matcher_aware_tree(self, data: Dataset, tree: LabelTree, run: Run) -> LinearTree:
        """Level by level: what the levels so far let through joins the next level's documents."""
        nodes: list[TrainedNode] = []
        reaching = csr_array(np.ones((data.n_docs, 1), np.float32))
        for depth, (level, members) in enumerate(zip(tree.levels, tree.memberships(data.Y), strict=True), 1):
            is_last = depth == len(tree.levels)
            chunks = np.arange(level.shape[0])
            trained = self._train_blocks(
                data, make_level_blocks(level, csc_array(members), csc_array(reaching), chunks, is_last), run
            )
            nodes += [trained.pop_node(0, node) for node in range(level.shape[0])]
            trained.close()
            if not is_last:
                so_far = assemble_tree(LabelTree(tree.levels[:depth]), nodes.__getitem__)
                model = self._make_model(data, level.shape[1], (so_far,))
                found = model.predict(data, self.beam or DEFAULT_MATCHED_NODES, run).labels
                reaching = as_binary(members + to_indicator_matrix(found, level.shape[1]))
        return assemble_tree(tree, nodes.__getitem__, run.workdir)

    def _train_blocks(self, data: Dataset, blocks: Iterable[TrainingBlock], run: Run) -> TrainedNodes:
        """The nodes that the blocks make, trained as they are taken."""
        blocks = split_large_blocks(list(blocks))
        total = sum(block.cost for block in blocks)
        order = list(group_small_blocks(sorted(blocks, key=lambda block: block.sort_key(total)), data.n_docs))
        train = partial(self._train_group, data, to_node_documents(data.X))
        results = run.map_on_cluster(
            train, order, "training", size=sum_costs, total=total, max_pending_per_thread=QUEUED_BLOCKS_PER_THREAD
        )
        return TrainedNodes(
            pair_blocks_with_nodes(order, results), blocks, make_constant_weights(1, CERTAIN_MARGINS[self.solver.loss])
        )

    def _train_group(
        self, data: Dataset, all_documents: NodeDocuments, blocks: list[TrainingBlock]
    ) -> list[TrainedNode]:
        if not blocks[0].is_small(data.n_docs):
            return [self._train_block(data, all_documents, blocks[0])]
        found = train_small_nodes(self.solver, data.X, all_documents.squares, data.weights, blocks, self.min_weight)
        widths = [len(block.children) for block in blocks]
        return [*(pack_batched_weights if blocks[0].is_leaf else split_weights)(found, widths)]

    def _train_block(self, data: Dataset, all_documents: NodeDocuments, block: TrainingBlock) -> TrainedNode:
        is_all = len(block.rows) == data.n_docs
        documents = all_documents if is_all else gather_documents(data.X, block.rows, all_documents.squares)
        weights = None if data.weights is None else data.weights[block.rows]
        W = self.solver.solve_node(documents, block.signs(), len(block.children), weights)
        found = prune_weights(W, self.min_weight)
        return pack_weights(found) if block.is_leaf else found


def sum_costs(blocks: list[TrainingBlock]) -> int:
    return sum(block.cost for block in blocks)


def pair_blocks_with_nodes(
    order: list[list[TrainingBlock]], results: Iterable[list[TrainedNode]]
) -> Iterator[tuple[TrainingBlock, TrainedNode]]:
    for blocks, nodes in zip(order, results, strict=True):
        yield from zip(blocks, nodes, strict=True)


def shuffle_documents(data: Dataset, seed: int, run: Run) -> Dataset:
    order = make_random_order(data.n_docs, seed)
    with run.open_thread_map() as each:
        bag = data.bag.copy_with(matrix=take_rows(data.X, order, each))
    (name,) = data.views
    assert data.Y is not None
    weights = None if data.weights is None else data.weights[order]
    return data.copy_with(views={name: bag}, Y=data.Y[order], weights=weights)


class TrainedNodes:
    """Nodes, put together from their blocks as these are trained. Those without a block have one child."""

    def __init__(
        self, results: Iterator[tuple[TrainingBlock, TrainedNode]], blocks: list[TrainingBlock], only_child: TrainedNode
    ) -> None:
        self.results, self.single_child_node = results, only_child
        self.n_pending_blocks = Counter((block.tree, block.node) for block in blocks)
        self.parts: dict[tuple[int, int], list[tuple[TrainingBlock, TrainedNode]]] = {
            node: [] for node in self.n_pending_blocks
        }

    def pop_node(self, tree: int, node: int) -> TrainedNode:
        """A node, for the only time: nothing of it stays here."""
        if (tree, node) not in self.parts:
            return self.single_child_node
        while self.n_pending_blocks[tree, node]:
            block, found = next(self.results)
            self.parts[block.tree, block.node].append((block, found))
            self.n_pending_blocks[block.tree, block.node] -= 1
        return join_blocks(self.parts.pop((tree, node)))

    def close(self) -> None:
        """There is nothing left to train: this ends the stream, and with it the stage."""
        next(self.results, None)


def join_blocks(parts: list[tuple[TrainingBlock, TrainedNode]]) -> TrainedNode:
    """A node from its blocks, which may have been trained in any order."""
    if len(parts) == 1:
        return parts[0][1]
    in_order = sorted(parts, key=lambda part: part[0].first_child)
    return concatenate_slots([found for _, found in in_order if isinstance(found, SparseWeights)])


def to_indicator_matrix(labels: np.ndarray, n_labels: int) -> csr_array:
    """Ones at the labels of each row; NO_LABEL is negative and left out."""
    rows, columns = np.nonzero(labels >= 0)
    ones = np.ones(len(rows), np.float32)
    return csr_array((ones, (rows, labels[rows, columns])), shape=(len(labels), n_labels))

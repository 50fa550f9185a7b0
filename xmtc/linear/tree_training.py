"""Training of label trees: one set of linear classifiers per node, each on the documents that reach the node.

Teacher forcing: a document reaches a node if it has a label under the node. Matcher-aware training (matched negatives
of XR-Linear in PECOS) adds the documents for which the levels above, already trained, predict the node by mistake.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.sparse import csc_array, csr_array
from threadpoolctl import threadpool_limits

from xmtc.core.dataset import Dataset
from xmtc.core.events import Convergence, merge_convergence
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
    sum_costs,
)
from xmtc.linear.model import TreeModel
from xmtc.linear.node_data import NodeDocuments, gather_documents, to_node_documents
from xmtc.linear.packing import (
    SparseWeights,
    TrainedNode,
    TreeBuilder,
    assemble_tree,
    concatenate_slots,
    make_constant_weights,
    pack_weights,
    prune_weights,
)
from xmtc.linear.small_nodes import pack_batched_weights, split_weights, train_small_nodes
from xmtc.linear.solver import (
    Solver,
    describe_progress,
    make_random_order,
    report_convergence,
    select_row_weights,
)
from xmtc.linear.tree import LinearTree

CERTAIN_MARGINS = {"squared_hinge": 1.0, "logistic": 30.0}  # margins with probability 1
DEFAULT_MATCHED_NODES = 10  # predicted nodes per document and level if the beam is unlimited
QUEUED_BLOCKS_PER_THREAD = 32  # blocks submitted ahead per thread, so that no thread waits for a large one


@dataclass(frozen=True)
class TreeTrainer:
    """Trainer of label trees: solver and settings shared by all nodes."""

    solver: Solver
    link: str  # key of LINK_CODES
    min_weight: float  # smaller weights are pruned
    beam: int
    should_match_negatives: bool = False

    def train(self, data: Dataset, trees: list[LabelTree], run: Run) -> TreeModel:
        """Train every node of every tree. Documents are shuffled once, so that those of each node are in random
        order."""
        if run.checkpoint.folder:
            shapes = [tree.levels[-1].indices.sum() for tree in trees]
            run.checkpoint.claim(f"{self} {[len(tree.levels) for tree in trees]} {shapes} {data.fingerprint()}")
        trim_heap()  # releases the memory in which the trees were built
        data = shuffle_documents(data, self.solver.seed, run)
        trained = self._load_trees(len(trees), run)
        reports: list[Convergence] = []
        train = self._train_matcher_aware if self.should_match_negatives else self._train_teacher_forcing
        with threadpool_limits(1, "blas"):  # the nodes run in parallel, and BLAS threads would change the rounding
            train(data, trees, trained, reports, run)
        report_convergence(reports, run)
        return self._make_model(data, data.n_labels, tuple(trained[number] for number in range(len(trees))))

    def _load_trees(self, n_trees: int, run: Run) -> dict[int, LinearTree]:
        """Load the trees that an interrupted training has finished, by number."""
        pieces = {number: run.checkpoint.load_piece(f"tree-{number}") for number in range(n_trees)}
        return {number: LinearTree(**arrays) for number, arrays in pieces.items() if arrays is not None}

    def _make_model(self, data: Dataset, n_labels: int, trees: tuple[LinearTree, ...]) -> TreeModel:
        return TreeModel(n_labels=n_labels, views=data.sizes, link=self.link, beam=self.beam, trees=trees)

    def _single_child_weights(self) -> SparseWeights:
        return make_constant_weights(1, CERTAIN_MARGINS[self.solver.loss])

    def _train_teacher_forcing(
        self,
        data: Dataset,
        trees: list[LabelTree],
        trained: dict[int, LinearTree],
        reports: list[Convergence],
        run: Run,
    ) -> None:
        """Add the missing trees to `trained`. The nodes of all trees are one stream of work, so that threads do not
        wait at the end of each tree."""
        missing = [number for number in range(len(trees)) if number not in trained]
        blocks = [block for number in missing for block in make_tree_blocks(trees[number], data.Y, number)]
        builders: dict[int, TreeBuilder] = {}
        for number, node, weights in self.train_blocks(data, blocks, reports, run):
            if number not in builders:
                builders[number] = TreeBuilder(trees[number], self._single_child_weights(), run.workdir)
            builders[number].add_node(node, weights)
            if builders[number].is_complete:
                trained[number] = builders.pop(number).to_tree()
                run.checkpoint.save_piece(f"tree-{number}", vars(trained[number]))
        for number in missing:
            if number not in trained:  # every node has a single child
                trained[number] = assemble_tree(trees[number], {}, self._single_child_weights(), run.workdir)
                run.checkpoint.save_piece(f"tree-{number}", vars(trained[number]))

    def _train_matcher_aware(
        self,
        data: Dataset,
        trees: list[LabelTree],
        trained: dict[int, LinearTree],
        reports: list[Convergence],
        run: Run,
    ) -> None:
        """Add the missing trees to `trained`, one after the other."""
        for number, tree in enumerate(trees):
            if number not in trained:
                trained[number] = self._train_matcher_aware_tree(data, tree, reports, run)
                run.checkpoint.save_piece(f"tree-{number}", vars(trained[number]))

    def _train_matcher_aware_tree(
        self, data: Dataset, tree: LabelTree, reports: list[Convergence], run: Run
    ) -> LinearTree:
        """Train level by level: the predictions of the levels so far add documents to the nodes of the next."""
        nodes: dict[int, TrainedNode] = {}
        reaching, first_node = csr_array(np.ones((data.n_docs, 1), np.float32)), 0
        for depth, (level, members) in enumerate(zip(tree.levels, tree.memberships(data.Y), strict=True), 1):
            is_last = depth == len(tree.levels)
            chunks = np.arange(level.shape[0])
            blocks = make_level_blocks(
                level, csc_array(members), csc_array(reaching), chunks, is_last, first_node=first_node
            )
            nodes |= {node: weights for _, node, weights in self.train_blocks(data, blocks, reports, run)}
            first_node += level.shape[0]
            if not is_last:
                upper_tree = assemble_tree(LabelTree(tree.levels[:depth]), nodes, self._single_child_weights())
                model = self._make_model(data, level.shape[1], (upper_tree,))
                predicted = model.predict(data, self.beam or DEFAULT_MATCHED_NODES, run).labels
                reaching = as_binary(members + to_indicator_matrix(predicted, level.shape[1]))
        return assemble_tree(tree, nodes, self._single_child_weights(), run.workdir)

    def train_blocks(
        self, data: Dataset, blocks: Iterable[TrainingBlock], reports: list[Convergence], run: Run
    ) -> Iterator[tuple[int, int, TrainedNode]]:
        """Train blocks in parallel. Yield (tree, node, weights) as soon as all blocks of a node are trained, and append
        the convergence of the blocks to `reports`."""
        blocks = split_large_blocks(list(blocks))
        total = sum_costs(blocks)
        groups = list(group_small_blocks(sorted(blocks, key=lambda block: block.sort_key(total)), data.n_docs))
        results = run.map_on_cluster(
            partial(self._train_group, data, to_node_documents(data.X)),
            groups,
            "training",
            size=sum_costs,
            total=total,
            max_pending_per_thread=QUEUED_BLOCKS_PER_THREAD,
        )
        n_blocks = Counter((block.tree, block.node) for block in blocks)
        parts: dict[tuple[int, int], list[tuple[int, TrainedNode]]] = defaultdict(list)
        for group, (group_weights, convergence) in zip(groups, results, strict=True):
            reports.append(convergence)
            for block, weights in zip(group, group_weights, strict=True):
                node = block.tree, block.node
                parts[node].append((block.first_child, weights))
                if len(parts[node]) == n_blocks[node]:
                    yield *node, join_blocks(parts.pop(node))

    def _train_group(
        self, data: Dataset, all_documents: NodeDocuments, blocks: list[TrainingBlock]
    ) -> tuple[list[TrainedNode], Convergence]:
        """Train one large block, or several small ones in one call; return the weights of each."""
        if self.solver.is_primal or not blocks[0].is_small(data.n_docs):
            results = [self._train_block(data, all_documents, block) for block in blocks]
            return [node for node, _ in results], merge_convergence(convergence for _, convergence in results)
        batch = train_small_nodes(self.solver, data.X, all_documents.squares, data.weights, blocks, self.min_weight)
        widths = [len(block.children) for block in blocks]
        convergence = merge_convergence(map(describe_progress, batch.progress, widths))
        return [*(pack_batched_weights if blocks[0].is_leaf else split_weights)(batch, widths)], convergence

    def _train_block(
        self, data: Dataset, all_documents: NodeDocuments, block: TrainingBlock
    ) -> tuple[TrainedNode, Convergence]:
        has_all_documents, n_children = len(block.rows) == data.n_docs, len(block.children)
        if self.solver.is_primal:
            dense = self.solver.solve_rows(data.X, block.rows, block.signs(), n_children, data.weights)
        else:
            documents = (
                all_documents if has_all_documents else gather_documents(data.X, block.rows, all_documents.squares)
            )
            weights = select_row_weights(data.weights, block.rows)
            dense = self.solver.solve_node(documents, block.signs(), n_children, weights)
        pruned = prune_weights(dense, self.min_weight)
        return pack_weights(pruned) if block.is_leaf else pruned, dense.convergence


def shuffle_documents(data: Dataset, seed: int, run: Run) -> Dataset:
    order = make_random_order(data.n_docs, seed)
    with run.open_thread_map() as thread_map:
        bag = data.bag.copy_with(matrix=take_rows(data.X, order, thread_map))
    (name,) = data.views
    assert data.Y is not None
    weights = None if data.weights is None else data.weights[order]
    return data.copy_with(views={name: bag}, Y=data.Y[order], weights=weights, is_name=None)


def join_blocks(parts: list[tuple[int, TrainedNode]]) -> TrainedNode:
    """Join the blocks of a node, given as (first child, weights) in any order."""
    if len(parts) == 1:
        return parts[0][1]
    in_order = sorted(parts, key=lambda part: part[0])
    return concatenate_slots([weights for _, weights in in_order if isinstance(weights, SparseWeights)])


def to_indicator_matrix(labels: np.ndarray, n_labels: int) -> csr_array:
    """Return ones at the labels of each row; NO_LABEL (negative) is ignored."""
    rows, columns = np.nonzero(labels >= 0)
    ones = np.ones(len(rows), np.float32)
    return csr_array((ones, (rows, labels[rows, columns])), shape=(len(labels), n_labels))

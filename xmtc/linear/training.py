"""Training of label trees: one set of linear classifiers per node, each on the documents that reach the node.

Which documents reach a node is the teacher's word, those with a label under it; with matched negatives (PECOS's
XR-Linear) also those that the levels above, already trained, let through by mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.base.dataset import Dataset
from xmtc.base.memory import give_back
from xmtc.base.run import Run
from xmtc.compiled import kernel
from xmtc.labels.tree import LabelTree, as_ones
from xmtc.linear.gathering import Documents, everything, gather
from xmtc.linear.model import TreeModel
from xmtc.linear.packing import Packed, Rows, assemble, chunk_numbers, constant, pack, pruned, side_by_side
from xmtc.linear.solver import BLOCK, Solver, padded_width, shuffled
from xmtc.linear.tree import Tree
from xmtc.sparse import take_rows

CERTAIN = {"squared_hinge": 1.0, "logistic": 30.0}  # margins of probability 1
LET_THROUGH = 10  # nodes a level lets through to the next where the beam does not say
LARGE = 1e-3  # of all that is to be done: blocks of more are begun first, so that no thread works on one at the end
READING = 40  # labels whose arithmetic takes as long as reading a document's features
FAIR = 0.1  # of what a tree costs: more in one block, and a machine of many cores waits for it
WORTH = 0.7  # of what a block costs: each half's cost, at most, for halving to be worth while
AHEAD = 32  # blocks handed out for each thread, so that none waits for a large one to end


Node = Rows | Packed  # trained; leaves are packed at once


@dataclass(frozen=True)
class Block:
    """Some of a node's children, trained together: its documents (rows), and which belong to which child."""

    tree: int
    node: int  # counted from the root on, level by level
    chunk: int  # that the node will be packed in
    first: int  # child, counted within the node
    is_leaf: bool  # all of it
    rows: np.ndarray  # ascending
    children: np.ndarray
    members: tuple[np.ndarray, np.ndarray]  # of the level's children, where each one's documents begin, and which

    @cached_property
    def cost(self) -> int:
        """In documents × labels; `descend_pair` takes half the time of `descend_block`."""
        cost = len(self.rows) * (padded_width(len(self.children)) + READING)
        return cost // 2 if len(self.children) == 2 else cost

    def halves(self) -> tuple[Block, Block]:
        middle = (len(self.children) + 1) // 2
        one = replace(self, is_leaf=False, children=self.children[:middle])
        return one, replace(self, is_leaf=False, children=self.children[middle:], first=self.first + middle)

    def turn(self, total: float) -> tuple[int, int, int]:
        """Trees one after the other, so that each can be kept when it is finished, and few nodes wait in memory to be
        packed. Of each tree the large ones first, and then those that are packed together, the large ones first."""
        is_large = self.cost > LARGE * total
        return self.tree, -1 if is_large else self.chunk, -self.cost

    def signs(self) -> np.ndarray:
        """+1 where a document belongs to a child, −1 elsewhere."""
        signs = np.full((len(self.rows), padded_width(len(self.children))), -1, np.float32)
        mark_members(*self.members, self.children, self.rows, signs)
        return signs


@kernel
def mark_members(indptr, indices, children, rows, signs):
    """Every document of a child is looked for among the rows, from the one before it on, since both ascend: in strides
    that double until they are too long, and then by halving."""
    for j in range(len(children)):
        begin = 0
        for i in range(indptr[children[j]], indptr[children[j] + 1]):
            stride = 1
            while begin + stride < len(rows) and rows[begin + stride] <= indices[i]:
                begin += stride
                stride *= 2
            end = min(begin + stride, len(rows))
            while end - begin > 1:
                middle = (begin + end) // 2
                if rows[middle] <= indices[i]:
                    begin = middle
                else:
                    end = middle
            signs[begin, j] = 1


def shared_out(blocks: list[Block]) -> list[Block]:
    """Blocks of which one would keep all threads but its own waiting are halved: the root's, if it has many children.
    That depends on their tree alone, not on threads or on other trees, because labels that are trained together stop
    together."""
    total: Counter[int] = Counter()
    for block in blocks:
        total[block.tree] += block.cost

    def parts(block: Block) -> tuple[Block, ...]:
        if block.cost <= FAIR * total[block.tree] or len(block.children) < 4:
            return (block,)
        halves = block.halves()
        return halves if halves[0].cost <= WORTH * block.cost else (block,)

    return [part for block in blocks for part in parts(block)]


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
        give_back()  # what the trees were grown from
        data = in_random_order(data, self.solver.seed, run)
        grown = self._matched(data, trees, run) if self.match else self._taught(data, trees, run)
        return self._model(data, data.n_labels, grown)

    def _model(self, data: Dataset, n_labels: int, trees: tuple[Tree, ...]) -> TreeModel:
        return TreeModel(n_labels=n_labels, views=data.sizes, link=self.link, beam=self.beam, trees=trees)

    def _taught(self, data: Dataset, trees: list[LabelTree], run: Run) -> tuple[Tree, ...]:
        """All nodes of all trees that are not finished yet in one stream, so that no thread ever waits."""
        kept = {number: run.checkpoint.recall(f"tree-{number}") for number in range(len(trees))}
        finished = {number: Tree(**arrays) for number, arrays in kept.items() if arrays is not None}
        waiting = {number: tree for number, tree in enumerate(trees) if number not in finished}
        blocks = [block for number, tree in waiting.items() for block in taught_blocks(tree, data.Y, number)]
        trained = self._trained(data, blocks, run)
        for number in waiting:
            finished[number] = assemble(trees[number], partial(trained.take, number), run.workdir)
            run.checkpoint.keep(f"tree-{number}", vars(finished[number]))
        trained.end()
        return tuple(finished[number] for number in range(len(trees)))

    def _matched(self, data: Dataset, trees: list[LabelTree], run: Run) -> tuple[Tree, ...]:
        def trained(number: int) -> Tree:
            kept = run.checkpoint.recall(f"tree-{number}")
            tree = self._matched_tree(data, trees[number], run) if kept is None else Tree(**kept)
            run.checkpoint.keep(f"tree-{number}", vars(tree))
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
        order = sorted(blocks, key=lambda block: block.turn(total))
        train = partial(self._train, data, everything(data.X))
        results = run.spread(train, order, "training", size=lambda block: block.cost, total=total, ahead=AHEAD)
        return Trained(zip(order, results, strict=True), blocks, constant(1, CERTAIN[self.solver.loss]))

    def _train(self, data: Dataset, all_documents: Documents, block: Block) -> Node:
        is_all = len(block.rows) == data.n_docs
        documents = all_documents if is_all else gather(data.X, block.rows, all_documents.squares)
        weights = None if data.weights is None else data.weights[block.rows]
        W = self.solver.solve_gathered(documents, block.signs(), len(block.children), weights)
        found = pruned(W, self.min_weight)
        return pack(found) if block.is_leaf else found


def in_random_order(data: Dataset, seed: int, run: Run) -> Dataset:
    order = shuffled(data.n_docs, seed)
    with run.each() as each:
        bag = data.bag.derived(matrix=take_rows(data.X, order, each))
    (name,) = data.views
    assert data.Y is not None
    weights = None if data.weights is None else data.weights[order]
    return data.derived(views={name: bag}, Y=data.Y[order], weights=weights)


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


def taught_blocks(tree: LabelTree, Y: csr_array, number: int) -> Iterator[Block]:
    """Of all nodes: documents come to a node where they have a label under it."""
    reaching = csc_array((np.diff(Y.indptr) > 0).astype(np.float32)[:, None])
    first, chunks = 0, chunk_numbers(tree)
    for depth, (level, members) in enumerate(zip(tree.levels, tree.memberships(Y), strict=True), 1):
        documents = csc_array(members)
        yield from blocks_of(level, documents, reaching, chunks[first:], depth == len(tree.levels), number, first)
        reaching, first = documents, first + level.shape[0]


def blocks_of(
    level: csr_array,
    members: csc_array,
    reaching: csc_array,
    chunks: np.ndarray,
    is_leaf: bool,
    tree: int = 0,
    first: int = 0,
) -> Iterator[Block]:
    """The nodes of a level, numbered from `first` on, but for those of one child. `members` says which documents belong
    to which child, `reaching` which come to which node, `chunks` what each node is packed in."""
    by_child = members.indptr.astype(np.int64), members.indices
    for node in range(level.shape[0]):
        children = level.indices[level.indptr[node] : level.indptr[node + 1]].astype(np.int64)
        if len(children) == 1:
            continue
        rows = reaching.indices[reaching.indptr[node] : reaching.indptr[node + 1]]
        for begin in range(0, len(children), BLOCK):
            ours = children[begin : begin + BLOCK]
            is_whole = is_leaf and len(children) <= BLOCK
            yield Block(tree, first + node, int(chunks[node]), begin, is_whole, rows, ours, by_child)

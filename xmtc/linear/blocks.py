"""The work of training label trees, cut into blocks: some children of a node, with the documents that reach it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.numba_support import kernel
from xmtc.labels.tree import LabelTree
from xmtc.linear.packing import number_chunks
from xmtc.linear.solver import MAX_BLOCK_LABELS, padded_width

LARGE_BLOCK_COST_SHARE = (
    1e-3  # of all that is to be done: blocks of more are begun first, so that no thread works on one at the end
)
DOCUMENT_READ_COST = 40  # labels whose arithmetic takes as long as reading a document's features
MAX_BLOCK_COST_SHARE = 0.1  # of what a tree costs: more in one block, and a machine of many cores waits for it
MAX_HALF_COST_SHARE = 0.7  # of what a block costs: each half's cost, at most, for halving to be worth while
SMALL_BLOCK_COST = 1 << 16  # cost of a block, or of several that are trained in one call: some milliseconds


@dataclass(frozen=True)
class TrainingBlock:
    """Some of a node's children, trained together: its documents (rows), and which belong to which child."""

    tree: int
    node: int  # counted from the root on, level by level
    chunk: int  # that the node will be packed in
    first_child: int  # child, counted within the node
    is_leaf: bool  # all of it
    rows: np.ndarray  # ascending
    children: np.ndarray
    members: tuple[np.ndarray, np.ndarray]  # of the level's children, where each one's documents begin, and which

    @cached_property
    def cost(self) -> int:
        """In documents × labels; `descend_pair` takes half the time of `descend_block`."""
        cost = len(self.rows) * (padded_width(len(self.children)) + DOCUMENT_READ_COST)
        return cost // 2 if len(self.children) == 2 else cost

    def is_small(self, n_docs: int) -> bool:
        """Whether it is trained with others. What all documents reach needs no copies of them, and stays alone."""
        return self.cost <= SMALL_BLOCK_COST and len(self.rows) < n_docs

    def is_batchable_with(self, other: TrainingBlock, n_docs: int) -> bool:
        """Whether both can be trained in one call."""
        are_small = self.is_small(n_docs) and other.is_small(n_docs)
        return are_small and self.members is other.members and self.is_leaf == other.is_leaf

    def split_in_half(self) -> tuple[TrainingBlock, TrainingBlock]:
        middle = (len(self.children) + 1) // 2
        one = replace(self, is_leaf=False, children=self.children[:middle])
        return one, replace(self, is_leaf=False, children=self.children[middle:], first_child=self.first_child + middle)

    def sort_key(self, total: float) -> tuple[int, int, int]:
        """Trees one after the other, so that each can be kept when it is finished, and few nodes wait in memory to be
        packed. Of each tree the large ones first, and then those that are packed together, the large ones first."""
        is_large = self.cost > LARGE_BLOCK_COST_SHARE * total
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


def split_large_blocks(blocks: list[TrainingBlock]) -> list[TrainingBlock]:
    """Blocks of which one would keep all threads but its own waiting are halved: the root's, if it has many children.
    That depends on their tree alone, not on threads or on other trees, because labels that are trained together stop
    together."""
    total: Counter[int] = Counter()
    for block in blocks:
        total[block.tree] += block.cost

    def parts(block: TrainingBlock) -> tuple[TrainingBlock, ...]:
        if block.cost <= MAX_BLOCK_COST_SHARE * total[block.tree] or len(block.children) < 4:
            return (block,)
        halves = block.split_in_half()
        return halves if halves[0].cost <= MAX_HALF_COST_SHARE * block.cost else (block,)

    return [part for block in blocks for part in parts(block)]


def group_small_blocks(blocks: Iterable[TrainingBlock], n_docs: int) -> Iterator[list[TrainingBlock]]:
    """Blocks in their order, small ones of the same kind and level together."""
    waiting: list[TrainingBlock] = []
    cost = 0
    for block in blocks:
        cost += block.cost
        if waiting and not (cost <= SMALL_BLOCK_COST and block.is_batchable_with(waiting[0], n_docs)):
            yield waiting
            waiting, cost = [], block.cost
        waiting.append(block)
    if waiting:
        yield waiting


def make_tree_blocks(tree: LabelTree, Y: csr_array, number: int) -> Iterator[TrainingBlock]:
    """Of all nodes: documents come to a node where they have a label under it."""
    reaching = csc_array((np.diff(Y.indptr) > 0).astype(np.float32)[:, None])
    first, chunks = 0, number_chunks(tree)
    for depth, (level, members) in enumerate(zip(tree.levels, tree.memberships(Y), strict=True), 1):
        documents = csc_array(members)
        yield from make_level_blocks(
            level, documents, reaching, chunks[first:], depth == len(tree.levels), number, first
        )
        reaching, first = documents, first + level.shape[0]


def make_level_blocks(
    level: csr_array,
    members: csc_array,
    reaching: csc_array,
    chunks: np.ndarray,
    is_leaf: bool,
    tree: int = 0,
    first: int = 0,
) -> Iterator[TrainingBlock]:
    """The nodes of a level, numbered from `first` on, but for those of one child. `members` says which documents belong
    to which child, `reaching` which come to which node, `chunks` what each node is packed in."""
    by_child = members.indptr.astype(np.int64), members.indices
    all_children, numbers = level.indices.astype(np.int64), chunks.tolist()
    starts, ends = level.indptr.tolist(), reaching.indptr.tolist()
    for node in range(level.shape[0]):
        children = all_children[starts[node] : starts[node + 1]]
        if len(children) == 1:
            continue
        rows = reaching.indices[ends[node] : ends[node + 1]]
        for begin in range(0, len(children), MAX_BLOCK_LABELS):
            ours = children[begin : begin + MAX_BLOCK_LABELS]
            is_whole = is_leaf and len(children) <= MAX_BLOCK_LABELS
            yield TrainingBlock(tree, first + node, numbers[node], begin, is_whole, rows, ours, by_child)

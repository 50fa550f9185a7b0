"""Units of work for training label trees: some children of a node, with the documents that reach the node."""

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

# Costs are in documents × labels.
LARGE_BLOCK_COST_SHARE = 1e-3  # of the total cost; larger blocks are trained first, so that none is left at the end
DOCUMENT_READ_COST = 40  # labels whose arithmetic takes as long as reading the features of a document
MAX_BLOCK_COST_SHARE = 0.1  # of the cost of a tree; other threads would wait for a larger block
MAX_HALF_COST_SHARE = 0.7  # of the cost of a block; above it, halving does not pay
SMALL_BLOCK_COST = 1 << 16  # maximum cost of the blocks that are trained in one call, a few milliseconds


@dataclass(frozen=True)
class TrainingBlock:
    """Children of a node that are trained together, and the documents that reach the node."""

    tree: int
    node: int  # numbered from the root, level by level
    chunk: int  # chunk of the node in the packed tree
    first_child: int  # number within the node
    is_leaf: bool  # True for all children of a leaf; False for some of them, or an inner node
    rows: np.ndarray  # documents, ascending
    children: np.ndarray
    members: tuple[np.ndarray, np.ndarray]  # documents of every child of the level: indptr and indices of a csc matrix

    @cached_property
    def cost(self) -> int:
        """Cost of training in documents × labels; `descend_pair` takes half the time of `descend_block`."""
        cost = len(self.rows) * (padded_width(len(self.children)) + DOCUMENT_READ_COST)
        return cost // 2 if len(self.children) == 2 else cost

    def is_small(self, n_docs: int) -> bool:
        """Return True if the block is trained together with others. A block with all documents needs no copy of them
        and is trained alone."""
        return self.cost <= SMALL_BLOCK_COST and len(self.rows) < n_docs

    def is_batchable_with(self, other: TrainingBlock, n_docs: int) -> bool:
        """Return True if both can be trained in one call."""
        are_small = self.is_small(n_docs) and other.is_small(n_docs)
        return are_small and self.members is other.members and self.is_leaf == other.is_leaf

    def split_in_half(self) -> tuple[TrainingBlock, TrainingBlock]:
        middle = (len(self.children) + 1) // 2
        first = replace(self, is_leaf=False, children=self.children[:middle])
        second = replace(self, is_leaf=False, children=self.children[middle:], first_child=self.first_child + middle)
        return first, second

    def sort_key(self, total: float) -> tuple[int, int, int]:
        """Return the key of the training order: tree by tree, so that each is saved when it is complete; within a tree
        large blocks first, then chunk by chunk, so that few nodes wait in memory to be packed."""
        is_large = self.cost > LARGE_BLOCK_COST_SHARE * total
        return self.tree, -1 if is_large else self.chunk, -self.cost

    def signs(self) -> np.ndarray:
        """Return y, shape (n_rows, padded n_children): +1 where a document belongs to a child, −1 elsewhere."""
        signs = np.full((len(self.rows), padded_width(len(self.children))), -1, np.float32)
        mark_members(*self.members, self.children, self.rows.astype(np.int64, copy=False), signs)
        return signs


@kernel
def mark_members(indptr, indices, children, rows, signs):
    """Set signs[row, child] = 1 for every document of a child. Documents and rows both ascend: each document is found
    by galloping search from the position of the one before it."""
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


def to_member_arrays(members: csc_array) -> tuple[np.ndarray, np.ndarray]:
    """Return the documents of every column as indptr and indices, always of the types for which kernels are
    compiled."""
    return members.indptr.astype(np.int64, copy=False), members.indices.astype(np.int32, copy=False)


def sum_costs(blocks: Iterable[TrainingBlock]) -> int:
    return sum(block.cost for block in blocks)


def split_large_blocks(blocks: list[TrainingBlock]) -> list[TrainingBlock]:
    """Halve the blocks for which other threads would have to wait, such as that of a root with many children.

    The result depends on the tree alone, not on the number of threads or on other trees: labels that are trained
    together stop together, so that another split would change the weights.
    """
    tree_costs: Counter[int] = Counter()
    for block in blocks:
        tree_costs[block.tree] += block.cost
    parts: list[TrainingBlock] = []
    for block in blocks:
        if block.cost > MAX_BLOCK_COST_SHARE * tree_costs[block.tree] and len(block.children) >= 4:
            halves = block.split_in_half()
            parts += halves if halves[0].cost <= MAX_HALF_COST_SHARE * block.cost else (block,)
        else:
            parts.append(block)
    return parts


def group_small_blocks(blocks: Iterable[TrainingBlock], n_docs: int) -> Iterator[list[TrainingBlock]]:
    """Yield the blocks in order; consecutive small ones of the same kind and level are in one list."""
    group: list[TrainingBlock] = []
    cost = 0
    for block in blocks:
        cost += block.cost
        if group and not (cost <= SMALL_BLOCK_COST and block.is_batchable_with(group[0], n_docs)):
            yield group
            group, cost = [], block.cost
        group.append(block)
    if group:
        yield group


def make_tree_blocks(tree: LabelTree, Y: csr_array, number: int) -> Iterator[TrainingBlock]:
    """Yield the blocks of all nodes; a document reaches a node if it has a label under the node."""
    reaching = csc_array((np.diff(Y.indptr) > 0).astype(np.float32)[:, None])
    first_node, chunks = 0, number_chunks(tree)
    for depth, (level, members) in enumerate(zip(tree.levels, tree.memberships(Y), strict=True), 1):
        is_last, by_child = depth == len(tree.levels), csc_array(members)
        yield from make_level_blocks(level, by_child, reaching, chunks[first_node:], is_last, number, first_node)
        reaching, first_node = by_child, first_node + level.shape[0]


def make_level_blocks(
    level: csr_array,
    members: csc_array,
    reaching: csc_array,
    chunks: np.ndarray,
    is_leaf: bool,
    tree: int = 0,
    first_node: int = 0,
) -> Iterator[TrainingBlock]:
    """Yield the blocks of a level's nodes, numbered from `first_node`; nodes with one child have none.

    `members` has the documents of each child, `reaching` those of each node, `chunks` the chunk of each node.
    """
    by_child = to_member_arrays(members)
    all_children, chunk_numbers = level.indices.astype(np.int64), chunks.tolist()
    child_starts, row_starts = level.indptr.tolist(), reaching.indptr.tolist()
    reaching_rows = reaching.indices.astype(np.int32, copy=False)
    for node in range(level.shape[0]):
        children = all_children[child_starts[node] : child_starts[node + 1]]
        if len(children) == 1:
            continue
        rows = reaching_rows[row_starts[node] : row_starts[node + 1]]
        has_one_block = len(children) <= MAX_BLOCK_LABELS
        for begin in range(0, len(children), MAX_BLOCK_LABELS):
            yield TrainingBlock(
                tree, first_node + node, chunk_numbers[node], begin, is_leaf and has_one_block, rows,
                children[begin : begin + MAX_BLOCK_LABELS], by_child,
            )  # fmt: skip

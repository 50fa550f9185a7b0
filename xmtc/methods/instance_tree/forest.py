"""The trained form of trees over documents, and the compiled search of it: which leaf a document falls into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from xmtc.core.array_validation import is_ascending, is_offset_array
from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.predictions import NO_LABEL
from xmtc.linear.search import insert_ranked
from xmtc.methods.instance_tree.tree_growth import LEAF
from xmtc.storage.form import Form, array


@dataclass(frozen=True)
class Forest(Form):
    """Nodes are numbered tree by tree and in preorder: a node's positive child is the next node. Its entries
    ends[n]:ends[n + 1] are features and weights; in a leaf, labels and which part of its documents has them. The bias
    is the feature after the last."""

    roots: np.ndarray = array(np.int64)  # (n_trees + 1,), tree t has the nodes roots[t]:roots[t + 1]
    negative: np.ndarray = array(np.int32)  # (n_nodes,), the negative child, numbered within the tree; or LEAF
    sizes: np.ndarray = array(np.int32)  # (n_nodes,), training documents that came to it
    ends: np.ndarray = array(np.int64)  # (n_nodes + 1,)
    items: np.ndarray = array(np.int32)  # (n_entries,), ascending in leaves
    values: np.ndarray = array(np.float32)  # (n_entries,)

    @classmethod
    def from_trees(cls, trees: Sequence[dict[str, np.ndarray]]) -> Forest:
        """From the arrays of single trees, without roots."""
        firsts = np.cumsum([0] + [tree["ends"][-1] for tree in trees])
        ends = [tree["ends"][1:] + first for tree, first in zip(trees, firsts[:-1], strict=True)]
        joined = {name: np.concatenate([tree[name] for tree in trees]) for name in TREE_ARRAYS if name != "ends"}
        roots = np.cumsum([0] + [len(tree["negative"]) for tree in trees])
        return cls(roots=roots, ends=np.concatenate([[0], *ends]), **joined)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @property
    def n_trees(self) -> int:
        return len(self.roots) - 1

    def assign_leaves(self, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, n_features: int) -> np.ndarray:
        """(n_docs, n_trees) int64, the node at which each document ends in each tree."""
        found = np.empty((len(indptr) - 1, self.n_trees), np.int64)
        find_leaves(indptr, indices, data, *self.arrays, np.zeros(n_features + 1, np.float32), found)
        return found

    def iterate_path(self, tree: int, leaf: int) -> Iterator[tuple[int, int]]:
        """The nodes from a tree's root to the one above a leaf, each with the node that follows."""
        node = int(self.roots[tree])
        while node != leaf:
            other = int(self.roots[tree] + self.negative[node])
            following = other if leaf >= other else node + 1
            yield node, following
            node = following

    def check_sizes(self, n_labels: int, n_features: int) -> None:
        """Refuse arrays that would lead a search out of its memory, or round in circles."""
        if not (self._has_valid_nodes() and self._has_valid_entries(n_labels, n_features)):
            raise ValueError("the arrays of a forest do not fit together")

    def _has_valid_nodes(self) -> bool:
        n_nodes, n_entries = len(self.negative), len(self.items)
        return (
            self.n_trees >= 1
            and is_offset_array(self.roots, self.n_trees, n_nodes)
            and is_offset_array(self.ends, n_nodes, n_entries)
            and len(self.sizes) == n_nodes
            and len(self.values) == n_entries
            and is_ascending(self.roots, strict=True)
            and bool((self.sizes >= 1).all())
            and is_preorder(self.roots, self.negative, np.empty(n_nodes, np.int64))
        )

    def _has_valid_entries(self, n_labels: int, n_features: int) -> bool:
        node = np.repeat(np.arange(len(self.negative)), np.diff(self.ends))
        in_leaf = self.negative[node] == LEAF
        labels, shares = self.items[in_leaf], self.values[in_leaf]
        same_leaf = np.diff(node[in_leaf]) == 0
        features = self.items[~in_leaf]
        return bool(
            ((labels >= 0) & (labels < n_labels)).all()
            and (np.diff(labels)[same_leaf] > 0).all()
            and ((shares >= 0) & (shares <= 1)).all()
            and ((features >= 0) & (features <= n_features)).all()
        )


TREE_ARRAYS = tuple(field.name for field in fields(Forest) if field.name != "roots")  # what a single tree has


@kernel
def is_preorder(roots, negative, after):
    """Whether each tree's nodes are numbered so, every one the child of one before it. `after` takes where what lies
    under a node ends."""
    for tree in range(len(roots) - 1):
        begin, end = roots[tree], roots[tree + 1]
        for node in range(end - 1, begin - 1, -1):
            after[node] = node + 1
            if negative[node] != LEAF:
                other = begin + negative[node]
                if not node + 1 < other < end or after[node + 1] != other:
                    return False
                after[node] = after[other]
        if after[begin] != end:
            return False
    return True


@fast_kernel
def find_leaves(indptr, indices, data, roots, negative, sizes, ends, items, values, x, found):
    """`Forest.leaves`, written into its last argument. `x` begins as zeros, and is left so but for the bias. Tree by
    tree, so that a tree's weights stay near the processor."""
    x[len(x) - 1] = 1
    for tree in range(len(roots) - 1):
        for doc in range(len(indptr) - 1):
            for i in range(indptr[doc], indptr[doc + 1]):
                x[indices[i]] = data[i]
            node = roots[tree]
            while negative[node] != LEAF:
                margin = np.float32(0)
                for i in range(ends[node], ends[node + 1]):
                    margin += values[i] * x[items[i]]
                node = node + 1 if margin >= 0 else roots[tree] + negative[node]
            found[doc, tree] = node
            for i in range(indptr[doc], indptr[doc + 1]):
                x[indices[i]] = 0


@kernel
def add_votes(leaves, ends, items, values, totals, seen):
    """Add up what the leaves of one document say of their labels, and list these; return how many. `totals` begin as
    zeros."""
    n = np.int64(0)
    for leaf in leaves:
        for i in range(ends[leaf], ends[leaf + 1]):
            label = items[i]
            if totals[label] == 0:
                seen[n] = label
                n += 1
            totals[label] += values[i] + np.float32(1e-30)  # never 0, so that none is seen twice
    return n


@kernel
def rank_by_leaf_votes(leaves, ends, items, values, totals, seen, labels, scores):
    """The best labels of each document by the mean of what its leaves say, written into the last two arguments."""
    n_docs, n_trees = leaves.shape
    for doc in range(n_docs):
        n, n_top = add_votes(leaves[doc], ends, items, values, totals, seen), np.int64(0)
        for i in range(n):
            label = np.int64(seen[i])
            n_top = insert_ranked(min(totals[label] / n_trees, np.float32(1)), label, scores[doc], labels[doc], n_top)
            totals[label] = 0
        for i in range(n_top, labels.shape[1]):
            labels[doc, i], scores[doc, i] = NO_LABEL, 0


@kernel
def compute_label_shares(label, negative, sizes, ends, items, values, shares):
    """Write which part of the documents at every node of one tree has a label, as far as its leaves remember it: an
    inner node's documents are its children's."""
    for node in range(len(shares) - 1, -1, -1):
        if negative[node] != LEAF:
            first, second = node + 1, negative[node]
            together = shares[first] * sizes[first] + shares[second] * sizes[second]
            shares[node] = together / (np.float64(sizes[first]) + sizes[second])
            continue
        low, high = ends[node], ends[node + 1]
        while low < high:
            middle = (low + high) // 2
            if items[middle] < label:
                low = middle + 1
            else:
                high = middle
        shares[node] = values[low] if low < ends[node + 1] and items[low] == label else 0.0

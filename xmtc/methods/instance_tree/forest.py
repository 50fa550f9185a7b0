"""Forest over documents: its arrays, and the compiled search for the leaves of a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from xmtc.core.array_validation import is_ascending, is_offset_array
from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.predictions import NO_LABEL
from xmtc.linear.search import add_ranked, sort_ranked
from xmtc.methods.instance_tree.tree_growth import LEAF
from xmtc.storage.form import Form, array


@dataclass(frozen=True)
class Forest(Form):
    """Binary trees in flat arrays, numbered tree by tree in preorder: a node's positive child is the next node.

    Entries ends[n]:ends[n + 1] of `items` and `values` belong to node n. In an inner node they are features and
    weights, where the number after the last feature is the bias. In a leaf they are labels and their shares of the
    leaf's documents.
    """

    roots: np.ndarray = array(np.int64)  # (n_trees + 1,), tree t has the nodes roots[t]:roots[t + 1]
    negative: np.ndarray = array(np.int32)  # (n_nodes,), number of the negative child within the tree, or LEAF
    sizes: np.ndarray = array(np.int32)  # (n_nodes,), number of training documents that reach the node
    ends: np.ndarray = array(np.int64)  # (n_nodes + 1,)
    items: np.ndarray = array(np.int32)  # (n_entries,), ascending within a leaf
    values: np.ndarray = array(np.float32)  # (n_entries,)

    @classmethod
    def from_trees(cls, trees: Sequence[dict[str, np.ndarray]]) -> Forest:
        """Return a forest from the arrays TREE_ARRAYS of single trees."""
        offsets = np.cumsum([0] + [tree["ends"][-1] for tree in trees])
        ends = [tree["ends"][1:] + offset for tree, offset in zip(trees, offsets[:-1], strict=True)]
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
        """Return the leaf of each document in each tree, shape (n_docs, n_trees)."""
        leaves = np.empty((len(indptr) - 1, self.n_trees), np.int64)
        find_leaves(indptr, indices, data, *self.arrays, np.zeros(n_features + 1, np.float32), leaves)
        return leaves

    def iterate_path(self, tree: int, leaf: int) -> Iterator[tuple[int, int]]:
        """Yield each inner node on the path from a tree's root to a leaf, with its child on the path."""
        node = int(self.roots[tree])
        while node != leaf:
            negative_child = int(self.roots[tree] + self.negative[node])
            child = negative_child if leaf >= negative_child else node + 1
            yield node, child
            node = child

    def check_sizes(self, n_labels: int, n_features: int) -> None:
        """Raise an error if a search of the arrays would read out of bounds or not terminate."""
        if not self._has_valid_nodes():
            raise ValueError("the nodes of a forest (roots, negative, sizes, ends) are not trees in preorder")
        if not self._has_valid_entries(n_labels, n_features):
            raise ValueError(
                f"items or values of a forest are out of range; expected labels below {n_labels}, ascending, with "
                f"shares from 0 to 1 in leaves, and features up to {n_features} in inner nodes"
            )

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


TREE_ARRAYS = tuple(field.name for field in fields(Forest) if field.name != "roots")  # names of a single tree's arrays


@kernel
def is_preorder(roots, negative, subtree_ends):
    """Return True if the nodes of each tree are numbered in preorder; `subtree_ends` is a work array."""
    for tree in range(len(roots) - 1):
        begin, end = roots[tree], roots[tree + 1]
        for node in range(end - 1, begin - 1, -1):
            subtree_ends[node] = node + 1
            if negative[node] != LEAF:
                negative_child = begin + negative[node]
                if not node + 1 < negative_child < end or subtree_ends[node + 1] != negative_child:
                    return False
                subtree_ends[node] = subtree_ends[negative_child]
        if subtree_ends[begin] != end:
            return False
    return True


@fast_kernel
def find_leaves(indptr, indices, data, roots, negative, sizes, ends, items, values, x, leaves):
    """Write the leaf of each document in each tree into `leaves`; `x` is a work array of zeros.

    The outer loop is over trees, so that the weights of a tree stay in the processor's cache.
    """
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
            leaves[doc, tree] = node
            for i in range(indptr[doc], indptr[doc + 1]):
                x[indices[i]] = 0


@kernel
def add_votes(leaves, ends, items, values, totals, seen):
    """Add the label shares of a document's leaves to `totals`, which is zero, list the labels in `seen`, and return
    their number."""
    n = np.int64(0)
    for leaf in leaves:
        for i in range(ends[leaf], ends[leaf + 1]):
            label = items[i]
            if totals[label] == 0:
                seen[n] = label
                n += 1
            totals[label] += values[i] + np.float32(1e-30)  # never 0, so that a label is listed once
    return n


@kernel
def rank_by_leaf_votes(leaves, ends, items, values, totals, seen, labels, scores):
    """Write the labels with the largest mean share in each document's leaves into `labels` and `scores`."""
    n_docs, n_trees = leaves.shape
    for doc in range(n_docs):
        n, n_top = add_votes(leaves[doc], ends, items, values, totals, seen), np.int64(0)
        for i in range(n):
            label = np.int64(seen[i])
            n_top = add_ranked(min(totals[label] / n_trees, np.float32(1)), label, scores[doc], labels[doc], n_top)
            totals[label] = 0
        sort_ranked(scores[doc], labels[doc], n_top)
        for i in range(n_top, labels.shape[1]):
            labels[doc, i], scores[doc, i] = NO_LABEL, 0


@kernel
def compute_label_shares(label, negative, sizes, ends, items, values, shares):
    """Write the share of documents with a label at every node of one tree, computed from what its leaves store."""
    for node in range(len(shares) - 1, -1, -1):
        if negative[node] != LEAF:
            first, second = node + 1, negative[node]
            n_with_label = shares[first] * sizes[first] + shares[second] * sizes[second]
            shares[node] = n_with_label / (np.float64(sizes[first]) + sizes[second])
        else:
            place = ends[node] + np.searchsorted(items[ends[node] : ends[node + 1]], label)
            shares[node] = values[place] if place < ends[node + 1] and items[place] == label else 0.0

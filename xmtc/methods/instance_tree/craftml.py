"""CRAFTML: a random forest over documents whose nodes cluster label vectors.

Paper: Siblini, Kuntz, Meyer: CRAFTML, an Efficient Clustering-based Random Forest for Extreme Multi-label Learning
(ICML 2018).

Idea: every tree sees its own random projection of the features and of the labels, by feature hashing. A node divides
its documents into k clusters: spherical k-means over a sample of the projected label vectors, started by k-means++,
gives the clusters, and the mean of a cluster's projected documents is its centroid. A document goes to the child with
the most similar centroid. A leaf stores the mean label vector of its documents; the score of a label is the mean over
the trees.

Where the paper gives no detail, the authors' code is followed: five rounds of k-means, and only the largest entries of
a centroid are kept. Differs from it in that a tree has one projection of the labels instead of one for each node, and
that a centroid keeps 100 entries instead of 1,000 by default, for a model of a third of the size.
Differs from FastXML in that a node has up to k children, and that its classifier is not optimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import is_ascending, is_offset_array
from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.memory import check_fits
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.core.sparse import to_kernel_arrays
from xmtc.methods.instance_tree.base import derive_tree_state
from xmtc.methods.instance_tree.centroid_growth import compute_node_shares, find_centroid_leaves, grow_centroid_tree
from xmtc.methods.instance_tree.model import LeafVoteModel
from xmtc.storage.form import Form, array

MAX_BUCKETS, MAX_CLUSTERS = 1_000_000, 100
FEATURES, LABELS = 0, 1  # what a projection is of


@dataclass(frozen=True)
class CRAFTML(Method):
    """Random forest over documents that clusters label vectors (Siblini, Kuntz, Meyer, ICML 2018).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import CRAFTML
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(CRAFTML(n_trees=10, max_leaf=2)).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog']]
    """

    has_cluster_support: ClassVar[bool] = True
    quick_parameters: ClassVar[dict[str, Any]] = {}

    n_trees: int = param(50, "Number of trees, each grown from its own random seed.", low=1, high=10_000)
    n_clusters: int = param(10, "Number of clusters k of a node.", low=2, high=MAX_CLUSTERS, search=(2, 20), log=True)
    max_leaf: int = param(10, "Maximum number of documents in a leaf.", low=1, search=(5, 50), log=True)
    leaf_labels: int = param(100, "Maximum number of labels that a leaf stores.", low=1)
    feature_buckets: int = param(10_000, "Number of hash buckets of the features.", low=1, high=MAX_BUCKETS)
    label_buckets: int = param(10_000, "Number of hash buckets of the labels.", low=1, high=MAX_BUCKETS)
    sample: int = param(20_000, "Maximum number of documents that a node clusters.", low=2)
    centroid_features: int = param(
        100, "Maximum number of features of a centroid, the largest ones.", low=1, search=(50, 1000), log=True
    )
    seed: int = param(0, "Random seed of the projections and the clusters.", low=0, high=2**32 - 1)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> CentroidForestModel:
        claim_checkpoint(run, self, data)
        assert data.Y is not None
        check_fits(
            run.n_threads * self.estimate_tree_bytes(data),
            f"Growing {run.n_threads} trees in parallel",
            "use fewer threads",
        )
        X, Y = data.X, data.Y
        limits = (
            self.n_clusters,
            min(self.max_leaf, data.n_docs),
            min(self.leaf_labels, data.n_labels),
            min(self.sample, data.n_docs),
            min(self.centroid_features, self.feature_buckets),
        )

        def grow(number: int) -> dict[str, np.ndarray]:
            features = project(X, self.seed, number, FEATURES, self.feature_buckets)
            labels = project(Y, self.seed, number, LABELS, self.label_buckets)
            sizes = self.feature_buckets, self.label_buckets, data.n_labels
            arrays = grow_centroid_tree(
                (*to_kernel_arrays(features), compute_scales(features)),
                (*to_kernel_arrays(labels), compute_scales(labels)),
                to_kernel_arrays(Y)[:2],
                sizes,
                limits,
                derive_tree_state(self.seed, number),
            )
            return dict(zip(TREE_ARRAYS, arrays, strict=True))

        trees = run.map_with_checkpoint(grow, range(self.n_trees), lambda number: f"tree-{number}", "growing trees")
        forest = CentroidForest.from_trees(list(trees), self.seed, self.feature_buckets)
        return CentroidForestModel(n_labels=data.n_labels, views=data.sizes, forest=forest)

    def estimate_tree_bytes(self, data: Dataset) -> int:
        """Return the maximum working memory for growing one tree, without the tree itself."""
        assert data.Y is not None
        buckets = self.feature_buckets + self.label_buckets
        return (
            24 * (data.X.nnz + data.Y.nnz)
            + 80 * data.n_docs
            + (4 * self.n_clusters + 24) * buckets
            + 24 * data.n_labels
        )


def hash_columns(n: int, seed: int, tree: int, kind: int, n_buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the bucket and the sign of each column in the projection of one tree (the hashing trick)."""
    state = np.random.SeedSequence((seed, tree, kind)).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):  # SplitMix64 of the column's number
        z = state + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    buckets = ((z >> np.uint64(1)) % np.uint64(n_buckets)).astype(np.int32)
    return buckets, np.where(z & np.uint64(1), 1, -1).astype(np.float32)


def project(matrix: csr_array, seed: int, tree: int, kind: int, n_buckets: int) -> csr_array:
    """Return the projected rows; columns in the same bucket are not added up, which no sum over them needs."""
    buckets, signs = hash_columns(matrix.shape[1], seed, tree, kind, n_buckets)
    data = matrix.data * signs[matrix.indices]
    return csr_array((data, buckets[matrix.indices], matrix.indptr), shape=(matrix.shape[0], n_buckets))


def compute_scales(projected: csr_array) -> np.ndarray:
    """Return one over the length of each projected row, 0 for rows of length 0."""
    summed = projected.copy()
    summed.sum_duplicates()
    rows = np.repeat(np.arange(summed.shape[0]), np.diff(summed.indptr))
    lengths = np.sqrt(np.bincount(rows, summed.data.astype(np.float64) ** 2, minlength=summed.shape[0]))
    return np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 1e-30).astype(np.float32)


@dataclass(frozen=True)
class CentroidForest(Form):
    """Trees with a centroid for each node but the root, in flat arrays, each tree numbered in breadth-first order.

    Entries centroid_ends[n]:centroid_ends[n + 1] of `buckets` and `weights` are the centroid of node n, and entries
    ends[n]:ends[n + 1] of `items` and `values` are the labels of a leaf and their shares of its documents.
    """

    seed: int
    n_buckets: int
    roots: np.ndarray = array(np.int64)  # (n_trees + 1,), tree t has the nodes roots[t]:roots[t + 1]
    n_children: np.ndarray = array(np.int32)  # (n_nodes,), 0 for leaves
    sizes: np.ndarray = array(np.int32)  # (n_nodes,), number of training documents that reach the node
    centroid_ends: np.ndarray = array(np.int64)  # (n_nodes + 1,)
    buckets: np.ndarray = array(np.int32)  # (n_centroid_entries,)
    weights: np.ndarray = array(np.float32)  # (n_centroid_entries,)
    ends: np.ndarray = array(np.int64)  # (n_nodes + 1,)
    items: np.ndarray = array(np.int32)  # (n_entries,), ascending within a leaf
    values: np.ndarray = array(np.float32)  # (n_entries,)

    @classmethod
    def from_trees(cls, trees: Sequence[dict[str, np.ndarray]], seed: int, n_buckets: int) -> CentroidForest:
        """Return a forest from the arrays TREE_ARRAYS of single trees."""
        joined = {name: np.concatenate([tree[name] for tree in trees]) for name in TREE_ARRAYS if "ends" not in name}
        for name in ("centroid_ends", "ends"):
            lengths = np.concatenate([np.diff(tree[name]) for tree in trees])
            joined[name] = np.concatenate([[0], np.cumsum(lengths)])
        roots = np.cumsum([0] + [len(tree["n_children"]) for tree in trees])
        return cls(seed=seed, n_buckets=n_buckets, roots=roots, **joined)

    @property
    def n_trees(self) -> int:
        return len(self.roots) - 1

    @cached_property
    def starts(self) -> np.ndarray:
        """First child of each node; the children of node n are starts[n]:starts[n] + n_children[n]."""
        ends = np.cumsum(self.n_children, dtype=np.int64)
        trees = np.repeat(np.arange(self.n_trees), np.diff(self.roots))
        before = np.concatenate([[0], ends])[self.roots[:-1]]
        return ends - self.n_children - before[trees] + self.roots[trees] + 1

    def assign_leaves(self, X: csr_array) -> np.ndarray:
        """Return the leaf of each document in each tree, shape (n_docs, n_trees)."""
        leaves = np.empty((X.shape[0], self.n_trees), np.int64)
        centroids = np.zeros((self.n_buckets, max(1, int(self.n_children.max()))), np.float32)
        nodes = self.starts, self.n_children, self.centroid_ends, self.buckets, self.weights
        for tree, root in enumerate(self.roots[:-1]):
            projected = to_kernel_arrays(project(X, self.seed, tree, FEATURES, self.n_buckets))
            find_centroid_leaves(projected, root, nodes, centroids, leaves[:, tree])
        return leaves

    def list_path(self, tree: int, leaf: int) -> list[int]:
        """Return the nodes from a tree's root to a leaf."""
        root, path = int(self.roots[tree]), [leaf]
        while path[-1] != root:
            path.append(root + int(np.searchsorted(self.starts[root : self.roots[tree + 1]], path[-1], "right")) - 1)
            while not self.n_children[path[-1]]:  # leaves between two parents start where the second does
                path[-1] -= 1
        return path[::-1]

    def check_sizes(self, n_labels: int, n_features: int) -> None:
        """Raise an error if a search of the arrays would read out of bounds or not terminate."""
        if not 1 <= self.n_buckets <= MAX_BUCKETS or not 0 <= self.seed < 2**32:
            raise ValueError(f"n_buckets={self.n_buckets} or seed={self.seed} of a forest is out of range")
        if not self._has_valid_nodes():
            raise ValueError(
                "the nodes of a forest (roots, n_children, sizes, ends) are not trees in breadth-first order"
            )
        node = np.repeat(np.arange(len(self.sizes)), np.diff(self.ends))
        is_valid = (
            ((self.buckets >= 0) & (self.buckets < self.n_buckets)).all()
            and np.isfinite(self.weights).all()
            and ((self.items >= 0) & (self.items < n_labels)).all()
            and (np.diff(self.items)[np.diff(node) == 0] > 0).all()
            and ((self.values >= 0) & (self.values <= 1)).all()
        )
        if not is_valid:
            raise ValueError(
                f"items, values, buckets or weights of a forest are out of range; expected labels below {n_labels}, "
                f"ascending, with shares from 0 to 1, and buckets below {self.n_buckets} with finite weights"
            )

    def _has_valid_nodes(self) -> bool:
        n_nodes = len(self.n_children)
        is_sized = (
            self.n_trees >= 1
            and is_offset_array(self.roots, self.n_trees, n_nodes)
            and is_ascending(self.roots, strict=True)
            and is_offset_array(self.centroid_ends, n_nodes, len(self.buckets))
            and is_offset_array(self.ends, n_nodes, len(self.items))
            and (len(self.weights), len(self.values), len(self.sizes)) == (len(self.buckets), len(self.items), n_nodes)
            and bool(((self.n_children >= 0) & (self.n_children <= MAX_CLUSTERS)).all() and (self.sizes >= 1).all())
        )
        if not is_sized:
            return False
        last = self.roots[1:] - 1
        is_root = np.zeros(n_nodes, bool)
        is_root[self.roots[:-1]] = True
        is_reached = is_root | (self.starts > np.arange(n_nodes))
        return bool(is_reached.all() and (self.starts[last] + self.n_children[last] == self.roots[1:]).all())


TREE_ARRAYS = tuple(field.name for field in fields(CentroidForest) if field.name not in ("seed", "n_buckets", "roots"))


@dataclass(frozen=True, kw_only=True)
class CentroidForestModel(LeafVoteModel):
    """Label shares in the leaves of trees with centroids."""

    forest: CentroidForest

    def _find_leaf_arrays(self, X: csr_array) -> tuple[np.ndarray, ...]:
        return self.forest.assign_leaves(X), self.forest.ends, self.forest.items, self.forest.values

    def _attribute_score(self, X: csr_array, label: int) -> np.ndarray:
        forest, contributions = self.forest, np.zeros(X.shape[1])
        for tree, leaf in enumerate(forest.assign_leaves(X)[0]):
            begin, end = forest.roots[tree], forest.roots[tree + 1]
            shares = np.empty(end - begin)
            nodes = forest.starts[begin:end] - begin, forest.n_children[begin:end], forest.sizes[begin:end]
            compute_node_shares(label, *nodes, forest.ends[begin : end + 1], forest.items, forest.values, shares)
            buckets, signs = hash_columns(X.shape[1], forest.seed, tree, FEATURES, forest.n_buckets)
            for node, child in pairwise(forest.list_path(tree, int(leaf))):
                siblings = range(forest.starts[node], forest.starts[node] + forest.n_children[node])
                advantage = self._densify(child) - sum(map(self._densify, siblings)) / len(siblings)
                parts = X.data * signs[X.indices] * advantage[buckets[X.indices]]
                change = shares[child - begin] - shares[node - begin]
                contributions[X.indices] += change * parts / max(np.abs(parts).sum(), 1e-30)
        return contributions / forest.n_trees

    def _densify(self, node: int) -> np.ndarray:
        """Return the centroid of a node, shape (n_buckets,)."""
        entries = slice(self.forest.centroid_ends[node], self.forest.centroid_ends[node + 1])
        centroid = np.zeros(self.forest.n_buckets)
        centroid[self.forest.buckets[entries]] = self.forest.weights[entries]
        return centroid

    def check(self) -> None:
        self.forest.check_sizes(self.n_labels, self.n_features)

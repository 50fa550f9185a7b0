"""Models of instance trees: label shares in the leaves of a forest, optionally re-ranked by label centroids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import is_offset_array
from xmtc.core.batching import predict_in_batches
from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.numba_support import kernel
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.core.sparse import normalise_rows, to_kernel_arrays
from xmtc.linear.search import add_ranked, sort_ranked
from xmtc.methods.instance_tree.forest import Forest, add_votes, compute_label_shares, rank_by_leaf_votes
from xmtc.storage.form import array

MAX_BATCH_DOCUMENTS = 1024
MAX_GAMMA = 1e6


@dataclass(frozen=True, kw_only=True)
class LeafVoteModel(Model, ABC):
    """Mean over the trees of the label's share among the training documents in the document's leaf.

    A subclass has the trees.
    """

    @property
    def n_features(self) -> int:
        return sum(self.views.values())

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        k = min(k, self.n_labels)
        return predict_in_batches(lambda batch: self._rank(data.X[batch], k), data.n_docs, k, MAX_BATCH_DOCUMENTS, run)

    def _rank(self, X: csr_array, k: int) -> Predictions:
        labels, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        rank_by_leaf_votes(
            *self._find_leaf_arrays(X),
            np.zeros(self.n_labels, np.float32),
            np.empty(self.n_labels, np.int32),
            labels,
            scores,
        )
        return Predictions.from_valid_arrays(labels, scores)

    @abstractmethod
    def _find_leaf_arrays(self, X: csr_array) -> tuple[np.ndarray, ...]:
        """Return the leaves of each document, and the arrays with their labels and shares."""

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the contribution of each feature to the label's score.

        Every step on the document's path through a tree changes the share of documents with the label. The change is
        divided among the features in proportion to their parts of the margin.
        """
        (view,) = self.views
        features, weights = document.X.indices, self._attribute_score(document.X, label)
        return Explanation.from_occurrences(view, features, weights[features])

    @abstractmethod
    def _attribute_score(self, X: csr_array, label: int) -> np.ndarray:
        """Return each feature's contribution to the change of the share from the roots to the leaves."""


@dataclass(frozen=True, kw_only=True)
class ForestModel(LeafVoteModel):
    """Label shares in the leaves of trees with linear separators."""

    forest: Forest

    def _find_leaf_arrays(self, X: csr_array) -> tuple[np.ndarray, ...]:
        leaves = self.forest.assign_leaves(*to_kernel_arrays(X), self.n_features)
        return leaves, self.forest.ends, self.forest.items, self.forest.values

    def _attribute_score(self, X: csr_array, label: int) -> np.ndarray:
        x, forest = np.append(X.toarray()[0], np.float32(1)), self.forest
        contributions = np.zeros(len(x))
        for tree, leaf in enumerate(forest.assign_leaves(*to_kernel_arrays(X), self.n_features)[0]):
            begin, end = forest.roots[tree], forest.roots[tree + 1]
            shares = np.empty(end - begin)
            nodes = forest.negative[begin:end], forest.sizes[begin:end], forest.ends[begin : end + 1]
            compute_label_shares(label, *nodes, forest.items, forest.values, shares)
            for node, child in forest.iterate_path(tree, int(leaf)):
                entries = slice(forest.ends[node], forest.ends[node + 1])
                parts = forest.values[entries].astype(np.float64) * x[forest.items[entries]]
                change = shares[child - begin] - shares[node - begin]
                sign = 1 if child == node + 1 else -1
                contributions[forest.items[entries]] += sign * change * parts / max(np.abs(parts).sum(), 1e-30)
        return contributions[:-1] / forest.n_trees

    def check(self) -> None:
        self.forest.check_sizes(self.n_labels, self.n_features)


@dataclass(frozen=True, kw_only=True)
class RerankedForestModel(ForestModel):
    """Score P^α B^(1 − α) of PfastreXML.

    P is the score of the forest. B = 1 / (1 + exp(γ/2 ‖x − μ‖²)) is high if the document x is near the centroid μ of
    the label's training documents, all of unit length.
    """

    alpha: float  # α
    gamma: float  # γ
    starts: np.ndarray = array(np.int64)  # (n_features + 1,), a feature's entries are starts[f]:starts[f + 1]
    labels: np.ndarray = array(np.int32)  # (n_entries,), labels whose centroids have the feature
    centres: np.ndarray = array(np.float32)  # (n_entries,), values of the centroids
    squares: np.ndarray = array(np.float32)  # (n_labels,), ‖μ‖²

    def _rank(self, X: csr_array, k: int) -> Predictions:
        labels, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        work = np.zeros(self.n_labels, np.float32), np.empty(self.n_labels, np.int32), np.zeros(self.n_labels)
        centroids = self.starts, self.labels, self.centres, self.squares
        weights = float(self.alpha), float(self.gamma)  # a model folder may have an int, such as 30
        documents = to_kernel_arrays(normalise_rows(X))
        rerank_by_centroids(*self._find_leaf_arrays(X), *documents, *centroids, *weights, *work, labels, scores)
        return Predictions.from_valid_arrays(labels, scores)

    def _attribute_score(self, X: csr_array, label: int) -> np.ndarray:
        """Return each feature's contribution to the logarithm of the score, α log P + (1 − α) log B."""
        leaves, *leaf_arrays = self._find_leaf_arrays(X)
        totals = np.zeros(self.n_labels, np.float32)
        add_votes(leaves[0], *leaf_arrays, totals, np.empty(self.n_labels, np.int32))
        forest_score = max(float(totals[label]) / self.forest.n_trees, 1e-6)
        closeness, x = np.zeros(self.n_features), normalise_rows(X).toarray()[0]
        for feature in X.indices:
            entries = slice(self.starts[feature], self.starts[feature + 1])
            closeness[feature] = self.gamma * x[feature] * self.centres[entries][self.labels[entries] == label].sum()
        return self.alpha * super()._attribute_score(X, label) / forest_score + (1 - self.alpha) * closeness

    def check(self) -> None:
        super().check()
        n_entries = len(self.labels)
        if not is_offset_array(self.starts, self.n_features, n_entries) or len(self.centres) != n_entries:
            raise ValueError(
                f"starts, labels and centres do not fit together; expected offsets of {self.n_features} features, and "
                "as many centres as labels"
            )
        if not ((self.labels >= 0) & (self.labels < self.n_labels)).all() or len(self.squares) != self.n_labels:
            raise ValueError(f"labels or squares do not fit the {self.n_labels} labels of the model")
        if not (0 <= self.alpha <= 1 and 0 <= self.gamma <= MAX_GAMMA):
            raise ValueError(
                f"alpha={self.alpha} or gamma={self.gamma} is out of range; expected alpha from 0 to 1, and gamma from "
                f"0 to {MAX_GAMMA:g}"
            )


@kernel
def log_tail_score(square_distance, gamma):
    """Return log B = −log(1 + exp(γ/2 ‖x − μ‖²))."""
    z = gamma / 2 * max(square_distance, 0.0)
    return -z - np.log1p(np.exp(-z))


@kernel
def rerank_by_centroids(
    leaves, ends, items, values,
    indptr, indices, data,
    starts, tail_labels, centres, squares, alpha, gamma,
    totals, seen, dots, labels, scores,
):  # fmt: skip
    """Write the labels with the highest score P^α B^(1 − α); `totals` and `dots` are work arrays of zeros."""
    n_docs, n_trees = leaves.shape
    for doc in range(n_docs):
        square = 0.0
        for i in range(indptr[doc], indptr[doc + 1]):
            square += data[i] * data[i]
            for j in range(starts[indices[i]], starts[indices[i] + 1]):
                dots[tail_labels[j]] += data[i] * centres[j]
        n, n_top = add_votes(leaves[doc], ends, items, values, totals, seen), np.int64(0)
        for i in range(n):
            label = np.int64(seen[i])
            log_forest_score = np.log(min(totals[label] / n_trees, np.float32(1)))
            log_centroid_score = log_tail_score(square + squares[label] - 2 * dots[label], gamma)
            score = np.float32(np.exp(alpha * log_forest_score + (1 - alpha) * log_centroid_score))
            n_top = add_ranked(score, label, scores[doc], labels[doc], n_top)
            totals[label] = 0
        sort_ranked(scores[doc], labels[doc], n_top)
        for i in range(len(dots)):
            dots[i] = 0
        for i in range(n_top, labels.shape[1]):
            labels[doc, i], scores[doc, i] = NO_LABEL, 0

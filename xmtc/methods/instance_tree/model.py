"""What trees over documents leave behind: leaves vote for labels; after PfastreXML, labels' centres are asked too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import is_offset_array
from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.numba_support import kernel
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.core.sparse import normalise_rows, to_kernel_arrays
from xmtc.linear.search import insert_ranked
from xmtc.methods.instance_tree.forest import Forest, add_votes, compute_label_shares, rank_by_leaf_votes
from xmtc.storage.form import array

MAX_BATCH_DOCUMENTS = 1024  # that one thread looks at, at a time
MAX_GAMMA = 1e6  # that γ may be


@dataclass(frozen=True, kw_only=True)
class ForestModel(Model):
    """The mean over the trees of what the document's leaf says: which part of its training documents has a label."""

    forest: Forest

    @property
    def n_features(self) -> int:
        return sum(self.views.values())

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        k = min(k, self.n_labels)
        size = max(1, min(MAX_BATCH_DOCUMENTS, -(-data.n_docs // run.n_threads)))
        batches = [data.X[i : i + size] for i in range(0, data.n_docs, size)]
        empty = Predictions.from_valid_arrays(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        answers = run.map(lambda X: self._rank(X, k), batches, "predicting", total=len(batches))
        return Predictions.stack([empty, *answers])

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

    def _find_leaf_arrays(self, X: csr_array) -> tuple[np.ndarray, ...]:
        """The leaves of each document, and where to read what they say."""
        leaves = self.forest.assign_leaves(*to_kernel_arrays(X), self.n_features)
        return leaves, self.forest.ends, self.forest.items, self.forest.values

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """What each word adds to the label's score: every step of the document's path through a tree changes the part
        of documents that have the label, and the words share the change as they share in the margin."""
        (view,) = self.views
        features, weights = document.X.indices, self._attribute_score(document.X, label)
        return Explanation.from_occurrences(view, features, weights[features])

    def _attribute_score(self, X: csr_array, label: int) -> np.ndarray:
        """(n_features,), of the change from the roots to the leaves."""
        x, forest = np.append(X.toarray()[0], np.float32(1)), self.forest
        total = np.zeros(len(x))
        for tree, leaf in enumerate(forest.assign_leaves(*to_kernel_arrays(X), self.n_features)[0]):
            begin, end = forest.roots[tree], forest.roots[tree + 1]
            shares = np.empty(end - begin)
            nodes = forest.negative[begin:end], forest.sizes[begin:end], forest.ends[begin : end + 1]
            compute_label_shares(label, *nodes, forest.items, forest.values, shares)
            for node, following in forest.iterate_path(tree, int(leaf)):
                here = slice(forest.ends[node], forest.ends[node + 1])
                parts = forest.values[here].astype(np.float64) * x[forest.items[here]]
                change = shares[following - begin] - shares[node - begin]
                toward = 1 if following == node + 1 else -1
                total[forest.items[here]] += toward * change * parts / max(np.abs(parts).sum(), 1e-30)
        return total[:-1] / forest.n_trees

    def check(self) -> None:
        self.forest.check_sizes(self.n_labels, self.n_features)


@dataclass(frozen=True, kw_only=True)
class RerankedForestModel(ForestModel):
    """P^α B^(1 − α), where P is what the leaves say, and B = 1 / (1 + exp(γ/2 ‖x − μ‖²)) tells how near the document is
    to the centre μ of the label's training documents, all of length 1."""

    alpha: float
    gamma: float
    starts: np.ndarray = array(np.int64)  # (n_features + 1,), a feature's entries are starts[f]:starts[f + 1]
    labels: np.ndarray = array(np.int32)  # (n_entries,), the labels whose centres have the feature
    centres: np.ndarray = array(np.float32)  # (n_entries,)
    squares: np.ndarray = array(np.float32)  # (n_labels,), ‖μ‖²

    def _rank(self, X: csr_array, k: int) -> Predictions:
        labels, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        room = np.zeros(self.n_labels, np.float32), np.empty(self.n_labels, np.int32), np.zeros(self.n_labels)
        tail = self.starts, self.labels, self.centres, self.squares
        weights = float(self.alpha), float(self.gamma)  # a folder may have written 30, not 30.0
        rerank_by_centroids(
            *self._find_leaf_arrays(X), *to_kernel_arrays(normalise_rows(X)), *tail, *weights, *room, labels, scores
        )
        return Predictions.from_valid_arrays(labels, scores)

    def _attribute_score(self, X: csr_array, label: int) -> np.ndarray:
        """Of the logarithm of the score, which is the sum of two."""
        leaves = self.forest.assign_leaves(*to_kernel_arrays(X), self.n_features)[0]
        totals = np.zeros(self.n_labels, np.float32)
        add_votes(leaves, *self._find_leaf_arrays(X)[1:], totals, np.empty(self.n_labels, np.int32))
        said = max(float(totals[label]) / self.forest.n_trees, 1e-6)
        near, x = np.zeros(self.n_features), normalise_rows(X).toarray()[0]
        for feature in X.indices:
            here = slice(self.starts[feature], self.starts[feature + 1])
            near[feature] = self.gamma * x[feature] * self.centres[here][self.labels[here] == label].sum()
        return self.alpha * super()._attribute_score(X, label) / said + (1 - self.alpha) * near

    def check(self) -> None:
        super().check()
        columns = is_offset_array(self.starts, self.n_features, len(self.labels)) and len(self.centres) == len(
            self.labels
        )
        in_range = columns and ((self.labels >= 0) & (self.labels < self.n_labels)).all()
        if (
            not in_range
            or len(self.squares) != self.n_labels
            or not (0 <= self.alpha <= 1 and 0 <= self.gamma <= MAX_GAMMA)
        ):
            raise ValueError("the centres of its labels do not fit together")


@kernel
def log_tail_score(square_distance, gamma):
    """log 1 / (1 + exp(γ/2 ‖x − μ‖²))."""
    z = gamma / 2 * max(square_distance, 0.0)
    return -z - np.log1p(np.exp(-z))


@kernel
def rerank_by_centroids(
    leaves, ends, items, values,
    indptr, indices, data,
    starts, tail_labels, centres, squares, alpha, gamma,
    totals, seen, dots, labels, scores,
):  # fmt: skip
    """`vote`, and then the labels' centres are asked. `dots` begin as zeros, as `totals` do."""
    n_docs, n_trees = leaves.shape
    for doc in range(n_docs):
        length = 0.0
        for i in range(indptr[doc], indptr[doc + 1]):
            length += data[i] * data[i]
            for j in range(starts[indices[i]], starts[indices[i] + 1]):
                dots[tail_labels[j]] += data[i] * centres[j]
        n, n_top = add_votes(leaves[doc], ends, items, values, totals, seen), np.int64(0)
        for i in range(n):
            label = np.int64(seen[i])
            said = np.log(min(totals[label] / n_trees, np.float32(1)))
            near = log_tail_score(length + squares[label] - 2 * dots[label], gamma)
            score = np.float32(np.exp(alpha * said + (1 - alpha) * near))
            n_top = insert_ranked(score, label, scores[doc], labels[doc], n_top)
            totals[label] = 0
        for i in range(len(dots)):
            dots[i] = 0
        for i in range(n_top, labels.shape[1]):
            labels[doc, i], scores[doc, i] = NO_LABEL, 0

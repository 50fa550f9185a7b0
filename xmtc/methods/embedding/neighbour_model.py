"""Model of SLEEC and AnnexML: linear maps to embeddings, and votes of the nearest training documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import is_ascending, is_offset_array
from xmtc.core.batching import predict_in_batches
from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.linear.search import add_ranked, sort_ranked
from xmtc.methods.embedding.neighbours import NO_NEIGHBOUR, build_index, search_approximate, search_exact
from xmtc.storage.form import Form, array

MAX_BATCH_DOCUMENTS = 1024
MAX_GRAPH_EDGES = 1000  # per document in the graph of an approximate search
MAX_SHARPNESS = 40.0  # above it, votes underflow in float32
MAX_QUANTIZED_VALUE = 127  # int8 value of a vector's largest component


@dataclass(frozen=True, kw_only=True)
class Learner(Form):
    """Partition of the documents into clusters, with a linear map for each cluster; vectors are stored in 8 bits."""

    routes: np.ndarray = array(
        np.float32, ndim=2
    )  # (n_features, n_clusters), the cluster of x is the argmax of x·route
    feature_ends: np.ndarray = array(np.int64)  # (n_clusters + 1,), boundaries of the clusters in `features`
    features: np.ndarray = array(np.int32)  # features that occur in each cluster, ascending
    scales: np.ndarray = array(np.float32)  # (len(features),), factors of the int8 weights
    weights: np.ndarray = array(np.int8, ndim=2)  # (len(features), dimension)
    member_ends: np.ndarray = array(np.int64)  # (n_clusters + 1,), boundaries of the clusters in `members`
    members: np.ndarray = array(np.int32)  # training documents of each cluster
    embeddings: np.ndarray = array(np.int8, ndim=2)  # (dimension, len(members))
    lengths: np.ndarray = array(np.float32)  # (len(members),), norms of the embeddings, positive

    @property
    def n_clusters(self) -> int:
        return self.routes.shape[1]

    def member_slice(self, number: int) -> slice:
        """Return the positions of a cluster's documents in `members`."""
        return slice(int(self.member_ends[number]), int(self.member_ends[number + 1]))

    def embed(self, X: csr_array, rows: np.ndarray, cluster: int) -> np.ndarray:
        """Return the unit-length embeddings of some documents, shape (len(rows), dimension).

        A document without any feature of the cluster has a zero vector.
        """
        span = slice(self.feature_ends[cluster], self.feature_ends[cluster + 1])
        documents = X[rows]
        vectors = np.empty((len(rows), self.weights.shape[1]), np.float32)
        positions = find_positions(self.features[span], documents.indices)
        project_documents(documents.indptr, positions, documents.data, self.scales[span], self.weights[span], vectors)
        return vectors

    def find_neighbours(self, X: csr_array, k: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest training documents within each document's cluster, and their cosines."""
        neighbours = np.full((X.shape[0], k), NO_NEIGHBOUR, np.int32)
        cosines = np.zeros((X.shape[0], k), np.float32)
        clusters = route_documents(X, self.routes)
        for cluster in np.unique(clusters):
            rows = np.flatnonzero(clusters == cluster)
            queries = self.embed(X, rows, cluster)
            if edges:
                at, nearness = search_approximate(queries, self.get_index(cluster, edges), k)
            else:
                at, nearness = search_exact(queries, self.embeddings, self.lengths, self.member_slice(cluster), k)
            neighbours[rows, : at.shape[1]] = np.where(at == NO_NEIGHBOUR, NO_NEIGHBOUR, self.members[at])
            cosines[rows, : at.shape[1]] = nearness
        return neighbours, cosines

    @cached_property
    def _indexes(self) -> dict[int, Any]:
        return {}

    def get_index(self, cluster: int, edges: int) -> Any:
        """Return the graph index of a cluster, built on first use."""
        if cluster not in self._indexes:
            self._indexes[cluster] = build_index(self.embeddings, self.member_slice(cluster), edges)
        return self._indexes[cluster]

    def check_sizes(self, n_features: int, n_docs: int) -> None:
        """Raise an error if the arrays do not fit together or refer to missing features or documents."""
        dimension = self.weights.shape[1]
        have_valid_shapes = (
            self.routes.shape[0] == n_features
            and self.n_clusters >= 1
            and dimension >= 1
            and is_offset_array(self.feature_ends, self.n_clusters, len(self.features))
            and is_offset_array(self.member_ends, self.n_clusters, len(self.members))
            and is_ascending(self.member_ends, strict=True)
            and len(self.scales) == len(self.weights) == len(self.features)
            and len(self.lengths) == len(self.members)
            and self.embeddings.shape == (dimension, len(self.members))
        )
        has_valid_ids = is_within_range(self.features, n_features) and is_within_range(self.members, n_docs)
        if not (have_valid_shapes and has_valid_ids):
            raise ValueError("the arrays of a learner do not fit together")
        if not (self.lengths > 0).all():
            raise ValueError("lengths of a learner has a value that is not positive")


@dataclass(frozen=True, kw_only=True)
class NeighbourModel(Model):
    """Votes of nearest training documents for their labels, each with the weight exp(sharpness × (cosine − 1)).

    The score of a label is its share of the total weight.
    """

    n_votes: int  # number of voting neighbours per learner
    sharpness: float  # 0 gives all votes the same weight
    edges: int  # per document in the graph of an approximate search; 0 for exact search
    label_ends: np.ndarray = array(np.int64)  # (n_docs + 1,), boundaries of the training documents in `labels`
    labels: np.ndarray = array(np.int32)  # labels of the training documents
    learners: tuple[Learner, ...]

    @property
    def n_docs(self) -> int:
        return len(self.label_ends) - 1

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        k = min(k, self.n_labels)
        edges = self.edges if self.edges and find_spec("usearch") else 0
        if edges:  # build the indexes now, because several threads must not build the same one
            for learner in self.learners:
                for cluster in range(learner.n_clusters):
                    learner.get_index(cluster, edges)

        def predict_batch(batch: slice) -> Predictions:
            neighbours, cosines = self._find_neighbours(data.X[batch], edges)
            return Predictions.from_valid_arrays(*self._rank_by_votes(neighbours, cosines, k))

        return predict_in_batches(predict_batch, data.n_docs, k, MAX_BATCH_DOCUMENTS, run)

    def _find_neighbours(self, X: csr_array, edges: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the neighbours from all learners side by side, and their cosines."""
        results = [learner.find_neighbours(X, min(self.n_votes, self.n_docs), edges) for learner in self.learners]
        return np.hstack([neighbours for neighbours, _ in results]), np.hstack([cosines for _, cosines in results])

    def _rank_by_votes(self, neighbours: np.ndarray, cosines: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        votes = np.exp(np.float32(self.sharpness) * (np.clip(cosines, -1, 1) - 1))
        top, scores = np.full((len(neighbours), k), NO_LABEL, np.int32), np.zeros((len(neighbours), k), np.float32)
        work = np.zeros(self.n_labels, np.float32), np.empty(self.n_labels, np.int32)
        rank_by_neighbour_votes(neighbours, votes, self.label_ends, self.labels, *work, top, scores)
        return top, scores

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the contribution of each feature to the cosine with the nearest documents that have the label.

        It is the mean over these documents in the document's cluster, and over the learners.
        """
        (view,), X = self.views, document.X
        labelled = np.repeat(np.arange(self.n_docs), np.diff(self.label_ends))[self.labels == label]
        total = np.zeros(len(X.indices), np.float32)
        for learner in self.learners:
            cluster = int(route_documents(X, learner.routes)[0])
            members = learner.member_slice(cluster)
            candidates = members.start + np.flatnonzero(np.isin(learner.members[members], labelled))
            embeddings = learner.embeddings[:, candidates] / learner.lengths[candidates]
            cosines = learner.embed(X, np.arange(1), cluster)[0] @ embeddings
            nearest = np.argsort(-cosines, kind="stable")[: self.n_votes]
            if len(nearest):
                direction = embeddings[:, nearest].mean(axis=1)
                total += self._attribute_cosine(learner, cluster, X, direction) / len(self.learners)
        return Explanation.from_occurrences(view, X.indices, total)

    def _attribute_cosine(self, learner: Learner, cluster: int, X: csr_array, direction: np.ndarray) -> np.ndarray:
        """Return each feature's part of the product of one document's embedding and a vector, shape (n_entries,)."""
        span = slice(learner.feature_ends[cluster], learner.feature_ends[cluster + 1])
        positions = find_positions(learner.features[span], X.indices)
        is_known = positions >= 0
        values = X.data[is_known] * learner.scales[span][positions[is_known]]
        vectors = values[:, None] * learner.weights[span][positions[is_known]]
        contributions = np.zeros(len(positions), np.float32)
        contributions[is_known] = vectors @ direction / max(float(np.linalg.norm(vectors.sum(axis=0))), 1e-30)
        return contributions

    def check(self) -> None:
        n_docs = self.n_docs
        if n_docs < 1 or not is_offset_array(self.label_ends, n_docs, len(self.labels)):
            raise ValueError("label_ends does not ascend from 0 to the number of labels")
        if not self.learners:
            raise ValueError("learners is empty; expected at least one")
        is_rising = np.diff(self.labels, prepend=-1) > 0
        is_rising[self.label_ends[:-1][self.label_ends[:-1] < len(is_rising)]] = True  # first label of a document
        if not is_within_range(self.labels, self.n_labels) or not is_rising.all():
            raise ValueError(
                f"labels has a number out of range or a duplicate; expected ascending numbers below {self.n_labels} "
                "for each document"
            )
        if self.n_votes < 1:
            raise ValueError(f"n_votes is {self.n_votes}; expected at least 1")
        if not 0 <= self.sharpness <= MAX_SHARPNESS:
            raise ValueError(f"sharpness is {self.sharpness}; expected a number from 0 to {MAX_SHARPNESS:g}")
        if self.edges not in (0, *range(2, MAX_GRAPH_EDGES + 1)):
            raise ValueError(f"edges is {self.edges}; expected 0, or a number from 2 to {MAX_GRAPH_EDGES}")
        for learner in self.learners:
            learner.check_sizes(sum(self.views.values()), n_docs)


def is_within_range(numbers: np.ndarray, n: int) -> bool:
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < n)


def find_positions(features: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Return the position of each query in the ascending array `features`, or −1 if it is missing."""
    if not len(features):
        return np.full(len(queries), -1)
    at = np.minimum(np.searchsorted(features, queries), len(features) - 1)
    return np.where(features[at] == queries, at, -1)


def quantize_to_int8(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows as int8, and the factor of each row that restores its values."""
    scales = np.abs(vectors).max(axis=1, initial=0) / MAX_QUANTIZED_VALUE
    scales = np.where(scales > 0, scales, 1).astype(np.float32)
    return np.round(vectors / scales[:, None]).astype(np.int8), scales


def route_documents(X: csr_array, routes: np.ndarray) -> np.ndarray:
    """Return the cluster of each document."""
    clusters, products = np.zeros(X.shape[0], np.int64), np.empty(routes.shape[1], np.float32)
    if routes.shape[1] > 1:
        find_best_clusters(X.indptr, X.indices, X.data, routes, products, clusters)
    return clusters


@fast_kernel
def find_best_clusters(indptr, indices, data, routes, products, clusters):
    for row in range(len(clusters)):
        for c in range(len(products)):
            products[c] = 0
        for i in range(indptr[row], indptr[row + 1]):
            weights, value = routes[indices[i]], data[i]
            for c in range(len(products)):
                products[c] += value * weights[c]
        for c in range(len(products)):
            if products[c] > products[clusters[row]]:
                clusters[row] = c


@fast_kernel
def project_documents(indptr, positions, data, scales, weights, vectors):
    """Write the unit-length embedding of each row; positions[i] is the row of `weights` of entry i, or −1."""
    dimension = vectors.shape[1]
    for row in range(len(vectors)):
        vector = vectors[row]
        for d in range(dimension):
            vector[d] = 0
        for i in range(indptr[row], indptr[row + 1]):
            if positions[i] >= 0:
                feature_weights, value = weights[positions[i]], data[i] * scales[positions[i]]
                for d in range(dimension):
                    vector[d] += value * feature_weights[d]
        square = np.float64(0)
        for d in range(dimension):
            square += np.float64(vector[d]) * np.float64(vector[d])
        length = np.float32(np.sqrt(square)) if square > 0 else np.float32(1)
        for d in range(dimension):
            vector[d] /= length


@kernel
def rank_by_neighbour_votes(neighbours, votes, label_ends, labels, totals, seen, top, scores):
    """Write the labels with the largest shares of the votes; `totals` is a work array of zeros."""
    for doc in range(len(neighbours)):
        n_seen, n_top, all_votes = np.int64(0), np.int64(0), np.float32(0)
        for i in range(neighbours.shape[1]):
            neighbour = neighbours[doc, i]
            if neighbour != NO_NEIGHBOUR:
                all_votes += votes[doc, i]
                for at in range(label_ends[neighbour], label_ends[neighbour + 1]):
                    label = labels[at]
                    if totals[label] == 0:
                        seen[n_seen] = label
                        n_seen += 1
                    totals[label] += votes[doc, i]
        for i in range(n_seen):
            label = np.int64(seen[i])
            n_top = add_ranked(totals[label] / all_votes, label, scores[doc], top[doc], n_top)
            totals[label] = 0
        sort_ranked(scores[doc], top[doc], n_top)

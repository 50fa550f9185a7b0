"""The trained form of the embedding methods: linear maps of documents to short vectors, in which the nearest training
documents vote for their labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import is_ascending, is_offset_array
from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.linear.search import insert_ranked
from xmtc.methods.embedding.neighbours import NO_NEIGHBOUR, build_index, search_approximate, search_exact
from xmtc.storage.form import Form, array

MAX_BATCH_DOCUMENTS = 1024  # answered by one thread at a time
MAX_GRAPH_EDGES = 1000  # of a document in the graph of an approximate search
MAX_SHARPNESS = 40.0  # so that no vote vanishes in float32
MAX_QUANTIZED_VALUE = 127  # what the largest number of a vector is kept as


@dataclass(frozen=True, kw_only=True)
class Learner(Form):
    """One partition of the documents, and for each cluster a linear map of its own. Vectors are kept in 8 bits."""

    routes: np.ndarray = array(np.float32, ndim=2)  # (n_features, n_clusters): a document goes where x·route is largest
    feature_ends: np.ndarray = array(np.int64)  # (n_clusters + 1,), where the features of each cluster begin and end
    features: np.ndarray = array(np.int32)  # those that occur in the cluster, ascending
    scales: np.ndarray = array(np.float32)  # of the weights of each feature
    weights: np.ndarray = array(np.int8, ndim=2)  # (len(features), dimension)
    member_ends: np.ndarray = array(np.int64)  # (n_clusters + 1,)
    members: np.ndarray = array(np.int32)  # the training documents of each cluster
    embeddings: np.ndarray = array(np.int8, ndim=2)  # (dimension, len(members))
    lengths: np.ndarray = array(np.float32)  # of the embeddings, more than 0

    @property
    def n_clusters(self) -> int:
        return self.routes.shape[1]

    def member_slice(self, number: int) -> slice:
        """Where its members stand."""
        return slice(int(self.member_ends[number]), int(self.member_ends[number + 1]))

    def embed(self, X: csr_array, rows: np.ndarray, cluster: int) -> np.ndarray:
        """(len(rows), dimension): documents mapped as in a cluster, of length 1, or 0 if it knows none of their
        features."""
        own = slice(self.feature_ends[cluster], self.feature_ends[cluster + 1])
        some = X[rows]
        vectors = np.empty((len(rows), self.weights.shape[1]), np.float32)
        where = find_positions(self.features[own], some.indices)
        project_documents(some.indptr, where, some.data, self.scales[own], self.weights[own], vectors)
        return vectors

    def find_neighbours(self, X: csr_array, k: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
        """(n_docs, k) each: the nearest documents within the cluster that a document belongs to, and their cosines."""
        found = np.full((X.shape[0], k), NO_NEIGHBOUR, np.int32)
        cosines = np.zeros((X.shape[0], k), np.float32)
        clusters = route_documents(X, self.routes)
        for cluster in np.unique(clusters):
            rows = np.flatnonzero(clusters == cluster)
            queries = self.embed(X, rows, cluster)
            if edges:
                at, near = search_approximate(queries, self.get_index(cluster, edges), k)
            else:
                at, near = search_exact(queries, self.embeddings, self.lengths, self.member_slice(cluster), k)
            found[rows, : at.shape[1]] = np.where(at == NO_NEIGHBOUR, NO_NEIGHBOUR, self.members[at])
            cosines[rows, : at.shape[1]] = near
        return found, cosines

    @cached_property
    def _indexes(self) -> dict[int, Any]:
        return {}

    def get_index(self, cluster: int, edges: int) -> Any:
        """The graph of a cluster's members, made at its first use."""
        if cluster not in self._indexes:
            self._indexes[cluster] = build_index(self.embeddings, self.member_slice(cluster), edges)
        return self._indexes[cluster]

    def check_sizes(self, n_features: int, n_docs: int) -> None:
        dimension = self.weights.shape[1]
        shapes = (
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
        if not (shapes and is_within_range(self.features, n_features) and is_within_range(self.members, n_docs)):
            raise ValueError("the arrays of a learner do not fit together")
        if not (self.lengths > 0).all():
            raise ValueError("an embedding has no length")


@dataclass(frozen=True, kw_only=True)
class NeighbourModel(Model):
    """The share of a label among the votes: exp(sharpness × (cosine − 1)) of every neighbour that holds it, of all."""

    n_votes: int  # neighbours that vote, of each learner
    sharpness: float  # 0: all votes are equal
    edges: int  # of each document in the graph of an approximate search; 0: the search is exact
    label_ends: np.ndarray = array(np.int64)  # (n_docs + 1,), where the labels of each training document begin and end
    labels: np.ndarray = array(np.int32)
    learners: tuple[Learner, ...]

    @property
    def n_docs(self) -> int:
        return len(self.label_ends) - 1

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        k = min(k, self.n_labels)
        share = -(-data.n_docs // run.n_threads) if data.n_docs > 1 else 1
        size = max(1, min(MAX_BATCH_DOCUMENTS, share))
        batches = [slice(i, min(i + size, data.n_docs)) for i in range(0, data.n_docs, size)]
        edges = self.edges if self.edges and find_spec("usearch") else 0
        for learner in self.learners if edges else ():  # by this thread, before there are others
            for cluster in range(learner.n_clusters):
                learner.get_index(cluster, edges)

        def work(batch: slice) -> Predictions:
            found, cosines = self._find_neighbours(data.X[batch], edges)
            return Predictions.from_valid_arrays(*self._rank_by_votes(found, cosines, k))

        empty = Predictions.from_valid_arrays(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        return Predictions.stack([empty, *run.map(work, batches, "predicting", total=len(batches))])

    def _find_neighbours(self, X: csr_array, edges: int) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours that each learner finds, side by side."""
        near = [learner.find_neighbours(X, min(self.n_votes, self.n_docs), edges) for learner in self.learners]
        return np.hstack([found for found, _ in near]), np.hstack([cosines for _, cosines in near])

    def _rank_by_votes(self, found: np.ndarray, cosines: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        votes = np.exp(np.float32(self.sharpness) * (np.clip(cosines, -1, 1) - 1))
        top, scores = np.full((len(found), k), NO_LABEL, np.int32), np.zeros((len(found), k), np.float32)
        room = np.zeros(self.n_labels, np.float32), np.empty(self.n_labels, np.int32)
        rank_by_neighbour_votes(found, votes, self.label_ends, self.labels, *room, top, scores)
        return top, scores

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """What each feature adds to the cosine with the nearest documents that hold the label: the mean over them, in
        the document's cluster, and over the learners."""
        (view,), X = self.views, document.X
        holds = np.repeat(np.arange(self.n_docs), np.diff(self.label_ends))[self.labels == label]
        total = np.zeros(len(X.indices), np.float32)
        for learner in self.learners:
            cluster = int(route_documents(X, learner.routes)[0])
            here = learner.member_slice(cluster)
            holders = here.start + np.flatnonzero(np.isin(learner.members[here], holds))
            near = learner.embeddings[:, holders] / learner.lengths[holders]
            nearness = learner.embed(X, np.arange(1), cluster)[0] @ near
            best = np.argsort(-nearness, kind="stable")[: self.n_votes]
            if len(best):
                total += self._attribute_cosine(learner, cluster, X, near[:, best].mean(axis=1)) / len(self.learners)
        return Explanation.from_occurrences(view, X.indices, total)

    def _attribute_cosine(self, learner: Learner, cluster: int, X: csr_array, towards: np.ndarray) -> np.ndarray:
        """(n,): of each feature of one document, its part of the product of the document's embedding and a vector."""
        own = slice(learner.feature_ends[cluster], learner.feature_ends[cluster + 1])
        where = find_positions(learner.features[own], X.indices)
        known = where >= 0
        scaled = X.data[known] * learner.scales[own][where[known]]
        vectors = scaled[:, None] * learner.weights[own][where[known]]
        added = np.zeros(len(where), np.float32)
        added[known] = vectors @ towards / max(float(np.linalg.norm(vectors.sum(axis=0))), 1e-30)
        return added

    def check(self) -> None:
        n_docs = self.n_docs
        if n_docs < 1 or not is_offset_array(self.label_ends, n_docs, len(self.labels)) or not self.learners:
            raise ValueError("its training documents do not fit together")
        rising = np.diff(self.labels, prepend=-1) > 0
        rising[self.label_ends[:-1][self.label_ends[:-1] < len(rising)]] = True  # where another document begins
        if not is_within_range(self.labels, self.n_labels) or not rising.all():
            raise ValueError("a training document has a label twice, or one that there is not")
        if self.n_votes < 1 or not 0 <= self.sharpness <= MAX_SHARPNESS:
            raise ValueError("its neighbours cannot vote")
        if self.edges not in (0, *range(2, MAX_GRAPH_EDGES + 1)):
            raise ValueError("its neighbours cannot be found")
        for learner in self.learners:
            learner.check_sizes(sum(self.views.values()), n_docs)


def is_within_range(numbers: np.ndarray, n: int) -> bool:
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < n)


def find_positions(features: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where each wanted feature stands among those that ascend; −1 where it is not among them."""
    if not len(features):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(features, wanted), len(features) - 1)
    return np.where(features[at] == wanted, at, -1)


def quantize_to_int8(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as whole numbers up to FINEST, and what to multiply each row by to have it back."""
    scales = np.abs(vectors).max(axis=1, initial=0) / MAX_QUANTIZED_VALUE
    scales = np.where(scales > 0, scales, 1).astype(np.float32)
    return np.round(vectors / scales[:, None]).astype(np.int8), scales


def route_documents(X: csr_array, routes: np.ndarray) -> np.ndarray:
    """The cluster that each document belongs to."""
    clusters, room = np.zeros(X.shape[0], np.int64), np.empty(routes.shape[1], np.float32)
    if routes.shape[1] > 1:
        find_best_clusters(X.indptr, X.indices, X.data, routes, room, clusters)
    return clusters


@fast_kernel
def find_best_clusters(indptr, indices, data, routes, room, clusters):
    for row in range(len(clusters)):
        for c in range(len(room)):
            room[c] = 0
        for i in range(indptr[row], indptr[row + 1]):
            weights, value = routes[indices[i]], data[i]
            for c in range(len(room)):
                room[c] += value * weights[c]
        for c in range(len(room)):
            if room[c] > room[clusters[row]]:
                clusters[row] = c


@fast_kernel
def project_documents(indptr, where, data, scales, weights, vectors):
    """Write the sum of the weights of each row's features, divided by its length."""
    dimension = vectors.shape[1]
    for row in range(len(vectors)):
        vector = vectors[row]
        for d in range(dimension):
            vector[d] = 0
        for i in range(indptr[row], indptr[row + 1]):
            if where[i] >= 0:
                own, value = weights[where[i]], data[i] * scales[where[i]]
                for d in range(dimension):
                    vector[d] += value * own[d]
        square = np.float64(0)
        for d in range(dimension):
            square += np.float64(vector[d]) * np.float64(vector[d])
        length = np.float32(np.sqrt(square)) if square > 0 else np.float32(1)
        for d in range(dimension):
            vector[d] /= length


@kernel
def rank_by_neighbour_votes(found, votes, label_ends, labels, total, seen, top, scores):
    """Write the labels with the largest shares of the votes. `total` begins as zeros, and is left so."""
    for doc in range(len(found)):
        n_seen, n_top, whole = np.int64(0), np.int64(0), np.float32(0)
        for i in range(found.shape[1]):
            if found[doc, i] != NO_NEIGHBOUR:
                whole += votes[doc, i]
                for at in range(label_ends[found[doc, i]], label_ends[found[doc, i] + 1]):
                    label = labels[at]
                    if total[label] == 0:
                        seen[n_seen] = label
                        n_seen += 1
                    total[label] += votes[doc, i]
        for i in range(n_seen):
            label = np.int64(seen[i])
            n_top = insert_ranked(total[label] / whole, label, scores[doc], top[doc], n_top)
            total[label] = 0

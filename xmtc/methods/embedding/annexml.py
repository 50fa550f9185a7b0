"""AnnexML: embeddings in which the nearest by labels are the nearest, learnt by ranking. Tagami: AnnexML: Approximate
Nearest Neighbor Search for Extreme Multi-label Classification (KDD 2017).

Differs from the authors' code in: a document is ranked against the neighbours of the other documents of its batch,
instead of ten drawn for it alone, and in each pass with one of its neighbours instead of all ten; the
steps of AdaGrad are one for each feature instead of one for each weight; votes are weighted by nearness (sharpness=0:
as in the paper), because equal votes were worse on held-out documents. The exact search is the default: within a
cluster of 6,000 documents it is over before a graph has been made. Differs from SLEEC in: clusters are learnt from the
graph of label neighbours, and embeddings keep an order instead of products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.run import Run
from xmtc.core.sparse import CompactMatrix
from xmtc.linear.coordinate_descent import shuffle
from xmtc.linear.solver import seed_state
from xmtc.methods.embedding.local_embeddings import SINGLE_THREAD_RUN, LearnerSeed, LocalEmbeddings
from xmtc.methods.embedding.neighbours import NO_NEIGHBOUR, find_label_neighbours

BATCH_DOCUMENTS = 64  # documents that are ranked against each other's neighbours
CLUSTER_LEARNING_RATE = 0.1  # of learning to divide: the authors' value


@dataclass(frozen=True)
class AnnexML(LocalEmbeddings):
    """Embeddings learnt by ranking the nearest label vectors first, and nearest neighbours (Tagami, KDD 2017)."""

    quick_parameters: ClassVar[dict[str, Any]] = {"n_learners": 3, "epochs": 30}

    n_learners: int = param(15, "learners, each from its own random start", low=1, high=1000)
    n_neighbours: int = param(10, "documents nearest by labels that each is to be near to", low=1, high=10_000)
    dimension: int = param(50, "length of the vectors", low=1, high=4096, search=(25, 200), log=True)
    epochs: int = param(10, "passes over a cluster's documents", low=1, high=10_000)
    cluster_epochs: int = param(3, "passes over all documents in learning the clusters", low=1, high=10_000)
    rate: float = param(0.03, "learning rate of AdaGrad", low=1e-6, high=10.0, search=(0.003, 0.3), log=True)
    gamma: float = param(10.0, "cosines are multiplied by this before they are ranked", low=0.01, high=1000.0)
    sparsity: float = param(4.0, "weight of the L1 regulariser of the clusters (the paper's λ)", low=0.0, high=1e6)

    def learn_clusters(self, data: Dataset, n_clusters: int, run: Run) -> Iterator[np.ndarray]:
        if n_clusters == 1:
            return iter([np.zeros((data.X.shape[1], 1), np.float32)] * self.n_learners)
        near = find_label_neighbours(data.Y, self.n_neighbours, run)

        def work(seed: LearnerSeed) -> np.ndarray:
            return self._learn_cluster_weights(data.X, near, n_clusters, seed)

        return run.map_on_cluster(work, self.seeds, "dividing documents", total=self.n_learners)

    def _learn_cluster_weights(self, X: csr_array, near: np.ndarray, n_clusters: int, seed: LearnerSeed) -> np.ndarray:
        """Linear classifiers that are to give a document and its neighbours the same answer: who claims a document is
        taught to claim its neighbours, and not others (section 3.2). They begin as documents."""
        rng = np.random.default_rng(seed)
        starts = X[rng.choice(X.shape[0], n_clusters, replace=False)].toarray().T
        shape, lazy = (X.shape[1], n_clusters), np.float32(self.sparsity)
        W, squares, sums = np.ascontiguousarray(starts), np.ones(shape, np.float32), np.empty(shape, np.float32)
        sums[:] = W / CLUSTER_LEARNING_RATE + lazy * np.sign(W)
        room = np.empty(n_clusters, np.float32), np.arange(X.shape[0]), seed_state(int(rng.integers(2**31)))
        rows = X.indptr, X.indices, X.data
        train_cluster_weights(
            *rows, near, self.cluster_epochs, np.float32(CLUSTER_LEARNING_RATE), lazy, *room, W, squares, sums
        )
        return W

    def learn_projection(self, documents: CompactMatrix, Y: csr_array, seed: LearnerSeed) -> np.ndarray:
        rng = np.random.default_rng(seed)
        near = find_label_neighbours(Y, self.n_neighbours, SINGLE_THREAD_RUN)
        W = rng.standard_normal((len(documents.columns), self.dimension), np.float32) / np.float32(self.dimension**0.5)
        order = np.flatnonzero(near[:, 0] != NO_NEIGHBOUR)
        counts = (near != NO_NEIGHBOUR).sum(axis=1)
        rates = np.float32(self.gamma), np.float32(self.rate), self.epochs
        room = np.zeros((4, BATCH_DOCUMENTS, self.dimension), np.float32), np.zeros((2, BATCH_DOCUMENTS), np.float32)
        squares = np.zeros(len(documents.columns), np.float32)
        state = seed_state(int(rng.integers(2**31)))
        train_embedding(*documents[:3], near, counts, order, *rates, state, *room, W, squares)
        return W


@kernel
def draw_below(state, n):
    """The next state of a xorshift generator, and a number below n."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state, np.int64(state % np.uint64(n))


@fast_kernel
def step_ftrl_proximal(indptr, indices, data, doc, cluster, target, rate, lazy, W, squares, sums):
    """One step of FTRL-proximal towards a classifier's answer, 1 or 0, to a document."""
    margin = np.float32(0)
    for i in range(indptr[doc], indptr[doc + 1]):
        margin += data[i] * W[indices[i], cluster]
    error = target - 1 / (1 + np.exp(-margin))
    for i in range(indptr[doc], indptr[doc + 1]):
        feature, step = indices[i], error * data[i]
        before = np.sqrt(squares[feature, cluster])
        squares[feature, cluster] += step * step
        after = np.sqrt(squares[feature, cluster])
        sums[feature, cluster] += step + (after - before) / rate * W[feature, cluster]
        size = abs(sums[feature, cluster]) - lazy
        sign = np.float32(1) if sums[feature, cluster] > 0 else np.float32(-1)
        W[feature, cluster] = rate * sign * size / after if size > 0 else np.float32(0)


@fast_kernel
def train_cluster_weights(indptr, indices, data, near, epochs, rate, lazy, room, order, state, W, squares, sums):
    n_docs, n_clusters = len(order), W.shape[1]
    for _ in range(epochs):
        state = shuffle(order, state)
        for doc in order:
            for c in range(n_clusters):
                room[c] = 0
            for i in range(indptr[doc], indptr[doc + 1]):
                weights, value = W[indices[i]], data[i]
                for c in range(n_clusters):
                    room[c] += value * weights[c]
            state, best = draw_below(state, n_clusters)  # among equals, any
            for c in range(n_clusters):
                if room[c] > room[best]:
                    best = c
            for n in range(near.shape[1]):
                if near[doc, n] != NO_NEIGHBOUR:
                    step_ftrl_proximal(
                        indptr, indices, data, near[doc, n], best, np.float32(1), rate, lazy, W, squares, sums
                    )
                    state, other = draw_below(state, n_docs)
                    step_ftrl_proximal(indptr, indices, data, other, best, np.float32(0), rate, lazy, W, squares, sums)


@fast_kernel
def embed_document(indptr, indices, data, doc, W, unit):
    """Write a document's embedding divided by its length, which is returned."""
    for d in range(len(unit)):
        unit[d] = 0
    for i in range(indptr[doc], indptr[doc + 1]):
        weights, value = W[indices[i]], data[i]
        for d in range(len(unit)):
            unit[d] += value * weights[d]
    square = np.float32(0)
    for d in range(len(unit)):
        square += unit[d] * unit[d]
    length = np.sqrt(square)
    if length > 0:
        for d in range(len(unit)):
            unit[d] /= length
    return length


@fast_kernel
def step_adagrad(indptr, indices, data, doc, unit, length, gradient, rate, W, squares):
    """A step of AdaGrad down the gradient of a document's unit vector, which only turns."""
    if length == 0:
        return
    along, square = np.float32(0), np.float32(0)
    for d in range(len(unit)):
        along += unit[d] * gradient[d]
    for d in range(len(unit)):
        gradient[d] = (gradient[d] - along * unit[d]) / length
        square += gradient[d] * gradient[d]
    square /= len(unit)
    for i in range(indptr[doc], indptr[doc + 1]):
        weights, value = W[indices[i]], data[i]
        squares[indices[i]] += value * value * square
        step = rate * value / np.sqrt(squares[indices[i]] + np.float32(1e-12))
        for d in range(len(unit)):
            weights[d] -= step * gradient[d]


@fast_kernel
def add_ranking_gradients(i, n, gamma, units, others, gradients, other_gradients, room):
    """Add the gradients of log(1 + Σ_j exp(γ (cos(i, j) − cos(i, i)))) over the others' neighbours j."""
    highest = np.float32(-3e38)
    for j in range(n):
        total = np.float32(0)
        for d in range(units.shape[1]):
            total += units[i, d] * others[j, d]
        room[j] = gamma * total
        highest = max(highest, room[j])
    total = np.float32(0)
    for j in range(n):
        room[j] = np.exp(room[j] - highest)
        total += room[j]
    for j in range(n):
        pull = gamma * (room[j] / total - (np.float32(1) if i == j else np.float32(0)))
        for d in range(units.shape[1]):
            gradients[i, d] += pull * others[j, d]
            other_gradients[j, d] += pull * units[i, d]


@fast_kernel
def train_embedding(indptr, indices, data, near, counts, order, gamma, rate, epochs, state, room, lengths, W, squares):
    """Epochs of learning W: every document is to be nearer to one of its neighbours than to those of its batch."""
    units, others, gradients, other_gradients = room[0], room[1], room[2], room[3]
    chosen, scratch = np.zeros(BATCH_DOCUMENTS, np.int64), np.zeros(BATCH_DOCUMENTS, np.float32)
    for _ in range(epochs):
        state = shuffle(order, state)
        for begin in range(0, len(order), BATCH_DOCUMENTS):
            n = min(BATCH_DOCUMENTS, len(order) - begin)
            for i in range(n):
                doc = order[begin + i]
                state, which = draw_below(state, counts[doc])
                chosen[i] = near[doc, which]
                lengths[0, i] = embed_document(indptr, indices, data, doc, W, units[i])
                lengths[1, i] = embed_document(indptr, indices, data, chosen[i], W, others[i])
                for d in range(W.shape[1]):
                    gradients[i, d], other_gradients[i, d] = 0, 0
            for i in range(n):
                add_ranking_gradients(i, n, gamma, units, others, gradients, other_gradients, scratch)
            for i in range(n):
                doc = order[begin + i]
                step_adagrad(indptr, indices, data, doc, units[i], lengths[0, i], gradients[i], rate, W, squares)
                step_adagrad(
                    indptr, indices, data, chosen[i], others[i], lengths[1, i], other_gradients[i], rate, W, squares
                )

"""AnnexML: embeddings learnt by ranking, in which documents with similar labels are nearest neighbours.

Paper: Tagami: AnnexML: Approximate Nearest Neighbor Search for Extreme Multi-label Classification (KDD 2017).

Idea: connect each document with its K nearest documents by labels. Linear classifiers, trained to give connected
documents the same cluster, divide the documents (section 3.2). Within a cluster, a linear map W is learnt so that a
document is closer to its neighbours than to others: the loss is log(1 + Σ_j exp(γ (cos(i, j) − cos(i, i⁺)))), where i⁺
is a neighbour of i and j are other documents (section 3.3). At prediction time the nearest documents vote for their
labels.

Differs from the author's code as follows. A document is ranked against the neighbours of the other documents in its
batch, instead of ten sampled documents, and each pass uses one of its neighbours, instead of all ten. AdaGrad has a
step size per feature instead of per weight. Votes are weighted by closeness, because equal votes (sharpness=0, as in
the paper) were worse on held-out documents. Exact search is the default, because within a cluster of 6,000 documents it
is faster than building a graph. Differs from SLEEC in that clusters are learnt from the graph of label neighbours, and
embeddings preserve an order instead of inner products.
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
from xmtc.linear.coordinate_descent import next_random_state, shuffle
from xmtc.linear.solver import seed_state
from xmtc.methods.embedding.local_embeddings import SINGLE_THREAD_RUN, LearnerSeed, LocalEmbeddings
from xmtc.methods.embedding.neighbours import NO_NEIGHBOUR, find_label_neighbours

BATCH_DOCUMENTS = 64  # documents that are ranked against each other's neighbours
CLUSTER_LEARNING_RATE = 0.1  # the author's value


@dataclass(frozen=True)
class AnnexML(LocalEmbeddings):
    """Nearest neighbours in embeddings learnt by ranking label neighbours first (Tagami, KDD 2017).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import AnnexML
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(AnnexML(n_learners=3)).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"n_learners": 3, "epochs": 30}

    n_learners: int = param(15, "Number of learners, each with its own random seed.", low=1, high=1000)
    n_neighbours: int = param(10, "Number of nearest documents by labels to learn from.", low=1, high=10_000)
    dimension: int = param(50, "Dimension of the embeddings.", low=1, high=4096, search=(25, 200), log=True)
    epochs: int = param(10, "Number of passes over a cluster's documents.", low=1, high=10_000)
    cluster_epochs: int = param(3, "Number of passes over all documents for learning the clusters.", low=1, high=10_000)
    rate: float = param(0.03, "Learning rate of AdaGrad.", low=1e-6, high=10.0, search=(0.003, 0.3), log=True)
    gamma: float = param(10.0, "Factor γ of the cosines in the ranking loss.", low=0.01, high=1000.0)
    sparsity: float = param(4.0, "Weight λ of the L1 regulariser in the cluster classifiers.", low=0.0, high=1e6)

    def learn_clusters(self, data: Dataset, n_clusters: int, run: Run) -> Iterator[np.ndarray]:
        if n_clusters == 1:
            return iter([np.zeros((data.X.shape[1], 1), np.float32)] * self.n_learners)
        neighbours = find_label_neighbours(data.Y, self.n_neighbours, run)

        def work(seed: LearnerSeed) -> np.ndarray:
            return self._learn_cluster_weights(data.X, neighbours, n_clusters, seed)

        return run.map_on_cluster(work, self.seeds, "dividing documents", total=self.n_learners)

    def _learn_cluster_weights(
        self, X: csr_array, neighbours: np.ndarray, n_clusters: int, seed: LearnerSeed
    ) -> np.ndarray:
        """Return linear classifiers that assign a document and its neighbours to the same cluster (section 3.2).

        The classifier with the largest margin for a document is trained to accept the document's neighbours and to
        reject random documents. The initial weights are random documents.
        """
        rng = np.random.default_rng(seed)
        initial_documents = X[rng.choice(X.shape[0], n_clusters, replace=False)].toarray().T
        shape, sparsity = (X.shape[1], n_clusters), np.float32(self.sparsity)
        W, squares, sums = (
            np.ascontiguousarray(initial_documents),
            np.ones(shape, np.float32),
            np.empty(shape, np.float32),
        )
        sums[:] = W / CLUSTER_LEARNING_RATE + sparsity * np.sign(W)
        train_cluster_weights(
            X.indptr,
            X.indices,
            X.data,
            neighbours,
            self.cluster_epochs,
            np.float32(CLUSTER_LEARNING_RATE),
            sparsity,
            np.empty(n_clusters, np.float32),
            np.arange(X.shape[0]),
            seed_state(int(rng.integers(2**31))),
            W,
            squares,
            sums,
        )
        return W

    def learn_projection(self, documents: CompactMatrix, Y: csr_array, seed: LearnerSeed) -> np.ndarray:
        rng = np.random.default_rng(seed)
        neighbours = find_label_neighbours(Y, self.n_neighbours, SINGLE_THREAD_RUN)
        W = rng.standard_normal((len(documents.columns), self.dimension), np.float32) / np.float32(self.dimension**0.5)
        train_embedding(
            *documents[:3],
            neighbours,
            (neighbours != NO_NEIGHBOUR).sum(axis=1),
            np.flatnonzero(neighbours[:, 0] != NO_NEIGHBOUR),
            np.float32(self.gamma),
            np.float32(self.rate),
            self.epochs,
            seed_state(int(rng.integers(2**31))),
            np.zeros((4, BATCH_DOCUMENTS, self.dimension), np.float32),
            np.zeros((2, BATCH_DOCUMENTS), np.float32),
            W,
            np.zeros(len(documents.columns), np.float32),
        )
        return W


@kernel
def draw_below(state, n):
    """Return the next random state, and a random number below n."""
    state = next_random_state(state)
    return state, np.int64(state % np.uint64(n))


@fast_kernel
def step_ftrl_proximal(indptr, indices, data, doc, cluster, target, rate, sparsity, W, squares, sums):
    """Take a step of FTRL-Proximal for one classifier and one document with target 1 or 0."""
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
        size = abs(sums[feature, cluster]) - sparsity
        sign = np.float32(1) if sums[feature, cluster] > 0 else np.float32(-1)
        W[feature, cluster] = rate * sign * size / after if size > 0 else np.float32(0)


@fast_kernel
def train_cluster_weights(
    indptr, indices, data, neighbours, epochs, rate, sparsity, margins, order, state, W, squares, sums
):
    n_docs, n_clusters = len(order), W.shape[1]
    for _ in range(epochs):
        state = shuffle(order, state)
        for doc in order:
            for c in range(n_clusters):
                margins[c] = 0
            for i in range(indptr[doc], indptr[doc + 1]):
                weights, value = W[indices[i]], data[i]
                for c in range(n_clusters):
                    margins[c] += value * weights[c]
            state, best = draw_below(state, n_clusters)  # breaks ties at random
            for c in range(n_clusters):
                if margins[c] > margins[best]:
                    best = c
            for n in range(neighbours.shape[1]):
                if neighbours[doc, n] != NO_NEIGHBOUR:
                    step_ftrl_proximal(
                        indptr, indices, data, neighbours[doc, n], best, np.float32(1), rate, sparsity, W, squares, sums
                    )
                    state, other = draw_below(state, n_docs)
                    step_ftrl_proximal(
                        indptr, indices, data, other, best, np.float32(0), rate, sparsity, W, squares, sums
                    )


@fast_kernel
def embed_document(indptr, indices, data, doc, W, unit):
    """Write a document's embedding at unit length into `unit`, and return its original length."""
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
    """Take a step of AdaGrad along the gradient of a document's unit vector; only the vector's direction changes."""
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
def add_ranking_gradients(i, n, gamma, units, others, gradients, other_gradients, weights):
    """Add the gradients of log(1 + Σ_j exp(γ (cos(i, j) − cos(i, i⁺)))).

    units[i] is document i, others[i] its neighbour i⁺, and others[j] are the neighbours of the other documents.
    """
    highest = np.float32(-3e38)
    for j in range(n):
        total = np.float32(0)
        for d in range(units.shape[1]):
            total += units[i, d] * others[j, d]
        weights[j] = gamma * total
        highest = max(highest, weights[j])
    total = np.float32(0)
    for j in range(n):
        weights[j] = np.exp(weights[j] - highest)
        total += weights[j]
    for j in range(n):
        slope = gamma * (weights[j] / total - (np.float32(1) if i == j else np.float32(0)))
        for d in range(units.shape[1]):
            gradients[i, d] += slope * others[j, d]
            other_gradients[j, d] += slope * units[i, d]


@fast_kernel
def train_embedding(
    indptr, indices, data, neighbours, counts, order, gamma, rate, epochs, state, work, lengths, W, squares
):
    """Train W so that each document is closer to one of its neighbours than to the neighbours of its batch."""
    units, others, gradients, other_gradients = work[0], work[1], work[2], work[3]
    chosen, weights = np.zeros(BATCH_DOCUMENTS, np.int64), np.zeros(BATCH_DOCUMENTS, np.float32)
    for _ in range(epochs):
        state = shuffle(order, state)
        for begin in range(0, len(order), BATCH_DOCUMENTS):
            n = min(BATCH_DOCUMENTS, len(order) - begin)
            for i in range(n):
                doc = order[begin + i]
                state, which = draw_below(state, counts[doc])
                chosen[i] = neighbours[doc, which]
                lengths[0, i] = embed_document(indptr, indices, data, doc, W, units[i])
                lengths[1, i] = embed_document(indptr, indices, data, chosen[i], W, others[i])
                for d in range(W.shape[1]):
                    gradients[i, d], other_gradients[i, d] = 0, 0
            for i in range(n):
                add_ranking_gradients(i, n, gamma, units, others, gradients, other_gradients, weights)
            for i in range(n):
                doc = order[begin + i]
                step_adagrad(indptr, indices, data, doc, units[i], lengths[0, i], gradients[i], rate, W, squares)
                step_adagrad(
                    indptr, indices, data, chosen[i], others[i], lengths[1, i], other_gradients[i], rate, W, squares
                )

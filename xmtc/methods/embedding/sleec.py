"""SLEEC: local embeddings that preserve the inner products of label vectors with their nearest neighbours.

Paper: Bhatia, Jain, Kar, Varma, Jain: Sparse Local Embeddings for Extreme Multi-label Classification (NIPS 2015).

Idea: k-means divides the documents into clusters. In a cluster, embeddings Z are learnt whose inner products ZZᵀ
approximate those of the label vectors, but only for the n̄ nearest neighbours Ω (equation 2, by singular value
projection, Algorithm 3). A linear regressor V maps documents to embeddings, and the nearest training documents vote for
their labels. Several learners with different clusters are averaged.

Differs from the paper as follows. The regressors are ridge regression by dual coordinate descent, like the LIBLINEAR
regressors in the authors' code, instead of ADMM with an L1 penalty. Eigenvectors are updated in each step by one
subspace iteration instead of a full decomposition. Neighbours are compared by cosine, which was better on held-out
documents. Weights and embeddings are stored in 8 bits. Differs from AnnexML in that k-means of the features divides the
documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.numba_support import fast_kernel
from xmtc.core.run import Run
from xmtc.core.sparse import CompactMatrix, compact, normalise_rows
from xmtc.labels.kmeans import k_means
from xmtc.linear.ridge import fit_ridge
from xmtc.methods.embedding.local_embeddings import SINGLE_THREAD_RUN, LearnerSeed, LocalEmbeddings
from xmtc.methods.embedding.neighbour_model import NeighbourModel
from xmtc.methods.embedding.neighbours import find_label_neighbours


@dataclass(frozen=True)
class SLEEC(LocalEmbeddings):
    """Nearest neighbours in local embeddings that preserve label similarity (Bhatia et al., NIPS 2015).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import SLEEC
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(SLEEC(n_learners=2)).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"n_learners": 3, "dimension": 40, "n_neighbours": 20, "n_votes": 10}
    presets: ClassVar[Presets] = {
        "Delicious": {"sharpness": 10.0},  # chosen by us on held-out documents; the others are the authors' values
        "EUR-Lex": {
            "n_learners": 5,
            "n_clusters": 3,
            "n_neighbours": 100,
            "dimension": 100,
            "n_votes": 8,
            "sharpness": 0.0,
        },
        "Wiki10-31K": {
            "n_learners": 5,
            "n_clusters": 5,
            "n_neighbours": 50,
            "dimension": 75,
            "n_votes": 11,
            "sharpness": 0.0,
        },
        "Amazon-670K": {
            "n_learners": 20,
            "n_clusters": 100,
            "n_neighbours": 25,
            "dimension": 50,
            "n_votes": 5,
            "sharpness": 0.0,
        },
    }

    preset: str = param("", "Data set whose settings are the defaults.", choices=("", *presets))
    steps: int = param(50, "Number of singular value projection steps.", low=1, high=10_000)
    C: float = param(
        1.0, "Weight C of the loss against the regulariser.", low=1e-6, high=1e6, search=(0.1, 10), log=True
    )
    max_passes: int = param(
        10, "Number of passes over a cluster's documents for training the regressors.", low=1, high=10_000
    )

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> NeighbourModel:
        with threadpool_limits(1, "blas"):  # the clusters run in parallel, and BLAS threads would change the rounding
            return super()._fit(data, valid, run)

    def learn_clusters(self, data: Dataset, n_clusters: int, run: Run) -> Iterator[np.ndarray]:
        def work(seed: LearnerSeed) -> np.ndarray:
            return compute_cluster_centres(data.X, n_clusters, seed)

        return run.map_on_cluster(work, self.seeds, "dividing documents", total=self.n_learners)

    def learn_projection(self, documents: CompactMatrix, Y: csr_array, seed: LearnerSeed) -> np.ndarray:
        products = compute_neighbour_products(Y, self.n_neighbours)
        Z = learn_embeddings(products, min(self.dimension, len(Y.indptr) - 1), self.steps, seed)
        V = np.zeros((len(documents.columns), self.dimension), np.float32)
        V[:, : Z.shape[1]] = fit_ridge(documents, Z, self.C, self.max_passes, self.seed)
        return V


def compute_cluster_centres(X: csr_array, n_clusters: int, seed: LearnerSeed) -> np.ndarray:
    """Return the centroids of spherical k-means, shape (n_features, n_clusters)."""
    if n_clusters == 1:
        return np.zeros((X.shape[1], 1), np.float32)
    starts = np.random.default_rng(seed).choice(X.shape[0], n_clusters, replace=False)
    cluster = k_means(compact(X, np.arange(X.shape[0])), starts)
    membership = csr_array(
        (np.ones(len(cluster), np.float32), (cluster, np.arange(len(cluster)))), (n_clusters, len(cluster))
    )
    return np.ascontiguousarray(normalise_rows(csr_array(membership @ X)).toarray().T)


def compute_neighbour_products(Y: csr_array, n_neighbours: int) -> csr_array:
    """Return the inner products of unit label vectors on Ω: pairs of neighbours, and each document with itself."""
    neighbours = find_label_neighbours(Y, n_neighbours, SINGLE_THREAD_RUN)
    n, unit = len(neighbours), normalise_rows(Y)
    is_found = neighbours >= 0
    rows, columns = np.repeat(np.arange(n), neighbours.shape[1])[is_found.ravel()], neighbours[is_found]
    diagonal = np.arange(n)
    entries = np.concatenate([rows, columns, diagonal]), np.concatenate([columns, rows, diagonal])
    products = csr_array((np.ones(len(entries[0]), np.float32), entries), shape=(n, n))
    products.sum_duplicates()
    multiply_sparse_rows(products.indptr, products.indices, unit.indptr, unit.indices, unit.data, products.data)
    return products


def learn_embeddings(products: csr_array, dimension: int, steps: int, seed: LearnerSeed) -> np.ndarray:
    """Return Z, shape (n_docs, dimension), whose inner products ZZᵀ approximate `products` (Algorithm 3).

    A step of singular value projection takes a gradient step and projects the result to matrices of rank `dimension`.
    The current matrix is U diag(values) Uᵀ.
    """
    n, start = products.shape[0], np.random.default_rng(seed).standard_normal((products.shape[0], dimension))
    U, values = np.linalg.qr(start.astype(np.float32))[0], np.zeros(dimension, np.float32)
    residuals = csr_array((np.empty(products.nnz, np.float32), products.indices, products.indptr), shape=(n, n))
    for _ in range(steps):
        scaled = U * values
        compute_residuals(products.indptr, products.indices, products.data, scaled, U, residuals.data)
        basis = np.linalg.qr(scaled + residuals @ U)[0]
        image = scaled @ (U.T @ basis) + residuals @ basis
        eigenvalues, eigenvectors = np.linalg.eigh(symmetrize(basis.T @ image))
        U, values = basis @ eigenvectors, np.maximum(eigenvalues, 0)
    return np.ascontiguousarray(U * np.sqrt(values))


def symmetrize(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


@fast_kernel
def multiply_sparse_rows(indptr, indices, unit_ends, unit_indices, unit_data, products):
    """Write the inner products of the pairs of rows at which a sparse matrix has entries."""
    for row in range(len(indptr) - 1):
        for place in range(indptr[row], indptr[row + 1]):
            a, b = unit_ends[row], unit_ends[indices[place]]
            a_end, b_end = unit_ends[row + 1], unit_ends[indices[place] + 1]
            total = np.float32(0)
            while a < a_end and b < b_end:
                if unit_indices[a] == unit_indices[b]:
                    total += unit_data[a] * unit_data[b]
                    a, b = a + 1, b + 1
                elif unit_indices[a] < unit_indices[b]:
                    a += 1
                else:
                    b += 1
            products[place] = total


@fast_kernel
def compute_residuals(indptr, indices, products, scaled, U, residuals):
    """Write `products` minus the inner products of rows of `scaled` and U, at the entries of a sparse matrix.

    Four partial sums let the processor pipeline the additions.
    """
    dimension = U.shape[1]
    for row in range(len(indptr) - 1):
        for place in range(indptr[row], indptr[row + 1]):
            other = indices[place]
            one, two, three, four = products[place], np.float32(0), np.float32(0), np.float32(0)
            for d in range(0, dimension - 3, 4):
                one -= scaled[row, d] * U[other, d]
                two -= scaled[row, d + 1] * U[other, d + 1]
                three -= scaled[row, d + 2] * U[other, d + 2]
                four -= scaled[row, d + 3] * U[other, d + 3]
            for d in range(dimension - dimension % 4, dimension):
                one -= scaled[row, d] * U[other, d]
            residuals[place] = (one + two) + (three + four)

"""SLEEC: embeddings that keep the products of label vectors, but only with the nearest. Bhatia, Jain, Kar, Varma, Jain:
Sparse Local Embeddings for Extreme Multi-label Classification (NIPS 2015).

Differs from the paper in: the regressors are ridge regression by dual coordinate descent, as the authors' code has
LIBLINEAR's, instead of ADMM with an L1 penalty; eigenvectors are followed from step to step by one subspace iteration
instead of being found anew; neighbours are compared by cosine, which was better on held-out documents. Weights and
embeddings are kept in 8 bits. Differs from AnnexML in: documents are divided by k-means of their features.
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
    """Local embeddings that keep the distances of label vectors, and nearest neighbours (Bhatia et al., NIPS 2015)."""

    quick_parameters: ClassVar[dict[str, Any]] = {"n_learners": 3, "dimension": 40, "n_neighbours": 20, "n_votes": 10}
    presets: ClassVar[Presets] = {
        "Delicious": {"sharpness": 10.0},  # ours, by held-out documents; the others are the authors'
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

    preset: str = param("", "start from settings for a data set", choices=("", *presets))
    steps: int = param(50, "steps of the search for embeddings", low=1, high=10_000)
    C: float = param(1.0, "weight of the loss against the regulariser", low=1e-6, high=1e6, search=(0.1, 10), log=True)
    max_passes: int = param(10, "passes over a cluster's documents in learning the map", low=1, high=10_000)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> NeighbourModel:
        with threadpool_limits(1, "blas"):  # our threads share the work; and BLAS's number of them may change a digit
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
    """(n_features, n_clusters): the centres of spherical k-means."""
    if n_clusters == 1:
        return np.zeros((X.shape[1], 1), np.float32)
    starts = np.random.default_rng(seed).choice(X.shape[0], n_clusters, replace=False)
    cluster = k_means(compact(X, np.arange(X.shape[0])), starts)
    which = csr_array(
        (np.ones(len(cluster), np.float32), (cluster, np.arange(len(cluster)))), (n_clusters, len(cluster))
    )
    return np.ascontiguousarray(normalise_rows(csr_array(which @ X)).toarray().T)


def compute_neighbour_products(Y: csr_array, n_neighbours: int) -> csr_array:
    """The products of unit label vectors, where one is among the nearest of the other, and of each with itself."""
    near = find_label_neighbours(Y, n_neighbours, SINGLE_THREAD_RUN)
    n, unit = len(near), normalise_rows(Y)
    rows, columns = np.repeat(np.arange(n), near.shape[1])[near.ravel() >= 0], near[near >= 0]
    everyone = np.arange(n)
    entries = np.concatenate([rows, columns, everyone]), np.concatenate([columns, rows, everyone])
    found = csr_array((np.ones(len(entries[0]), np.float32), entries), shape=(n, n))
    found.sum_duplicates()
    multiply_sparse_rows(found.indptr, found.indices, unit.indptr, unit.indices, unit.data, found.data)
    return found


def learn_embeddings(products: csr_array, dimension: int, steps: int, seed: LearnerSeed) -> np.ndarray:
    """(n_docs, dimension): Z whose products ZZᵀ come near to those that are given, by singular value projection (the
    paper's Algorithm 3): a step towards them, and back to the matrices of that rank."""
    n, start = products.shape[0], np.random.default_rng(seed).standard_normal((products.shape[0], dimension))
    U, values = np.linalg.qr(start.astype(np.float32))[0], np.zeros(dimension, np.float32)
    missing = csr_array((np.empty(products.nnz, np.float32), products.indices, products.indptr), shape=(n, n))
    for _ in range(steps):
        scaled = U * values
        compute_residuals(products.indptr, products.indices, products.data, scaled, U, missing.data)
        moved = np.linalg.qr(scaled + missing @ U)[0]
        image = scaled @ (U.T @ moved) + missing @ moved
        found, turn = np.linalg.eigh(symmetrize(moved.T @ image))
        U, values = moved @ turn, np.maximum(found, 0)
    return np.ascontiguousarray(U * np.sqrt(values))


def symmetrize(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


@fast_kernel
def multiply_sparse_rows(indptr, indices, unit_ends, unit_indices, unit_data, products):
    """Of the pairs of rows that a matrix has entries for, the products, written in their places."""
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
def compute_residuals(indptr, indices, products, scaled, U, missing):
    """What the products of the rows of `scaled` and U still lack, where there are any to compare with. Four sums run
    beside each other, because one would wait for itself."""
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
            missing[place] = (one + two) + (three + four)

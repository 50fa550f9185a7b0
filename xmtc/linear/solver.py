"""One solver for the linear methods: L2-regularised squared-hinge SVMs by dual coordinate descent (Hsieh et al. 2008,
as in LIBLINEAR), many labels that share their documents side by side.

All labels of a tree node see the same documents, so a document's features are read once and meet a whole block of
labels: weights lie features × labels, and the inner loop runs along the labels. Columns that are empty in the node
are dropped first, so that the weights stay in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numba import njit
from scipy.sparse import csr_array

BLOCK = 64  # labels solved side by side: 256 bytes of float32, a whole number of vector registers


@dataclass(frozen=True)
class SquaredHinge:
    """min ½‖w‖² + C Σ max(0, 1 − y w·x)² for each label, with a constant feature of 1 as the bias."""

    C: float = 1.0
    eps: float = 0.1  # stop when the projected gradients of a pass lie this close together
    max_passes: int = 20
    seed: int = 0

    def fit(self, X: csr_array, rows: np.ndarray, positives: csr_array) -> Weights:
        """Weights for every column of `positives` ((len(rows), n_labels), ones) against the documents `rows` of X."""
        indptr, indices, data, features = compact(X.indptr, X.indices, X.data, X.shape[1], rows)
        n_labels = positives.shape[1]
        W = np.zeros((len(features) + 1, n_labels), np.float32)
        n_blocks = -(-n_labels // BLOCK)
        cuts = np.linspace(0, n_labels, n_blocks + 1).astype(np.int64)
        limits = self.C, self.eps, self.max_passes, self.seed
        for begin, end in pairwise(cuts):
            signs = signs_of(positives.indptr, positives.indices, len(rows), begin, end)
            W[:, begin:end] = solve(indptr, indices, data, len(features), signs, *limits)
        return Weights(features, W)


@dataclass(frozen=True)
class Weights:
    """Weights of several labels over the features that occur in their documents; the last row is the bias."""

    features: np.ndarray  # (n,) int32, ascending
    W: np.ndarray  # (n + 1, n_labels) float32


@njit(nogil=True, cache=True)
def compact(indptr, indices, data, n_features, rows):
    """The rows of a CSR matrix over the columns that occur in them: indptr, indices, data, and those columns."""
    seen = np.zeros(n_features, np.bool_)
    n = 0
    for row in rows:
        n += indptr[row + 1] - indptr[row]
        for i in range(indptr[row], indptr[row + 1]):
            seen[indices[i]] = True
    features = np.flatnonzero(seen).astype(np.int32)
    number = np.empty(n_features, np.int32)
    number[features] = np.arange(len(features)).astype(np.int32)
    new_indptr, new_indices, new_data = (
        np.zeros(len(rows) + 1, np.int64),
        np.empty(n, np.int32),
        np.empty(n, np.float32),
    )
    n = 0
    for position in range(len(rows)):
        for i in range(indptr[rows[position]], indptr[rows[position] + 1]):
            new_indices[n], new_data[n] = number[indices[i]], data[i]
            n += 1
        new_indptr[position + 1] = n
    return new_indptr, new_indices, new_data, features


@njit(nogil=True, cache=True)
def signs_of(indptr, indices, n_rows, begin, end):
    """+1 where a row has the label, −1 elsewhere, for labels begin:end."""
    signs = np.full((n_rows, end - begin), -1, np.float32)
    for row in range(n_rows):
        for i in range(indptr[row], indptr[row + 1]):
            if begin <= indices[i] < end:
                signs[row, indices[i] - begin] = 1
    return signs


@njit(nogil=True, cache=True)
def shuffle(order, state):
    """Fisher–Yates with a xorshift generator, so that the order depends on the seed alone."""
    for i in range(len(order) - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = np.int64(state % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


@njit(nogil=True, cache=True, fastmath=True)
def solve(indptr, indices, data, n_features, signs, C, eps, max_passes, seed):
    """Weights (n_features + 1, n_labels) of one block of labels; one step per document for the whole block."""
    n_rows, n_labels = signs.shape
    W = np.zeros((n_features + 1, n_labels), np.float32)
    alpha = np.zeros((n_rows, n_labels), np.float32)
    margin, step = np.empty(n_labels, np.float32), np.empty(n_labels, np.float32)
    diagonal = np.float32(0.5 / C)
    curvature = np.empty(n_rows, np.float32)
    for row in range(n_rows):
        square = np.float32(1)
        for i in range(indptr[row], indptr[row + 1]):
            square += data[i] * data[i]
        curvature[row] = 1 / (square + diagonal)
    order, state = np.arange(n_rows), np.uint64(2 * seed + 88172645463325253)
    for _ in range(max_passes):
        state = shuffle(order, state)
        highest, lowest = np.float32(0), np.float32(0)
        for row in order:
            margin[:] = W[n_features]
            for i in range(indptr[row], indptr[row + 1]):
                weights, value = W[indices[i]], data[i]
                for j in range(n_labels):
                    margin[j] += value * weights[j]
            moved = False
            for j in range(n_labels):
                sign, a = signs[row, j], alpha[row, j]
                gradient = sign * margin[j] - 1 + diagonal * a
                if a == 0:
                    gradient = min(gradient, np.float32(0))
                highest, lowest = max(highest, gradient), min(lowest, gradient)
                new = max(a - gradient * curvature[row], np.float32(0))
                step[j] = (new - a) * sign
                moved |= new != a
                alpha[row, j] = new
            if moved:
                for j in range(n_labels):
                    W[n_features, j] += step[j]
                for i in range(indptr[row], indptr[row + 1]):
                    weights, value = W[indices[i]], data[i]
                    for j in range(n_labels):
                        weights[j] += value * step[j]
        if highest - lowest <= eps:
            break
    return W

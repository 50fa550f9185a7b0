"""Balanced spherical 2-means over sparse label vectors (Parabel, section 4.2; AttentionXML's trees use it too)."""

from __future__ import annotations

import numpy as np
from numba import njit

from xmtc.labels.vectors import LabelVectors

MIN_GAIN = 1e-4  # stop when the mean similarity to the centre grows by less: the authors' value
MAX_ROUNDS = 100


def halve(vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence) -> tuple[np.ndarray, np.ndarray]:
    """Two halves, equal but for one label, of the labels in `part`, each half around its own centre."""
    first, second = np.random.default_rng(seed).choice(len(part), 2, replace=False)
    V = vectors.matrix
    order = split_in_two(V.indptr, V.indices, V.data, V.shape[1], part, first, second, MIN_GAIN, MAX_ROUNDS)
    half = (len(part) + 1) // 2
    return np.sort(part[order[:half]]), np.sort(part[order[half:]])


@njit(nogil=True, cache=True)
def split_in_two(indptr, indices, data, n_features, part, first, second, min_gain, max_rounds):
    """Positions in `part`, ordered so that the first half belongs together."""
    n = len(part)
    half = (n + 1) // 2
    centres = np.zeros((2, n_features), np.float32)
    for side, seed in enumerate((first, second)):
        for i in range(indptr[part[seed]], indptr[part[seed] + 1]):
            centres[side, indices[i]] = data[i]
    order, last = np.arange(n), -np.inf
    for _ in range(max_rounds):
        similarity = np.zeros((2, n), np.float32)
        for label in range(n):
            for i in range(indptr[part[label]], indptr[part[label] + 1]):
                similarity[0, label] += data[i] * centres[0, indices[i]]
                similarity[1, label] += data[i] * centres[1, indices[i]]
        order = np.argsort(similarity[1] - similarity[0], kind="mergesort")
        mean = (similarity[0, order[:half]].sum() + similarity[1, order[half:]].sum()) / n
        if mean - last < min_gain:
            break
        last = mean
        centres[:] = 0
        for position in range(n):
            side = 0 if position < half else 1
            label = part[order[position]]
            for i in range(indptr[label], indptr[label + 1]):
                centres[side, indices[i]] += data[i]
        for side in range(2):
            length = np.sqrt((centres[side] ** 2).sum())
            if length > 0:
                centres[side] /= length
    return order

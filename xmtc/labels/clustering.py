"""Balanced spherical 2-means over sparse label vectors (Parabel, section 4.2; AttentionXML's trees use it too)."""

from __future__ import annotations

import numpy as np

from xmtc.compiled import kernel
from xmtc.labels.vectors import LabelVectors

MIN_GAIN = 1e-4  # stop when the mean similarity to the centre grows by less: the authors' value
MAX_ROUNDS = 100


def halve(vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence) -> tuple[np.ndarray, ...]:
    """Two halves, equal but for one label, of the labels in `part`, each around its own centre; one alone stays."""
    if len(part) == 1:
        return (part,)
    first, second = np.random.default_rng(seed).choice(len(part), 2, replace=False)
    V = vectors.matrix
    order = split_in_two(V.indptr, V.indices, V.data, V.shape[1], part, first, second, MIN_GAIN, MAX_ROUNDS)
    half = (len(part) + 1) // 2
    return np.sort(part[order[:half]]), np.sort(part[order[half:]])


@kernel
def split_in_two(indptr, indices, data, n_features, part, first, second, min_gain, max_rounds):
    """Positions in `part`, ordered so that the first half belongs together.

    Only the difference of the two centres is needed to choose a side, and the second half's sum is the whole sum less
    the first half's: one look-up per feature and half an addition, where the textbook has two of each."""
    n = len(part)
    half = (n + 1) // 2
    whole, ours = np.zeros(n_features, np.float32), np.zeros(n_features, np.float32)
    difference = np.zeros(n_features, np.float32)
    for label in part:
        for i in range(indptr[label], indptr[label + 1]):
            whole[indices[i]] += data[i]
    features = np.flatnonzero(whole)
    for i in range(indptr[part[first]], indptr[part[first] + 1]):
        difference[indices[i]] += data[i]
    for i in range(indptr[part[second]], indptr[part[second] + 1]):
        difference[indices[i]] -= data[i]
    order, leaning, last = np.arange(n), np.zeros(n, np.float32), -np.inf
    for _ in range(max_rounds):
        for position in range(n):
            lean = np.float32(0)
            for i in range(indptr[part[position]], indptr[part[position] + 1]):
                lean -= data[i] * difference[indices[i]]
            leaning[position] = lean
        order = np.argsort(leaning, kind="mergesort")
        ours[features] = 0
        for position in order[:half]:
            for i in range(indptr[part[position]], indptr[part[position] + 1]):
                ours[indices[i]] += data[i]
        our_square, their_square = 0.0, 0.0
        for feature in features:
            our_square += ours[feature] ** 2
            their_square += (whole[feature] - ours[feature]) ** 2
        our_length, their_length = max(np.sqrt(our_square), 1e-30), max(np.sqrt(their_square), 1e-30)
        mean = (our_length + their_length) / n  # of the similarities to the new centres, which these lengths are
        if mean - last < min_gain:
            break
        last = mean
        for feature in features:
            difference[feature] = ours[feature] / our_length - (whole[feature] - ours[feature]) / their_length
    return order

"""Spherical k-means over sparse label vectors: balanced with two clusters (Parabel, section 4.2; AttentionXML's trees
use it too), unbalanced with many (Bonsai)."""

from __future__ import annotations

import numpy as np

from xmtc.compiled import fast_kernel, kernel
from xmtc.labels.vectors import LabelVectors
from xmtc.sparse import compact

MIN_GAIN = 1e-4  # stop when the mean similarity to the centre grows by less: the authors' value
WIDE_MIN_GAIN = 1e-3  # with many clusters: as accurate as 1e-4 in half the time (docs/linear.md)
MAX_ROUNDS = 100


def halve(vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence) -> tuple[np.ndarray, ...]:
    """Two halves, equal but for one label, of the labels in `part`, each around its own centre."""
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


def divide(
    vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence, n_clusters: int
) -> tuple[np.ndarray, ...]:
    """Up to n_clusters groups, of any size, of the labels in `part`: spherical k-means (Bonsai, section 3.2)."""
    starts = np.random.default_rng(seed).choice(len(part), min(n_clusters, len(part)), replace=False)
    V = vectors.matrix
    rows = compact(V.indptr, V.indices, V.data, V.shape[1], part)
    cluster = k_means(*rows[:3], len(rows[3]), starts, WIDE_MIN_GAIN, MAX_ROUNDS)
    groups = (part[cluster == c] for c in range(len(starts)))
    return tuple(group for group in groups if len(group))


@fast_kernel
def k_means(indptr, indices, data, n_features, starts, min_gain, max_rounds):
    """The cluster of every row. Centres lie features × clusters, so that a row's feature meets them all at once."""
    n_rows, n_clusters = len(indptr) - 1, len(starts)
    centres = np.zeros((n_features, n_clusters), np.float32)
    for c in range(n_clusters):
        for i in range(indptr[starts[c]], indptr[starts[c] + 1]):
            centres[indices[i], c] = data[i]
    cluster, similarity, last = np.zeros(n_rows, np.int64), np.empty(n_clusters, np.float32), np.float32(-1)
    for _ in range(max_rounds):
        mean = np.float32(0)
        for row in range(n_rows):
            similarity[:] = 0
            for i in range(indptr[row], indptr[row + 1]):
                centre, value = centres[indices[i]], data[i]
                for c in range(n_clusters):
                    similarity[c] += value * centre[c]
            cluster[row] = np.argmax(similarity)
            mean += similarity[cluster[row]] / n_rows
        if mean - last < min_gain:
            break
        last = mean
        centres[:] = 0
        for row in range(n_rows):
            for i in range(indptr[row], indptr[row + 1]):
                centres[indices[i], cluster[row]] += data[i]
        squares = np.zeros(n_clusters, np.float32)
        for feature in range(n_features):
            for c in range(n_clusters):
                squares[c] += centres[feature, c] * centres[feature, c]
        lengths = np.sqrt(np.maximum(squares, np.float32(1e-30)))
        for feature in range(n_features):
            for c in range(n_clusters):
                centres[feature, c] /= lengths[c]
    return cluster

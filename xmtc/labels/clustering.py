"""Spherical k-means over sparse label vectors: balanced with two clusters (Parabel, section 4.2; AttentionXML's trees
use it too), unbalanced with many (Bonsai)."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from xmtc.compiled import fast_kernel, kernel
from xmtc.labels.vectors import LabelVectors
from xmtc.sparse import Compact, compact

MIN_GAIN = 1e-4  # stop when the mean similarity to the centre grows by less: the authors' value
WIDE_MIN_GAIN = 1e-3  # with many clusters: as accurate as 1e-4 in half the time (docs/results/linear-engine.md)
MAX_ROUNDS = 100


def halve(vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence) -> tuple[np.ndarray, ...]:
    """Two halves, equal but for one label, of the labels in `part`, each around its own centre."""
    first, second = np.random.default_rng(seed).choice(len(part), 2, replace=False)
    order = split_in_two(vectors.matrix, part, first, second)
    half = (len(part) + 1) // 2
    return np.sort(part[order[:half]]), np.sort(part[order[half:]])


def split_in_two(V: csr_array, part: np.ndarray, first: int, second: int) -> np.ndarray:
    """Positions in `part`, ordered so that the first half belongs together; the rows at the positions `first` and
    `second` are the first centres.

    Only the difference of the two centres is needed to choose a side, and the second half's sum is the whole sum less
    the first half's: one look-up per feature and half an addition, where the textbook has two of each."""
    rows = V.indptr, V.indices, V.data
    half = (len(part) + 1) // 2
    whole, ours, difference = (np.zeros(V.shape[1], np.float32) for _ in range(3))
    add_rows(*rows, part, np.float32(1), whole)
    add_rows(*rows, part[[first]], np.float32(1), difference)
    add_rows(*rows, part[[second]], np.float32(-1), difference)
    features, leaning, last = np.flatnonzero(whole), np.empty(len(part), np.float32), -np.inf

    for _ in range(MAX_ROUNDS):
        lean(*rows, part, difference, leaning)
        order = np.argsort(leaning, kind="stable")
        add_rows(*rows, part[order[:half]], np.float32(1), ours)
        mean = part_centres(features, whole, ours, difference) / len(part)
        if mean - last < MIN_GAIN:
            break
        last = mean
    return order


@kernel
def add_rows(indptr, indices, data, rows, factor, total):
    """Add rows of a sparse matrix, or take them away, if the factor is −1."""
    for row in rows:
        for i in range(indptr[row], indptr[row + 1]):
            total[indices[i]] += factor * data[i]


@kernel
def lean(indptr, indices, data, part, difference, leaning):
    """How far each row of `part` leans away from the first of two centres, given their difference."""
    for position in range(len(part)):
        total = np.float32(0)
        for i in range(indptr[part[position]], indptr[part[position] + 1]):
            total -= data[i] * difference[indices[i]]
        leaning[position] = total


@kernel
def part_centres(features, whole, ours, difference):
    """Write the difference of the centres of two halves, given the sum of both and of ours, which is left as zeros;
    return how similar rows are to their new centre, summed up: it is the length of the halves' sums."""
    our_square, their_square = 0.0, 0.0
    for feature in features:
        theirs = whole[feature] - ours[feature]
        our_square += ours[feature] * ours[feature]
        their_square += theirs * theirs
    our_length, their_length = max(np.sqrt(our_square), 1e-30), max(np.sqrt(their_square), 1e-30)
    for feature in features:
        difference[feature] = ours[feature] / our_length - (whole[feature] - ours[feature]) / their_length
        ours[feature] = 0
    return our_length + their_length


def divide(
    vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence, n_clusters: int
) -> tuple[np.ndarray, ...]:
    """Up to n_clusters groups, of any size, of the labels in `part`: spherical k-means (Bonsai, section 3.2)."""
    starts = np.random.default_rng(seed).choice(len(part), min(n_clusters, len(part)), replace=False)
    rows = compact(vectors.matrix, part)
    cluster = k_means(rows, starts)
    groups = (part[cluster == c] for c in range(len(starts)))
    return tuple(group for group in groups if len(group))


def k_means(rows: Compact, starts: np.ndarray) -> np.ndarray:
    """The cluster of every row, from the rows `starts` on. Centres lie features × clusters, so that a row's feature
    meets them all at once."""
    n_clusters = len(starts)
    centres = np.zeros((len(rows.columns), n_clusters), np.float32)
    for c, start in enumerate(starts):
        begin, end = rows.indptr[start], rows.indptr[start + 1]
        centres[rows.indices[begin:end], c] = rows.data[begin:end]

    cluster = np.zeros(len(rows.indptr) - 1, np.int64)
    similarity, squares = np.empty(n_clusters, np.float32), np.empty(n_clusters, np.float32)
    move_centres(rows.indptr, rows.indices, rows.data, WIDE_MIN_GAIN, MAX_ROUNDS, centres, cluster, similarity, squares)
    return cluster


@fast_kernel
def move_centres(indptr, indices, data, min_gain, max_rounds, centres, cluster, similarity, squares):
    """Rounds of spherical k-means: rows join the cluster of the nearest centre, and centres move to their rows."""
    n_rows, (n_features, n_clusters), last = len(cluster), centres.shape, np.float32(-1)
    for _ in range(max_rounds):
        mean = np.float32(0)
        for row in range(n_rows):
            for c in range(n_clusters):
                similarity[c] = 0
            for i in range(indptr[row], indptr[row + 1]):
                centre, value = centres[indices[i]], data[i]
                for c in range(n_clusters):
                    similarity[c] += value * centre[c]
            nearest = 0
            for c in range(n_clusters):
                if similarity[c] > similarity[nearest]:
                    nearest = c
            cluster[row] = nearest
            mean += similarity[nearest] / n_rows
        if mean - last < min_gain:
            break
        last = mean
        for feature in range(n_features):
            for c in range(n_clusters):
                centres[feature, c] = 0
        for row in range(n_rows):
            for i in range(indptr[row], indptr[row + 1]):
                centres[indices[i], cluster[row]] += data[i]
        for c in range(n_clusters):
            squares[c] = 0
        for feature in range(n_features):
            for c in range(n_clusters):
                squares[c] += centres[feature, c] * centres[feature, c]
        for c in range(n_clusters):
            squares[c] = np.sqrt(max(squares[c], np.float32(1e-30)))
        for feature in range(n_features):
            for c in range(n_clusters):
                centres[feature, c] /= squares[c]

"""Spherical k-means over sparse label vectors, with clusters of any size (Bonsai).

As in `balanced_kmeans`, large parts are cut into pieces for several threads. `k_means_single_thread` gives the same
clusters for small parts without returning to Python between rounds."""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.run import MapFunction
from xmtc.core.sparse import CompactMatrix, compact
from xmtc.labels.balanced_kmeans import MAX_ROUNDS, split_pieces
from xmtc.labels.vectors import LabelVectors

MIN_GAIN = 1e-3  # of the mean similarity; as accurate as 1e-4 on tibkat-gnd-en, in half the time
MIN_PIECE_VALUES = 100_000  # values per thread; each is multiplied with all centres
CLUSTERS_PER_GROUP = 16  # clusters whose centres one thread updates: the float32 values of a cache line

ClusterSums = tuple[np.ndarray, np.ndarray, np.ndarray]  # features, values, number of features of each cluster


def cluster_labels(
    vectors: LabelVectors,
    part: np.ndarray,
    seed: np.random.SeedSequence,
    parallel_map: MapFunction = map,
    n_clusters: int = 100,
) -> tuple[np.ndarray, ...]:
    """Split the labels of `part` into up to n_clusters clusters by spherical k-means (Bonsai, section 3.2)."""
    starts = np.random.default_rng(seed).choice(len(part), min(n_clusters, len(part)), replace=False)
    cluster = k_means(compact(vectors.matrix, part), starts, parallel_map)
    groups = (part[cluster == c] for c in range(len(starts)))
    return tuple(group for group in groups if len(group))


def k_means(
    rows: CompactMatrix, starts: np.ndarray, parallel_map: MapFunction = map, min_piece_values: int | None = None
) -> np.ndarray:
    """Return the cluster of every row; the rows `starts` are the initial centres.

    Threads assign pieces of the rows and update groups of the centres. The matrix of centres has shape (n_features,
    n_clusters), so that the values of one feature are adjacent."""
    n_rows, n_clusters = len(rows.indptr) - 1, len(starts)
    cluster, nearness, last = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.float32), -1.0
    centres = np.zeros((len(rows.columns), n_clusters), np.float32)
    pieces = split_pieces(np.diff(rows.indptr), min_piece_values or MIN_PIECE_VALUES)
    groups = range(0, n_clusters, CLUSTERS_PER_GROUP)
    if len(pieces) == 1:
        eights = np.zeros(-(-len(rows.columns) // 8), np.uint64)
        k_means_single_thread(*rows[:3], starts, centres, eights, eights.view(np.uint8), cluster, nearness)
        return cluster
    group_sums = {first: copy_rows(rows, starts[first : first + CLUSTERS_PER_GROUP]) for first in groups}
    for first, sums in group_sums.items():
        write_centres(*sums, first, centres)

    def assign_piece(piece: slice) -> None:
        similarity = np.empty(n_clusters, np.float32)
        assign_clusters(*rows[:3], piece.start, piece.stop, centres, similarity, cluster, nearness)

    def update_group(first: int) -> None:
        features, values, lengths = group_sums[first]
        write_centres(features, np.zeros_like(values), lengths, first, centres)
        bounds = ends[first : first + CLUSTERS_PER_GROUP + 1]
        group_sums[first] = sum_clusters(rows, by_cluster[bounds[0] : bounds[-1]], np.diff(bounds))
        write_centres(*group_sums[first], first, centres)

    for _ in range(MAX_ROUNDS):
        list(parallel_map(assign_piece, pieces))
        mean = nearness.mean(dtype=np.float64)
        if mean - last < MIN_GAIN:
            break
        last = mean
        by_cluster = np.argsort(cluster, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(cluster, minlength=n_clusters))])
        list(parallel_map(update_group, groups))
    return cluster


@kernel
def k_means_single_thread(indptr, indices, data, starts, centres, eights, seen, cluster, nearness):
    """Run `k_means` in one thread, entirely in compiled code. `centres` and `eights` are zero at the start."""
    n_rows, (n_features, n_clusters), last, none = len(cluster), centres.shape, -1.0, np.int64(0)
    similarity, total = np.empty(n_clusters, np.float32), np.zeros(n_features, np.float32)
    features, values = np.empty(len(indices), np.uint32), np.empty(len(indices), np.float32)
    lengths, sizes = np.empty(n_clusters, np.int64), np.empty(n_clusters, np.int64)
    after, by_cluster = np.empty(n_clusters + 1, np.int64), np.empty(n_rows, np.int64)
    n = none
    for c in range(n_clusters):
        lengths[c] = indptr[starts[c] + 1] - indptr[starts[c]]
        for i in range(indptr[starts[c]], indptr[starts[c] + 1]):
            features[n], values[n] = indices[i], data[i]
            n += 1
    for _ in range(MAX_ROUNDS):
        write_centres(features, values, lengths, none, centres)
        assign_clusters(indptr, indices, data, none, n_rows, centres, similarity, cluster, nearness)
        mean = 0.0
        for row in range(n_rows):
            mean += nearness[row] / n_rows
        if mean - last < MIN_GAIN:
            break
        last = mean
        values[:n] = 0
        write_centres(features, values, lengths, none, centres)
        sort_by_cluster(cluster, sizes, after, by_cluster)
        n = write_cluster_sums(indptr, indices, data, by_cluster, sizes, total, eights, seen, features, values, lengths)


@kernel
def sort_by_cluster(cluster, sizes, after, by_cluster):
    """Write the rows sorted by cluster into `by_cluster`, and the cluster sizes into `sizes`."""
    after[:] = 0
    for row in range(len(cluster)):
        after[cluster[row] + 1] += 1
    for c in range(len(sizes)):
        sizes[c] = after[c + 1]
        after[c + 1] += after[c]
    for row in range(len(cluster)):
        by_cluster[after[cluster[row]]] = row
        after[cluster[row]] += 1


def copy_rows(rows: CompactMatrix, members: np.ndarray) -> ClusterSums:
    """Return the sums of clusters of one row each."""
    parts = [slice(rows.indptr[member], rows.indptr[member + 1]) for member in members]
    features, values = (np.concatenate([array[part] for part in parts]) for array in (rows.indices, rows.data))
    return features, values, np.array([part.stop - part.start for part in parts])


def sum_clusters(rows: CompactMatrix, members: np.ndarray, sizes: np.ndarray) -> ClusterSums:
    """Return the normalised sums of clusters, given their rows, sorted by cluster, and their sizes."""
    n_features, n_values = len(rows.columns), int((rows.indptr[members + 1] - rows.indptr[members]).sum())
    capacity = min(n_values, n_features * len(sizes))
    features, values = np.empty(capacity, np.uint32), np.empty(capacity, np.float32)
    lengths = np.empty(len(sizes), np.int64)
    total, eights = np.zeros(n_features, np.float32), np.zeros(-(-n_features // 8), np.uint64)
    n = write_cluster_sums(*rows[:3], members, sizes, total, eights, eights.view(np.uint8), features, values, lengths)
    return features[:n].copy(), values[:n].copy(), lengths


@fast_kernel
def assign_clusters(indptr, indices, data, begin, end, centres, similarity, cluster, nearness):
    """Assign rows begin:end to the cluster of the nearest centre; among equally near ones, to the first. Features are
    processed four at a time, so that a similarity is read and written once for four features."""
    n_clusters = len(similarity)
    for row in range(begin, end):
        for c in range(n_clusters):
            similarity[c] = 0
        fours = indptr[row + 1] - (indptr[row + 1] - indptr[row]) % 4
        for i in range(indptr[row], fours, 4):
            w, x, y, z = data[i], data[i + 1], data[i + 2], data[i + 3]
            of_w, of_x = centres[indices[i]], centres[indices[i + 1]]
            of_y, of_z = centres[indices[i + 2]], centres[indices[i + 3]]
            for c in range(n_clusters):
                similarity[c] = (((similarity[c] + w * of_w[c]) + x * of_x[c]) + y * of_y[c]) + z * of_z[c]
        for i in range(fours, indptr[row + 1]):
            centre, value = centres[indices[i]], data[i]
            for c in range(n_clusters):
                similarity[c] += value * centre[c]
        nearest = 0
        for c in range(n_clusters):
            if similarity[c] > similarity[nearest]:
                nearest = c
        cluster[row], nearness[row] = nearest, similarity[nearest]


@fast_kernel
def write_cluster_sums(indptr, indices, data, members, sizes, total, eights, seen, features, values, lengths):
    """Write the normalised sum of each cluster's rows as features and values; return their number.

    `total` and `seen` are zero before and after. `eights` is `seen` as 64-bit integers: most features do not occur in a
    cluster and are skipped eight at a time."""
    n, first = np.int64(0), np.int64(0)
    for c in range(len(sizes)):
        begin, square = n, np.float32(0)
        for position in range(first, first + sizes[c]):
            for i in range(indptr[members[position]], indptr[members[position] + 1]):
                total[indices[i]] += data[i]
                seen[indices[i]] = 1
        for eight in range(len(eights)):
            if eights[eight]:
                for feature in range(8 * eight, 8 * eight + 8):
                    if seen[feature]:
                        features[n], values[n] = feature, total[feature]
                        square += total[feature] * total[feature]
                        total[feature] = 0
                        n += 1
                eights[eight] = 0
        length = np.sqrt(max(square, np.float32(1e-30)))
        for at in range(begin, n):
            values[at] /= length
        lengths[c], first = n - begin, first + sizes[c]
    return n


@kernel
def write_centres(features, values, lengths, first, centres):
    """Write the values of len(lengths) clusters, starting with cluster `first`."""
    at = 0
    for c in range(len(lengths)):
        for _ in range(lengths[c]):
            centres[features[at], first + c] = values[at]
            at += 1

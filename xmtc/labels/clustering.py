"""Spherical k-means over sparse label vectors: balanced with two clusters (Parabel, section 4.2; AttentionXML's trees
use it too), unbalanced with many (Bonsai).

Large parts are cut into pieces for several threads. How they are cut depends on the labels alone, and what the pieces
found is put together in their order, so that the answer is the same whoever works."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from xmtc.base.run import Each
from xmtc.compiled import fast_kernel, kernel
from xmtc.labels.vectors import LabelVectors
from xmtc.sparse import Compact, compact

MIN_GAIN = 1e-4  # stop when the mean similarity to the centre grows by less: the authors' value
WIDE_MIN_GAIN = 1e-3  # with many clusters: as accurate as 1e-4 in half the time (docs/results/linear-engine.md)
MAX_ROUNDS = 100
PIECE = 750_000  # values of label vectors, at least, that a thread is given: about a millisecond's work, where handing
# it out takes a thirtieth of one, and only one thread at a time can hand out
WIDE_PIECE = 100_000  # with many clusters, each of which a value is compared to
MOST_PIECES = 64
GROUP = 16  # clusters whose centres one thread moves: as many numbers as are read from memory at once

Add = Callable[[np.ndarray, np.ndarray, np.ndarray], None]  # to a total: labels by their positions, times factors
Dot = Callable[[np.ndarray, np.ndarray], None]  # write each label's product with a vector
Sums = tuple[np.ndarray, np.ndarray, np.ndarray]  # of some clusters: features, their values, how many of each cluster


def pieces_of(lengths: np.ndarray, least: int | None = None) -> list[slice]:
    """Rows of these lengths in pieces of about as many values each, at least so many, or PIECE."""
    ends = np.cumsum(lengths, dtype=np.int64)
    n_pieces = int(min(max(ends[-1] // (least or PIECE), 1), MOST_PIECES)) if len(ends) else 1
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n_pieces) // n_pieces) if n_pieces > 1 else []
    bounds = [0, *map(int, cuts), len(lengths)]
    return [slice(begin, end) for begin, end in pairwise(bounds)]


def halve(
    vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence, each: Each = map
) -> tuple[np.ndarray, ...]:
    """Two halves, equal but for one label, of the labels in `part`, each around its own centre."""
    first, second = np.random.default_rng(seed).choice(len(part), 2, replace=False)
    is_first = split_in_two(vectors.matrix, part, first, second, each)
    return part[is_first], part[~is_first]


def split_in_two(V: csr_array, part: np.ndarray, first: int, second: int, each: Each = map) -> np.ndarray:
    """Which positions of `part` make the first half, those that belong together; the rows at the positions `first` and
    `second` are the first centres."""
    pieces = pieces_of(V.indptr[part + 1] - V.indptr[part])
    if len(pieces) == 1:
        sums, is_first = np.zeros((2, V.shape[1]), np.float32), np.zeros(len(part), bool)
        split_rows(V.indptr, V.indices, V.data, part, first, second, sums, is_first)
        return is_first

    def add(total: np.ndarray, positions: np.ndarray, factors: np.ndarray) -> None:
        add_to(total, V, part[positions], factors, each)

    def dot_all(vector: np.ndarray, products: np.ndarray) -> None:
        by_row = partial(dot, V.indptr, V.indices, V.data)
        list(each(lambda piece: by_row(part[piece], vector, products[piece]), pieces))

    return two_means(add, dot_all, len(part), V.shape[1], first, second)


def two_means(add: Add, dot: Dot, n: int, n_features: int, first: int, second: int) -> np.ndarray:
    """`split_in_two` of n labels, given what adds labels up and what multiplies each with a vector.

    A label v joins our half where v · (ours / |ours| − theirs / |theirs|) is large. Theirs is the whole less ours, so
    that two products decide, of which v · whole never changes; and ours changes by the labels that change sides. One
    look-up for each of a label's features and few additions, where the textbook has two of each."""
    whole, ours = np.zeros((2, n_features), np.float32)
    with_whole, with_ours, is_first = np.empty(n, np.float32), np.empty(n, np.float32), np.zeros(n, bool)
    add(whole, np.arange(n), np.ones(n, np.float32))
    dot(whole, with_whole)
    centres = np.zeros(n_features, np.float32)
    add(centres, np.array([first, second]), np.array([1, -1], np.float32))
    dot(centres, with_ours)
    pulls, last = (np.float32(1), np.float32(0)), -np.inf
    for _ in range(MAX_ROUNDS):
        leaning, was_first = pulls[1] * with_whole - pulls[0] * with_ours, is_first.copy()
        choose_half(leaning, leaning.copy(), is_first)
        moved = np.flatnonzero(is_first != was_first)
        add(ours, moved, np.where(is_first[moved], 1, -1).astype(np.float32))
        lengths = tuple(np.sqrt(np.square(half, dtype=np.float64).sum()) for half in (ours, whole - ours))
        mean = sum(lengths) / n
        if mean - last < MIN_GAIN:
            break
        pulls, last = pulls_of(*lengths), mean
        dot(ours, with_ours)
    return is_first


@kernel
def pulls_of(our_length, their_length):
    """What a label's products with our sum and with the whole sum are multiplied by."""
    ours, theirs = 1 / max(our_length, 1e-30), 1 / max(their_length, 1e-30)
    return np.float32(ours + theirs), np.float32(theirs)


@kernel
def split_rows(indptr, indices, data, part, first, second, sums, is_first):
    """`two_means` of the rows of `part` by one thread, without a word of Python between the rounds. `sums` begins as
    zeros. Of the halves' sums only the lengths are needed, and these change as the rows that change sides say."""
    n, whole, ours = len(part), sums[0], sums[1]
    with_whole, with_ours = np.empty(n, np.float32), np.empty(n, np.float32)
    leaning, room, was_first = np.empty(n, np.float32), np.empty(n, np.float32), np.empty_like(is_first)
    for position in range(n):
        add_row(indptr, indices, data, part[position], np.float32(1), whole)
    add_row(indptr, indices, data, part[first], np.float32(1), ours)
    add_row(indptr, indices, data, part[second], np.float32(-1), ours)
    dot_both(indptr, indices, data, part, whole, ours, with_whole, with_ours)
    clear_row(indptr, indices, part[first], ours)
    clear_row(indptr, indices, part[second], ours)
    whole_square, our_square, both, last = 0.0, 0.0, 0.0, -np.inf  # both: the product of our sum and the whole
    for position in range(n):
        whole_square += with_whole[position]
    our_pull, whole_pull = np.float32(1), np.float32(0)
    for _ in range(MAX_ROUNDS):
        for position in range(n):
            leaning[position] = whole_pull * with_whole[position] - our_pull * with_ours[position]
            room[position], was_first[position] = leaning[position], is_first[position]
        choose_half(leaning, room, is_first)
        for position in range(n):
            if is_first[position] != was_first[position]:
                sign = np.float32(1) if is_first[position] else np.float32(-1)
                our_square += add_row(indptr, indices, data, part[position], sign, ours)
                both += sign * with_whole[position]
        our_length = np.sqrt(max(our_square, 0.0))
        their_length = np.sqrt(max(whole_square - 2 * both + our_square, 0.0))
        mean = (our_length + their_length) / n
        if mean - last < MIN_GAIN:
            break
        our_pull, whole_pull = pulls_of(our_length, their_length)
        last = mean
        dot(indptr, indices, data, part, ours, with_ours)


@kernel
def add_row(indptr, indices, data, row, factor, total):
    """Add a row, times its factor; return by how much that makes the total's squared length larger."""
    more = 0.0
    for i in range(indptr[row], indptr[row + 1]):
        before = total[np.uint32(indices[i])]
        after = before + factor * data[i]
        more += (after - before) * (after + before)
        total[np.uint32(indices[i])] = after
    return more


@kernel
def clear_row(indptr, indices, row, total):
    for i in range(indptr[row], indptr[row + 1]):
        total[np.uint32(indices[i])] = 0


@kernel
def choose_half(leaning, room, is_first):
    """Mark the half that leans least; of those that lean alike, the first. `room` has the same numbers, in any order:
    the half's last is found among them by Hoare's selection."""
    half = (len(leaning) + 1) // 2
    low, high, wanted = 0, len(room) - 1, half - 1
    while low < high:
        pivot, i, j = room[(low + high) // 2], low, high
        while i <= j:
            while room[i] < pivot:
                i += 1
            while room[j] > pivot:
                j -= 1
            if i <= j:
                room[i], room[j] = room[j], room[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    limit, n_alike = room[wanted], half
    for position in range(len(leaning)):
        is_first[position] = leaning[position] < limit
        n_alike -= is_first[position]
    for position in range(len(leaning)):
        if leaning[position] == limit and n_alike > 0:
            is_first[position] = True
            n_alike -= 1


def add_to(total: np.ndarray, V: csr_array, labels: np.ndarray, factors: np.ndarray, each: Each = map) -> None:
    """Add the rows of these labels to `total`, each times its factor: those of a piece first to each other."""
    pieces = pieces_of(V.indptr[labels + 1] - V.indptr[labels])

    def added(piece: slice) -> np.ndarray:
        found = np.zeros_like(total) if len(pieces) > 1 else total
        add_rows(V.indptr, V.indices, V.data, labels[piece], factors[piece], found)
        return found

    for found in each(added, pieces):
        if found is not total:
            total += found


@kernel
def add_rows(indptr, indices, data, rows, factors, total):
    for position in range(len(rows)):
        for i in range(indptr[rows[position]], indptr[rows[position] + 1]):
            total[np.uint32(indices[i])] += factors[position] * data[i]


@kernel
def dot(indptr, indices, data, part, vector, products):
    """Each row of `part` times the vector. Two sums take turns, because one would have to wait for itself."""
    for position in range(len(part)):
        begin, end = indptr[part[position]], indptr[part[position] + 1]
        even, odd = np.float32(0), np.float32(0)
        for i in range(begin, end - 1, 2):
            even += data[i] * vector[np.uint32(indices[i])]
            odd += data[i + 1] * vector[np.uint32(indices[i + 1])]
        if (end - begin) % 2:
            even += data[end - 1] * vector[np.uint32(indices[end - 1])]
        products[position] = even + odd


@kernel
def dot_both(indptr, indices, data, part, one, other, with_one, with_other):
    """`dot` with two vectors."""
    for position in range(len(part)):
        first, second = np.float32(0), np.float32(0)
        for i in range(indptr[part[position]], indptr[part[position] + 1]):
            first += data[i] * one[np.uint32(indices[i])]
            second += data[i] * other[np.uint32(indices[i])]
        with_one[position], with_other[position] = first, second


def divide(
    vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence, each: Each = map, n_clusters: int = 100
) -> tuple[np.ndarray, ...]:
    """Up to n_clusters groups, of any size, of the labels in `part`: spherical k-means (Bonsai, section 3.2)."""
    starts = np.random.default_rng(seed).choice(len(part), min(n_clusters, len(part)), replace=False)
    cluster = k_means(compact(vectors.matrix, part), starts, each)
    groups = (part[cluster == c] for c in range(len(starts)))
    return tuple(group for group in groups if len(group))


def k_means(rows: Compact, starts: np.ndarray, each: Each = map) -> np.ndarray:
    """The cluster of every row, from the rows `starts` on: rows join the cluster of the nearest centre, and centres
    move to their rows, a piece of the rows and a group of the centres at a time. Centres lie features × clusters, so
    that a row's feature meets them all at once."""
    n_rows, n_clusters = len(rows.indptr) - 1, len(starts)
    cluster, nearness, last = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.float32), -1.0
    centres = np.zeros((len(rows.columns), n_clusters), np.float32)
    pieces, groups = pieces_of(np.diff(rows.indptr), WIDE_PIECE), range(0, n_clusters, GROUP)
    if len(pieces) == 1:
        eights = np.zeros(-(-len(rows.columns) // 8), np.uint64)
        k_means_rows(*rows[:3], starts, centres, eights, eights.view(np.uint8), cluster, nearness)
        return cluster
    held = {first: as_sums(rows, starts[first : first + GROUP]) for first in groups}
    for first, sums in held.items():
        put(*sums, first, centres)

    def join_piece(piece: slice) -> None:
        similarity = np.empty(n_clusters, np.float32)
        join(*rows[:3], piece.start, piece.stop, centres, similarity, cluster, nearness)

    def move_group(first: int) -> None:
        features, values, lengths = held[first]
        put(features, np.zeros_like(values), lengths, first, centres)
        bounds = ends[first : first + GROUP + 1]
        held[first] = sums_of(rows, by_cluster[bounds[0] : bounds[-1]], np.diff(bounds))
        put(*held[first], first, centres)

    for _ in range(MAX_ROUNDS):
        list(each(join_piece, pieces))
        mean = nearness.mean(dtype=np.float64)
        if mean - last < WIDE_MIN_GAIN:
            break
        last = mean
        by_cluster = np.argsort(cluster, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(cluster, minlength=n_clusters))])
        list(each(move_group, groups))
    return cluster


@kernel
def k_means_rows(indptr, indices, data, starts, centres, eights, seen, cluster, nearness):
    """`k_means` by one thread, without a word of Python between the rounds. `centres` and `eights` begin as zeros."""
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
        put(features, values, lengths, none, centres)
        join(indptr, indices, data, none, n_rows, centres, similarity, cluster, nearness)
        mean = 0.0
        for row in range(n_rows):
            mean += nearness[row] / n_rows
        if mean - last < WIDE_MIN_GAIN:
            break
        last = mean
        values[:n] = 0
        put(features, values, lengths, none, centres)
        sort_by_cluster(cluster, sizes, after, by_cluster)
        n = add_up(indptr, indices, data, by_cluster, sizes, total, eights, seen, features, values, lengths)


@kernel
def sort_by_cluster(cluster, sizes, after, by_cluster):
    """Write the rows of each cluster, one cluster's after the other's, in their order; and how many each has."""
    after[:] = 0
    for row in range(len(cluster)):
        after[cluster[row] + 1] += 1
    for c in range(len(sizes)):
        sizes[c] = after[c + 1]
        after[c + 1] += after[c]
    for row in range(len(cluster)):
        by_cluster[after[cluster[row]]] = row
        after[cluster[row]] += 1


def as_sums(rows: Compact, members: np.ndarray) -> Sums:
    """Of clusters of one row each, as it is."""
    parts = [slice(rows.indptr[member], rows.indptr[member + 1]) for member in members]
    features, values = (np.concatenate([array[part] for part in parts]) for array in (rows.indices, rows.data))
    return features, values, np.array([part.stop - part.start for part in parts])


def sums_of(rows: Compact, members: np.ndarray, sizes: np.ndarray) -> Sums:
    """Of clusters of these sizes, whose rows are `members`, one cluster's after the other's; made of length 1."""
    n_features, n_values = len(rows.columns), int((rows.indptr[members + 1] - rows.indptr[members]).sum())
    room = min(n_values, n_features * len(sizes))
    features, values, lengths = np.empty(room, np.uint32), np.empty(room, np.float32), np.empty(len(sizes), np.int64)
    total, eights = np.zeros(n_features, np.float32), np.zeros(-(-n_features // 8), np.uint64)
    n = add_up(*rows[:3], members, sizes, total, eights, eights.view(np.uint8), features, values, lengths)
    return features[:n].copy(), values[:n].copy(), lengths


@fast_kernel
def join(indptr, indices, data, begin, end, centres, similarity, cluster, nearness):
    """Rows begin:end join the cluster of the nearest centre; of equally near ones, the first. Features are taken four
    at a time: a similarity is then read and written once for four of them."""
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
def add_up(indptr, indices, data, members, sizes, total, eights, seen, features, values, lengths):
    """Write the sum of each cluster's rows, made of length 1, as features and values; return how many there are.
    `total` and `seen` are zeros before and after: few features occur in a cluster, and the others are passed over
    eight at a time, which `eights` sees as one."""
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
def put(features, values, lengths, first, centres):
    """Write these values of as many clusters as there are lengths, from the cluster `first` on."""
    at = 0
    for c in range(len(lengths)):
        for _ in range(lengths[c]):
            centres[features[at], first + c] = values[at]
            at += 1

"""Spherical 2-means over sparse label vectors, with clusters of the same size (Parabel, section 4.2; AttentionXML's
trees use it too).

Large parts are cut into pieces for several threads. How they are cut depends on the labels alone, and what the pieces
found is put together in their order, so that the answer is the same whoever works."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel
from xmtc.core.run import MapFunction
from xmtc.labels.vectors import LabelVectors

MIN_GAIN = 1e-4  # stop when the mean similarity to the centre grows by less: the authors' value
MAX_ROUNDS = 100
MIN_PIECE_VALUES = (
    750_000  # values of label vectors, at least, that a thread is given: about a millisecond's work, where handing
)
# it out takes a thirtieth of one, and only one thread at a time can hand out
MAX_PIECES = 64

AddLabels = Callable[[np.ndarray, np.ndarray, np.ndarray], None]  # to a total: labels by their positions, times factors
DotLabels = Callable[[np.ndarray, np.ndarray], None]  # write each label's product with a vector


def split_pieces(lengths: np.ndarray, min_values: int | None = None) -> list[slice]:
    """Rows of these lengths in pieces of about as many values each, at least so many, or PIECE."""
    ends = np.cumsum(lengths, dtype=np.int64)
    n_pieces = int(min(max(ends[-1] // (min_values or MIN_PIECE_VALUES), 1), MAX_PIECES)) if len(ends) else 1
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n_pieces) // n_pieces) if n_pieces > 1 else []
    bounds = [0, *map(int, cuts), len(lengths)]
    return [slice(begin, end) for begin, end in pairwise(bounds)]


def halve(
    vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence, each: MapFunction = map
) -> tuple[np.ndarray, ...]:
    """Two halves, equal but for one label, of the labels in `part`, each around its own centre."""
    first, second = np.random.default_rng(seed).choice(len(part), 2, replace=False)
    is_first = split_balanced(vectors.matrix, part, first, second, each)
    return part[is_first], part[~is_first]


def split_balanced(V: csr_array, part: np.ndarray, first: int, second: int, each: MapFunction = map) -> np.ndarray:
    """Which positions of `part` make the first half, those that belong together; the rows at the positions `first` and
    `second` are the first centres."""
    pieces = split_pieces(V.indptr[part + 1] - V.indptr[part])
    if len(pieces) == 1:
        sums, is_first = np.zeros((2, V.shape[1]), np.float32), np.zeros(len(part), bool)
        split_balanced_rows(V.indptr, V.indices, V.data, part, first, second, sums, is_first)
        return is_first

    def add(total: np.ndarray, positions: np.ndarray, factors: np.ndarray) -> None:
        add_labels(total, V, part[positions], factors, each)

    def dot_all(vector: np.ndarray, products: np.ndarray) -> None:
        by_row = partial(dot_rows, V.indptr, V.indices, V.data)
        list(each(lambda piece: by_row(part[piece], vector, products[piece]), pieces))

    return run_two_means(add, dot_all, len(part), V.shape[1], first, second)


def run_two_means(add: AddLabels, dot: DotLabels, n: int, n_features: int, first: int, second: int) -> np.ndarray:
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
        pulls, last = compute_centre_weights(*lengths), mean
        dot(ours, with_ours)
    return is_first


@kernel
def compute_centre_weights(our_length, their_length):
    """What a label's products with our sum and with the whole sum are multiplied by."""
    ours, theirs = 1 / max(our_length, 1e-30), 1 / max(their_length, 1e-30)
    return np.float32(ours + theirs), np.float32(theirs)


@kernel
def split_balanced_rows(indptr, indices, data, part, first, second, sums, is_first):
    """`two_means` of the rows of `part` by one thread, without a word of Python between the rounds. `sums` begins as
    zeros. Of the halves' sums only the lengths are needed, and these change as the rows that change sides say."""
    n, whole, ours = len(part), sums[0], sums[1]
    with_whole, with_ours = np.empty(n, np.float32), np.empty(n, np.float32)
    leaning, room, was_first = np.empty(n, np.float32), np.empty(n, np.float32), np.empty_like(is_first)
    for position in range(n):
        add_sparse_row(indptr, indices, data, part[position], np.float32(1), whole)
    add_sparse_row(indptr, indices, data, part[first], np.float32(1), ours)
    add_sparse_row(indptr, indices, data, part[second], np.float32(-1), ours)
    dot_two_vectors(indptr, indices, data, part, whole, ours, with_whole, with_ours)
    clear_sparse_row(indptr, indices, part[first], ours)
    clear_sparse_row(indptr, indices, part[second], ours)
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
                our_square += add_sparse_row(indptr, indices, data, part[position], sign, ours)
                both += sign * with_whole[position]
        our_length = np.sqrt(max(our_square, 0.0))
        their_length = np.sqrt(max(whole_square - 2 * both + our_square, 0.0))
        mean = (our_length + their_length) / n
        if mean - last < MIN_GAIN:
            break
        our_pull, whole_pull = compute_centre_weights(our_length, their_length)
        last = mean
        dot_rows(indptr, indices, data, part, ours, with_ours)


@kernel
def add_sparse_row(indptr, indices, data, row, factor, total):
    """Add a row, times its factor; return by how much that makes the total's squared length larger."""
    more = 0.0
    for i in range(indptr[row], indptr[row + 1]):
        before = total[np.uint32(indices[i])]
        after = before + factor * data[i]
        more += (after - before) * (after + before)
        total[np.uint32(indices[i])] = after
    return more


@kernel
def clear_sparse_row(indptr, indices, row, total):
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


def add_labels(
    total: np.ndarray, V: csr_array, labels: np.ndarray, factors: np.ndarray, each: MapFunction = map
) -> None:
    """Add the rows of these labels to `total`, each times its factor: those of a piece first to each other."""
    pieces = split_pieces(V.indptr[labels + 1] - V.indptr[labels])

    def added(piece: slice) -> np.ndarray:
        found = np.zeros_like(total) if len(pieces) > 1 else total
        add_sparse_rows(V.indptr, V.indices, V.data, labels[piece], factors[piece], found)
        return found

    for found in each(added, pieces):
        if found is not total:
            total += found


@kernel
def add_sparse_rows(indptr, indices, data, rows, factors, total):
    for position in range(len(rows)):
        for i in range(indptr[rows[position]], indptr[rows[position] + 1]):
            total[np.uint32(indices[i])] += factors[position] * data[i]


@kernel
def dot_rows(indptr, indices, data, part, vector, products):
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
def dot_two_vectors(indptr, indices, data, part, one, other, with_one, with_other):
    """`dot` with two vectors."""
    for position in range(len(part)):
        first, second = np.float32(0), np.float32(0)
        for i in range(indptr[part[position]], indptr[part[position] + 1]):
            first += data[i] * one[np.uint32(indices[i])]
            second += data[i] * other[np.uint32(indices[i])]
        with_one[position], with_other[position] = first, second

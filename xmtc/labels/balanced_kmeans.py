"""Balanced spherical 2-means over sparse label vectors (Parabel, section 4.2; also used for AttentionXML's trees).

Large parts are cut into pieces for several threads. The pieces depend only on the labels, and their results are
combined in order, so that the result does not depend on the number of threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel
from xmtc.core.run import MapFunction
from xmtc.labels.vectors import LabelVectors

MIN_GAIN = 1e-4  # of the mean similarity to the centre, for another round; the authors' value
MAX_ROUNDS = 100
MIN_PIECE_VALUES = 750_000  # values per thread: about 1 ms of work, 30 times the cost of starting a task
MAX_PIECES = 64

AddLabels = Callable[[np.ndarray, np.ndarray, np.ndarray], None]  # add(total, label positions, factors)
DotLabels = Callable[[np.ndarray, np.ndarray], None]  # dot(vector, products), which writes each label's product


def split_pieces(lengths: np.ndarray, min_values: int | None = None) -> list[slice]:
    """Split rows of given lengths into pieces of about equally many values, by default at least MIN_PIECE_VALUES."""
    ends = np.cumsum(lengths, dtype=np.int64)
    n_pieces = int(min(max(ends[-1] // (min_values or MIN_PIECE_VALUES), 1), MAX_PIECES)) if len(ends) else 1
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n_pieces) // n_pieces) if n_pieces > 1 else []
    bounds = [0, *map(int, cuts), len(lengths)]
    return [slice(begin, end) for begin, end in pairwise(bounds)]


def halve(
    vectors: LabelVectors, part: np.ndarray, seed: np.random.SeedSequence, parallel_map: MapFunction = map
) -> tuple[np.ndarray, ...]:
    """Split the labels of `part` into two clusters whose sizes differ by at most one."""
    first, second = np.random.default_rng(seed).choice(len(part), 2, replace=False)
    is_first = split_balanced(vectors.matrix, part, first, second, parallel_map)
    return part[is_first], part[~is_first]


def split_balanced(
    V: csr_array,
    part: np.ndarray,
    first: int,
    second: int,
    parallel_map: MapFunction = map,
    min_piece_values: int | None = None,
) -> np.ndarray:
    """Return a mask of the positions of `part` in the first cluster. The rows at the positions `first` and `second` are
    the initial centres."""
    pieces = split_pieces(V.indptr[part + 1] - V.indptr[part], min_piece_values)
    if len(pieces) == 1:
        sums, is_first = np.zeros((2, V.shape[1]), np.float32), np.zeros(len(part), bool)
        split_balanced_rows(V.indptr, V.indices, V.data, part, first, second, sums, is_first)
        return is_first

    def add(total: np.ndarray, positions: np.ndarray, factors: np.ndarray) -> None:
        add_labels(total, V, part[positions], factors, parallel_map, min_piece_values)

    def dot_all(vector: np.ndarray, products: np.ndarray) -> None:
        by_row = partial(dot_rows, V.indptr, V.indices, V.data)
        list(parallel_map(lambda piece: by_row(part[piece], vector, products[piece]), pieces))

    return run_two_means(add, dot_all, len(part), V.shape[1], first, second)


def run_two_means(add: AddLabels, dot: DotLabels, n: int, n_features: int, first: int, second: int) -> np.ndarray:
    """Run balanced 2-means on n labels with functions that add label vectors and compute their dot products.

    Label v joins the first cluster if v · (ours / |ours| − theirs / |theirs|) is large, where `ours` is the sum of the
    first cluster and `theirs` = `whole` − `ours`. So v · whole, which is constant, and v · ours decide, and `ours` is
    updated by the labels that change clusters. A round reads each label vector once, where the textbook version reads
    it twice."""
    whole, ours = np.zeros((2, n_features), np.float32)
    with_whole, with_ours, is_first = np.empty(n, np.float32), np.empty(n, np.float32), np.zeros(n, bool)
    add(whole, np.arange(n), np.ones(n, np.float32))
    dot(whole, with_whole)
    centres = np.zeros(n_features, np.float32)
    add(centres, np.array([first, second]), np.array([1, -1], np.float32))
    dot(centres, with_ours)
    weights, last = (np.float32(1), np.float32(0)), -np.inf
    for _ in range(MAX_ROUNDS):
        keys, was_first = weights[1] * with_whole - weights[0] * with_ours, is_first.copy()
        choose_half(keys, keys.copy(), is_first)
        moved = np.flatnonzero(is_first != was_first)
        add(ours, moved, np.where(is_first[moved], 1, -1).astype(np.float32))
        lengths = tuple(np.sqrt(np.square(half, dtype=np.float64).sum()) for half in (ours, whole - ours))
        mean = sum(lengths) / n
        if mean - last < MIN_GAIN:
            break
        weights, last = compute_centre_weights(*lengths), mean
        dot(ours, with_ours)
    return is_first


@kernel
def compute_centre_weights(our_length, their_length):
    """Return the weights of the products with the first cluster's sum and with the whole sum."""
    ours, theirs = 1 / max(our_length, 1e-30), 1 / max(their_length, 1e-30)
    return np.float32(ours + theirs), np.float32(theirs)


@kernel
def split_balanced_rows(indptr, indices, data, part, first, second, sums, is_first):
    """Run balanced 2-means on the rows of `part` in one thread, entirely in compiled code. `sums` is zero at the start.
    The norms of the clusters' sums are updated by the rows that change clusters."""
    n, whole, ours = len(part), sums[0], sums[1]
    with_whole, with_ours = np.empty(n, np.float32), np.empty(n, np.float32)
    keys, buffer, was_first = np.empty(n, np.float32), np.empty(n, np.float32), np.empty_like(is_first)
    for position in range(n):
        add_sparse_row(indptr, indices, data, part[position], np.float32(1), whole)
    add_sparse_row(indptr, indices, data, part[first], np.float32(1), ours)
    add_sparse_row(indptr, indices, data, part[second], np.float32(-1), ours)
    dot_two_vectors(indptr, indices, data, part, whole, ours, with_whole, with_ours)
    clear_sparse_row(indptr, indices, part[first], ours)
    clear_sparse_row(indptr, indices, part[second], ours)
    whole_square, our_square, both, last = 0.0, 0.0, 0.0, -np.inf  # both: ours · whole
    for position in range(n):
        whole_square += with_whole[position]
    our_weight, whole_weight = np.float32(1), np.float32(0)
    for _ in range(MAX_ROUNDS):
        for position in range(n):
            keys[position] = whole_weight * with_whole[position] - our_weight * with_ours[position]
            buffer[position], was_first[position] = keys[position], is_first[position]
        choose_half(keys, buffer, is_first)
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
        our_weight, whole_weight = compute_centre_weights(our_length, their_length)
        last = mean
        dot_rows(indptr, indices, data, part, ours, with_ours)


@kernel
def add_sparse_row(indptr, indices, data, row, factor, total):
    """Add a row times a factor to the total; return the increase of the total's squared norm."""
    increase = 0.0
    for i in range(indptr[row], indptr[row + 1]):
        before = total[np.uint32(indices[i])]
        after = before + factor * data[i]
        increase += (after - before) * (after + before)
        total[np.uint32(indices[i])] = after
    return increase


@kernel
def clear_sparse_row(indptr, indices, row, total):
    for i in range(indptr[row], indptr[row + 1]):
        total[np.uint32(indices[i])] = 0


@kernel
def choose_half(keys, buffer, is_first):
    """Mark the half with the smallest keys; among equal keys, the first. `buffer` has the same keys in any order:
    Hoare's selection finds the largest key of the half in it."""
    half = (len(keys) + 1) // 2
    low, high, wanted = 0, len(buffer) - 1, half - 1
    while low < high:
        pivot, i, j = buffer[(low + high) // 2], low, high
        while i <= j:
            while buffer[i] < pivot:
                i += 1
            while buffer[j] > pivot:
                j -= 1
            if i <= j:
                buffer[i], buffer[j] = buffer[j], buffer[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    limit, n_equal = buffer[wanted], half
    for position in range(len(keys)):
        is_first[position] = keys[position] < limit
        n_equal -= is_first[position]
    for position in range(len(keys)):
        if keys[position] == limit and n_equal > 0:
            is_first[position] = True
            n_equal -= 1


def add_labels(
    total: np.ndarray,
    V: csr_array,
    labels: np.ndarray,
    factors: np.ndarray,
    parallel_map: MapFunction = map,
    min_piece_values: int | None = None,
) -> None:
    """Add the rows of labels times their factors to `total`, summing each piece first."""
    pieces = split_pieces(V.indptr[labels + 1] - V.indptr[labels], min_piece_values)

    def sum_piece(piece: slice) -> np.ndarray:
        piece_sum = np.zeros_like(total) if len(pieces) > 1 else total
        add_sparse_rows(V.indptr, V.indices, V.data, labels[piece], factors[piece], piece_sum)
        return piece_sum

    for piece_sum in parallel_map(sum_piece, pieces):
        if piece_sum is not total:
            total += piece_sum


@kernel
def add_sparse_rows(indptr, indices, data, rows, factors, total):
    for position in range(len(rows)):
        for i in range(indptr[rows[position]], indptr[rows[position] + 1]):
            total[np.uint32(indices[i])] += factors[position] * data[i]


@kernel
def dot_rows(indptr, indices, data, part, vector, products):
    """Write the product of each row of `part` with the vector. Two alternating sums shorten the dependency chain."""
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
    """Write the products of each row of `part` with two vectors."""
    for position in range(len(part)):
        first, second = np.float32(0), np.float32(0)
        for i in range(indptr[part[position]], indptr[part[position] + 1]):
            first += data[i] * one[np.uint32(indices[i])]
            second += data[i] * other[np.uint32(indices[i])]
        with_one[position], with_other[position] = first, second

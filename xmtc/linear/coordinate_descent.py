"""The solver's compiled loops: dual coordinate descent for a block of labels that share their documents, or for two."""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.linear.simd import LANES, MAX_TILE_VECTORS, accumulate_rows, scatter_to_rows


@kernel
def next_random_state(state):
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@kernel
def shuffle(order, state):
    """Fisher–Yates with a xorshift generator, so that the order depends on the seed alone."""
    for i in range(len(order) - 1, 0, -1):
        state = next_random_state(state)
        j = np.int64(state % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


@fast_kernel
def write_squared_norms(indptr, data, squares):
    for row in range(len(squares)):
        total = np.float32(0)
        for i in range(indptr[row], indptr[row + 1]):
            total += data[i] * data[i]
        squares[row] = total


@fast_kernel
def get_row_weight(row_weights, row):
    """Of a document. Without weights the compiler knows that it is 1, and what is multiplied by it stays as it is."""
    if row_weights is None:
        return np.float32(1)
    return row_weights[row]


@kernel
def initialise_bias(signs, row_weights, bias):
    """What a label without features answers: the mean of its documents' signs."""
    n_rows, n_labels = signs.shape
    total, totals = 0.0, np.zeros(n_labels)
    for row in range(n_rows):
        weight = get_row_weight(row_weights, row)
        total += weight
        for j in range(n_labels):
            totals[j] += weight * signs[row, j]
    share = np.float32(1) / np.float32(max(total, 1e-30))
    for j in range(n_labels):
        bias[j] = np.float32(totals[j]) * share


@fast_kernel
def get_loss_factor(factors, label, sign):
    """Of a document's loss for a label: other than 1 where it has the label, if there are factors."""
    if factors is None:
        return np.float32(1)
    return factors[label] if sign > 0 else np.float32(1)


@fast_kernel
def shrink_weight(weight, penalty):
    if penalty is None:
        return weight
    return soft_threshold(weight, penalty)


@fast_kernel
def shrink_weights(W, penalty):
    if penalty is not None:
        for row in range(len(W)):
            for j in range(W.shape[1]):
                W[row, j] = soft_threshold(W[row, j], penalty)


@fast_kernel
def update_bias(bias, pull, curvature):
    """One Newton step in every label's bias. The loss's slope at a document is what its alpha has become; documents
    see a new bias only when they are visited again, so that more than one step a pass would overshoot."""
    for j in range(len(bias)):
        bias[j] -= (bias[j] - pull[j]) / curvature[j]
        curvature[j] = 1  # of ½b²: the next pass adds that of the loss


@fast_kernel
def compute_curvature(a, is_logistic, C):
    """The loss's curvature at a document, given its dual variable."""
    if is_logistic:
        return a * (1 - a / C)
    return np.float32(2) * C if a > 0 else np.float32(0)


@fast_kernel
def compute_alpha(a, margin, square, is_logistic, C):
    """Where the dual variable of a document goes, given its margin for the label, its squared length, and its C."""
    if is_logistic:
        p = 1 / (1 + np.exp(min(margin, np.float32(30))))
        curvature = max(p * (1 - p), a / C * (1 - a / C))
        return a + (C * p - a) / (1 + square * C * curvature)
    gradient = margin - np.float32(1) + a * np.float32(0.5) / C
    new = a - gradient / (square + np.float32(0.5) / C)
    return new if new > 0 else np.float32(0)


@fast_kernel
def count_tile_vectors(n_labels, first):
    """Of the labels from `first` on, in tiles of about the same size; 0 where less than a vector is left."""
    n_vectors = (n_labels - first) // LANES
    n_tiles = max((n_vectors + MAX_TILE_VECTORS - 1) // MAX_TILE_VECTORS, 1)
    return (n_vectors + n_tiles - 1) // n_tiles


@fast_kernel
def add_margins(indices, data, begin, end, W, penalty, margin):
    """Add to the margins what the features begin:end of a document say."""
    n_labels, first = len(margin), np.int64(0)
    if penalty is None:
        n_vectors = count_tile_vectors(n_labels, first)
        while n_vectors:
            accumulate_rows(indices, data, begin, end, W, first, n_vectors, margin)
            first += LANES * n_vectors
            n_vectors = count_tile_vectors(n_labels, first)
    if first < n_labels:
        for i in range(begin, end):
            weights, value = W[indices[i]], data[i]
            for j in range(first, n_labels):
                margin[j] += value * shrink_weight(weights[j], penalty)


@fast_kernel
def update_alphas(signs, alpha, margin, own, square, is_logistic, C, factors, step):
    """Move the dual variables of a document; `step` takes how far, with the label's sign. This loop and the next two
    are apart because the compiler makes vectors of each of them, but not of all in one: it would have to make sure of
    too many arrays that they do not overlap."""
    for j in range(len(step)):
        sign, a = signs[j], alpha[j]
        new = compute_alpha(a, sign * margin[j] + own * a, square, is_logistic, C * get_loss_factor(factors, j, sign))
        alpha[j] = new
        step[j] = (new - a) * sign


@fast_kernel
def accumulate_bias_gradient(signs, alpha, step, is_logistic, C, factors, pull, curvature):
    """What `newton_bias` needs of a document that has moved."""
    for j in range(len(step)):
        pull[j] += step[j]
        curvature[j] += compute_curvature(alpha[j], is_logistic, C * get_loss_factor(factors, j, signs[j]))


@fast_kernel
def accumulate_squared_steps(step, moved):
    """Whether a document has moved for any label; `moved` takes how far each label's have, squared."""
    has_moved = np.int32(0)
    for j in range(len(step)):
        moved[j] += step[j] * step[j]
        has_moved |= np.int32(step[j] != 0)
    return has_moved


@fast_kernel
def add_steps_to_weights(indices, data, begin, end, W, step):
    """Add to the weights of the features begin:end of a document what its dual variables have moved."""
    n_labels, first = len(step), np.int64(0)
    n_vectors = count_tile_vectors(n_labels, first)
    while n_vectors:
        scatter_to_rows(indices, data, begin, end, W, first, n_vectors, step)
        first += LANES * n_vectors
        n_vectors = count_tile_vectors(n_labels, first)
    if first < n_labels:
        for i in range(begin, end):
            weights, value = W[indices[i]], data[i]
            for j in range(first, n_labels):
                weights[j] += value * step[j]


@fast_kernel
def allocate_weights(n_features, n_alone, n_rows, n_labels):
    return np.zeros((n_features + (n_rows if n_alone else 0) + 1, n_labels), np.float32)


@fast_kernel
def write_singleton_weights(alpha, signs, n_features, W):
    """After the weights of features, what each document has been added with: times its value, the weights of a feature
    that it has alone."""
    for row in range(len(alpha)):
        for j in range(alpha.shape[1]):
            W[n_features + row, j] = alpha[row, j] * signs[row, j]


@fast_kernel
def descend_block(
    indptr, indices, data, own, squares, n_features, n_alone, signs, is_logistic, C, row_weights, factors, penalty,
    start, eps, max_passes, run_length, runs, state, bias,
):  # fmt: skip
    """Weights of a block of labels, one step per document for the whole block, and a last row with room for the biases,
    which are left in `bias`. Those of a `start`, and what is returned, are weights before their proximal step. Where
    there are n_alone features that only one document has, they are not among the n_features; `own` is the sum of their
    squares, and before the last row is what `write_steps` writes. The kernel makes its matrices itself, so that the
    compiler knows how long their rows are: that is worth a tenth of the time."""
    n_rows, n_labels = signs.shape
    W, alpha = allocate_weights(n_features, n_alone, n_rows, n_labels), np.zeros((n_rows, n_labels), np.float32)
    if start is not None:
        for row in range(n_features):
            for j in range(n_labels):
                W[row, j] = start[row, j]
    scratch = np.zeros((5, n_labels), np.float32)
    margin, step, pull, curvature, moved = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    for j in range(n_labels):
        curvature[j] = 1
    far = np.float32(0)
    for n_passes in range(max_passes):
        state = shuffle(runs, state)
        for run in runs:
            for row in range(run * run_length, min((run + 1) * run_length, n_rows)):
                for j in range(n_labels):
                    margin[j] = bias[j]
                add_margins(indices, data, indptr[row], indptr[row + 1], W, penalty, margin)
                bound = C * get_row_weight(row_weights, row)
                update_alphas(signs[row], alpha[row], margin, own[row], squares[row], is_logistic, bound, factors, step)
                accumulate_bias_gradient(signs[row], alpha[row], step, is_logistic, bound, factors, pull, curvature)
                if accumulate_squared_steps(step, moved):
                    add_steps_to_weights(indices, data, indptr[row], indptr[row + 1], W, step)
        update_bias(bias, pull, curvature)
        distance = np.float32(0)
        for j in range(n_labels):
            distance += moved[j]
            moved[j] = 0
        if n_passes == 0:
            far = distance
        if distance <= eps * eps * far:
            break
    if n_alone:
        write_singleton_weights(alpha, signs, n_features, W)
    return W


@fast_kernel
def descend_pair(
    indptr, indices, data, own, squares, n_features, n_alone, signs, is_logistic, C, row_weights, eps, max_passes,
    run_length, runs, state, bias,
):  # fmt: skip
    """`descend_block` for two labels, the children of a binary node. So few labels fill no vector register: they are
    kept in scalars instead, and two features are read at a time, because sums that wait for each other cost most."""
    n_rows, zero, one = len(signs), np.float32(0), np.float32(1)
    W, alpha = allocate_weights(n_features, n_alone, n_rows, 2), np.zeros((n_rows, 2), np.float32)
    far, pull0, pull1 = zero, zero, zero
    for n_passes in range(max_passes):
        state = shuffle(runs, state)
        distance, curvature0, curvature1 = zero, one, one
        for run in runs:
            for row in range(run * run_length, min((run + 1) * run_length, n_rows)):
                begin, end = indptr[row], indptr[row + 1]
                m0, m1, odd0, odd1 = bias[0], bias[1], zero, zero
                for i in range(begin, end - 1, 2):
                    even, odd, value, next_value = indices[i], indices[i + 1], data[i], data[i + 1]
                    m0 += value * W[even, 0]
                    m1 += value * W[even, 1]
                    odd0 += next_value * W[odd, 0]
                    odd1 += next_value * W[odd, 1]
                if (end - begin) % 2:
                    m0 += data[end - 1] * W[indices[end - 1], 0]
                    m1 += data[end - 1] * W[indices[end - 1], 1]

                a0, a1, sign0, sign1 = alpha[row, 0], alpha[row, 1], signs[row, 0], signs[row, 1]
                bound = C * get_row_weight(row_weights, row)
                new0 = compute_alpha(a0, sign0 * (m0 + odd0) + own[row] * a0, squares[row], is_logistic, bound)
                new1 = compute_alpha(a1, sign1 * (m1 + odd1) + own[row] * a1, squares[row], is_logistic, bound)
                curvature0 += compute_curvature(new0, is_logistic, bound)
                curvature1 += compute_curvature(new1, is_logistic, bound)
                if new0 != a0 or new1 != a1:
                    alpha[row, 0], alpha[row, 1] = new0, new1
                    step0, step1 = (new0 - a0) * sign0, (new1 - a1) * sign1
                    pull0 += step0
                    pull1 += step1
                    distance += step0 * step0 + step1 * step1
                    for i in range(begin, end):
                        W[indices[i], 0] += data[i] * step0
                        W[indices[i], 1] += data[i] * step1
        bias[0] -= (bias[0] - pull0) / curvature0
        bias[1] -= (bias[1] - pull1) / curvature1
        if n_passes == 0:
            far = distance
        if distance <= eps * eps * far:
            break
    if n_alone:
        write_singleton_weights(alpha, signs, n_features, W)
    return W


@fast_kernel
def soft_threshold(value, penalty):
    """The proximal step of an L1 penalty: towards zero by the penalty, and not beyond."""
    zero = value - value
    return max(value - penalty, zero) + min(value + penalty, zero)

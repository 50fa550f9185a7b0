"""Compiled loops of `solver.py`: dual coordinate descent for a block of labels that share their documents.

Symbols: documents x with labels y = ±1 (`signs`), weights w (columns of W), bias b, dual variables α (`alpha`), cost C,
L1 penalty λ (`penalty`). For one label, w = Σ α y x before the proximal step.
"""

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
    """Shuffle (Fisher–Yates) with a xorshift generator, so that the order depends only on the seed."""
    for i in range(len(order) - 1, 0, -1):
        state = next_random_state(state)
        j = np.int64(state % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


def compute_squared_norms(indptr: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Return ‖x‖² of each document, float32."""
    squares = np.empty(len(indptr) - 1, np.float32)
    write_squared_norms(indptr, data, squares)
    return squares


@fast_kernel
def write_squared_norms(indptr, data, squares):
    for row in range(len(squares)):
        total = np.float32(0)
        for i in range(indptr[row], indptr[row + 1]):
            total += data[i] * data[i]
        squares[row] = total


@kernel
def initialise_bias(signs, row_weights, bias):
    """Set each bias to the weighted mean of the label's signs, the optimum without features."""
    n_rows, n_labels = signs.shape
    total, totals = 0.0, np.zeros(n_labels)
    for row in range(n_rows):
        weight = row_weights[row]
        total += weight
        for j in range(n_labels):
            totals[j] += weight * signs[row, j]
    share = np.float32(1) / np.float32(max(total, 1e-30))
    for j in range(n_labels):
        bias[j] = np.float32(totals[j]) * share


@fast_kernel
def get_loss_factor(factors, label, sign):
    """Return the factor of a document's loss: factors[label] if it has the label, else 1."""
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
def update_bias(bias, alpha_sum, curvature):
    """Take one Newton step in the bias b of every label and reset the curvature.

    The slope of the loss at a document is its α. Documents use a new bias only when they are visited again, so that
    more than one step per pass would overshoot.
    """
    for j in range(len(bias)):
        bias[j] -= (bias[j] - alpha_sum[j]) / curvature[j]
        curvature[j] = 1  # curvature of ½b²; the next pass adds that of the loss


@fast_kernel
def compute_curvature(a, is_logistic, C):
    """Return the curvature of the loss at a document with dual variable a."""
    if is_logistic:
        return a * (1 - a / C)
    return np.float32(2) * C if a > 0 else np.float32(0)


@fast_kernel
def compute_alpha(a, margin, square, is_logistic, C):
    """Return the new dual variable of a document, given the old one, its margin y (w·x + b), ‖x‖² and its C."""
    if is_logistic:
        p = 1 / (1 + np.exp(min(margin, np.float32(30))))
        curvature = max(p * (1 - p), a / C * (1 - a / C))
        return a + (C * p - a) / (1 + square * C * curvature)
    gradient = margin - np.float32(1) + a * np.float32(0.5) / C
    new = a - gradient / (square + np.float32(0.5) / C)
    return new if new > 0 else np.float32(0)


@fast_kernel
def count_tile_vectors(n_labels, first):
    """Return the vectors of the tile that begins at label `first`; 0 if less than one vector is left. Tiles have about
    equal sizes."""
    n_vectors = (n_labels - first) // LANES
    n_tiles = max((n_vectors + MAX_TILE_VECTORS - 1) // MAX_TILE_VECTORS, 1)
    return (n_vectors + n_tiles - 1) // n_tiles


@fast_kernel
def add_margins(indices, data, begin, end, W, penalty, margin):
    """Add w·x of a document with the features begin:end to the margin of each label."""
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
def update_alphas(signs, alpha, margin, singleton_square, square, is_logistic, C, factors, step):
    """Update the dual variables of a document and write their signed changes to `step`.

    This loop and the next two are separate because the compiler vectorises each of them, but not their fusion: it
    would have to check too many arrays for overlap.
    """
    for j in range(len(step)):
        sign, a = signs[j], alpha[j]
        full_margin = sign * margin[j] + singleton_square * a
        new = compute_alpha(a, full_margin, square, is_logistic, C * get_loss_factor(factors, j, sign))
        alpha[j] = new
        step[j] = (new - a) * sign


@fast_kernel
def accumulate_bias_gradient(signs, alpha, step, is_logistic, C, factors, alpha_sum, curvature):
    """Add a document's contribution to the Newton step of `update_bias`."""
    for j in range(len(step)):
        alpha_sum[j] += step[j]
        curvature[j] += compute_curvature(alpha[j], is_logistic, C * get_loss_factor(factors, j, signs[j]))


@fast_kernel
def accumulate_squared_steps(step, moved):
    """Add the squared steps to `moved` per label; return 1 if any step is not zero."""
    has_moved = np.int32(0)
    for j in range(len(step)):
        moved[j] += step[j] * step[j]
        has_moved |= np.int32(step[j] != 0)
    return has_moved


@fast_kernel
def add_steps_to_weights(indices, data, begin, end, W, step):
    """Add step × x to the weights of the features begin:end of a document."""
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
def allocate_weights(n_features, n_singletons, n_rows, n_labels):
    return np.zeros((n_features + (n_rows if n_singletons else 0) + 1, n_labels), np.float32)


@fast_kernel
def write_singleton_weights(alpha, signs, n_features, W):
    """Write α y of each document to the rows after the features. Times its value, that is the weight of a feature that
    only this document has."""
    for row in range(len(alpha)):
        for j in range(alpha.shape[1]):
            W[n_features + row, j] = alpha[row, j] * signs[row, j]


@fast_kernel
def write_progress(n_passes, distance, first_distance, progress):
    """Write the number of passes, and the change of α in the last pass as a fraction of that in the first."""
    progress[0] = n_passes
    progress[1] = np.sqrt(distance / first_distance) if first_distance > 0 else np.float32(0)


@fast_kernel
def descend_block(
    indptr, indices, data, singleton_squares, squares, n_features, n_singletons, signs, is_logistic, C, row_weights,
    factors, penalty, start, eps, max_passes, run_length, runs, state, bias, progress,
):  # fmt: skip
    """Return the weights of a block of labels, with an empty last row for the biases, which are written to `bias`. The
    result of `write_progress` is in `progress`.

    A step visits one document for all labels of the block. `start` and the result are weights before the proximal
    step. Features that only one document has (n_singletons of them) are not among the n_features;
    `singleton_squares` is the sum of their squares per document, and `write_singleton_weights` fills their rows. The
    kernel allocates its matrices itself, so that the compiler knows their row length, which saves a tenth of the time.
    """
    n_rows, n_labels = signs.shape
    W, alpha = allocate_weights(n_features, n_singletons, n_rows, n_labels), np.zeros((n_rows, n_labels), np.float32)
    if start is not None:
        for row in range(n_features):
            for j in range(n_labels):
                W[row, j] = start[row, j]
    scratch = np.zeros((5, n_labels), np.float32)
    margin, step, alpha_sum, curvature, moved = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    for j in range(n_labels):
        curvature[j] = 1
    first_distance = np.float32(0)
    for n_passes in range(max_passes):
        state = shuffle(runs, state)
        for run in runs:
            for row in range(run * run_length, min((run + 1) * run_length, n_rows)):
                for j in range(n_labels):
                    margin[j] = bias[j]
                add_margins(indices, data, indptr[row], indptr[row + 1], W, penalty, margin)
                bound = C * row_weights[row]
                update_alphas(
                    signs[row], alpha[row], margin, singleton_squares[row], squares[row], is_logistic, bound, factors,
                    step,
                )  # fmt: skip
                accumulate_bias_gradient(
                    signs[row], alpha[row], step, is_logistic, bound, factors, alpha_sum, curvature
                )
                if accumulate_squared_steps(step, moved):
                    add_steps_to_weights(indices, data, indptr[row], indptr[row + 1], W, step)
        update_bias(bias, alpha_sum, curvature)
        distance = np.float32(0)
        for j in range(n_labels):
            distance += moved[j]
            moved[j] = 0
        if first_distance == 0:  # a first pass without steps does not end the loop: the bias shrank
            first_distance = distance
        write_progress(n_passes + 1, distance, first_distance, progress)
        if first_distance > 0 and distance <= eps * eps * first_distance:
            break
    if n_singletons:
        write_singleton_weights(alpha, signs, n_features, W)
    return W


@fast_kernel
def descend_pair(
    indptr, indices, data, singleton_squares, squares, n_features, n_singletons, signs, is_logistic, C, row_weights,
    eps, max_passes, run_length, runs, state, bias, progress,
):  # fmt: skip
    """Run `descend_block` for two labels, the children of a binary node.

    Two labels do not fill a vector register, so they are kept in scalars. Two features are read at a time, because
    the additions wait for each other otherwise.
    """
    n_rows, zero, one = len(signs), np.float32(0), np.float32(1)
    W, alpha = allocate_weights(n_features, n_singletons, n_rows, 2), np.zeros((n_rows, 2), np.float32)
    first_distance, alpha_sum0, alpha_sum1 = zero, zero, zero
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
                bound, own = C * row_weights[row], singleton_squares[row]
                new0 = compute_alpha(a0, sign0 * (m0 + odd0) + own * a0, squares[row], is_logistic, bound)
                new1 = compute_alpha(a1, sign1 * (m1 + odd1) + own * a1, squares[row], is_logistic, bound)
                curvature0 += compute_curvature(new0, is_logistic, bound)
                curvature1 += compute_curvature(new1, is_logistic, bound)
                if new0 != a0 or new1 != a1:
                    alpha[row, 0], alpha[row, 1] = new0, new1
                    step0, step1 = (new0 - a0) * sign0, (new1 - a1) * sign1
                    alpha_sum0 += step0
                    alpha_sum1 += step1
                    distance += step0 * step0 + step1 * step1
                    for i in range(begin, end):
                        W[indices[i], 0] += data[i] * step0
                        W[indices[i], 1] += data[i] * step1
        bias[0] -= (bias[0] - alpha_sum0) / curvature0
        bias[1] -= (bias[1] - alpha_sum1) / curvature1
        if first_distance == 0:  # a first pass without steps does not end the loop: the bias shrank
            first_distance = distance
        write_progress(n_passes + 1, distance, first_distance, progress)
        if first_distance > 0 and distance <= eps * eps * first_distance:
            break
    if n_singletons:
        write_singleton_weights(alpha, signs, n_features, W)
    return W


@fast_kernel
def soft_threshold(value, penalty):
    """Return the proximal step of an L1 penalty: the value moved towards zero by the penalty, at most to zero."""
    zero = value - value
    return max(value - penalty, zero) + min(value + penalty, zero)

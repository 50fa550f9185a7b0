"""L1-regularised logistic regression: min ‖w‖₁ + Σ c log(1 + exp(−y w·x)), where c is a document's cost and y = ±1.

The improved GLMNET of LIBLINEAR (Yuan, Ho, Lin 2012): Newton steps, each found by coordinate descent on a quadratic
model of the loss and shortened until the loss itself falls. A bias, where there is one, is a column of ones, and pays
for its size like any other weight.

What makes it fast on the many small problems of a forest: the slope of the loss in a weight lies between minus the sum
of c|x| over the documents that it would speak for and the sum over those that it would speak against. Where neither
exceeds 1 the weight is 0 whatever the others are, and the column is never built (`reach`).
"""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import fast_kernel
from xmtc.linear.coordinate_descent import shuffle

SUFFICIENT_DECREASE = 0.01  # part of the promised gain that a step must bring
MAX_STEP_HALVINGS = 20  # of a step, at most
MAX_STEP = 10.0  # step of one weight
MIN_CURVATURE = 1e-12  # added to every curvature, which may be 0


@fast_kernel
def bound_gradients(indptr, indices, data, docs, signs, costs, against, in_favour, columns):
    """Add up c|x| of every column over the documents that it would speak against, and over those that it would speak
    for; list the columns that occur and return how many. The two sums begin as zeros."""
    n_columns = np.int64(0)
    for position in range(len(docs)):
        doc, sign, cost = docs[position], signs[position], costs[position]
        for i in range(indptr[doc], indptr[doc + 1]):
            column = indices[i]
            if data[i] == 0:
                continue
            if against[column] == 0 and in_favour[column] == 0:
                columns[n_columns] = column
                n_columns += 1
            if sign * data[i] > 0:
                in_favour[column] += cost * abs(data[i])
            else:
                against[column] += cost * abs(data[i])
    return n_columns


@fast_kernel
def compute_derivatives(margins, signs, costs, slopes, curvatures):
    """First and second derivatives of every document's loss in its margin; return the loss itself."""
    loss = 0.0
    for row in range(len(margins)):
        wrong = np.exp(-abs(margins[row]))
        below, above = wrong / (1 + wrong), 1 / (1 + wrong)  # σ(−|margin|) and σ(|margin|)
        is_right = signs[row] * margins[row] >= 0
        slopes[row] = -signs[row] * costs[row] * (below if is_right else above)
        curvatures[row] = costs[row] * below * above
        loss += costs[row] * (np.log1p(wrong) + (0.0 if is_right else abs(margins[row])))
    return loss


@fast_kernel
def compute_loss(margins, step, moves, signs, costs):
    loss = 0.0
    for row in range(len(margins)):
        margin = signs[row] * (margins[row] + step * moves[row])
        loss += costs[row] * (np.log1p(np.exp(-abs(margin))) + max(-margin, 0.0))
    return loss


@fast_kernel
def compute_violation(slope, weight):
    """How far a weight is from its best, in slope."""
    if weight == 0:
        return max(abs(slope) - 1, 0.0)
    return abs(slope + 1) if weight > 0 else abs(slope - 1)


@fast_kernel
def select_active_columns(starts, rows, values, slopes, curvatures, w, slack, gradient, hessian, active):
    """Slopes and curvatures in every weight. Write down the weights worth a step: those that are not 0, and those whose
    slope is within `slack` of moving them. Return their number, and all violations together."""
    n_active, total = np.int64(0), 0.0
    for j in range(len(w)):
        slope, curvature = 0.0, MIN_CURVATURE
        for i in range(starts[j], starts[j + 1]):
            slope += values[i] * slopes[rows[i]]
            curvature += values[i] * values[i] * curvatures[rows[i]]
        gradient[j], hessian[j] = slope, curvature
        if w[j] != 0 or abs(slope) > 1 - slack:
            active[n_active] = j
            n_active += 1
            total += compute_violation(slope, w[j])
    return n_active, total


@fast_kernel
def descend_active_columns(
    starts, rows, values, curvatures, w, gradient, hessian, active, n_active, steps, moves, pulls
):
    """Coordinate descent, once through the active weights, on the quadratic model around w. `moves` are what the steps
    do to the margins, `pulls` these times the curvatures. Weights that stay at 0 leave the list; return how many are
    left, and all violations together."""
    left, total = np.int64(0), 0.0
    for number in range(n_active):
        j = active[number]
        slope, weight = gradient[j] + MIN_CURVATURE * steps[j], w[j] + steps[j]
        for i in range(starts[j], starts[j + 1]):
            slope += values[i] * pulls[rows[i]]
        total += compute_violation(slope, weight)
        if slope + 1 < hessian[j] * weight:
            step = -(slope + 1) / hessian[j]
        elif slope - 1 > hessian[j] * weight:
            step = -(slope - 1) / hessian[j]
        else:
            step = -weight
        step = min(max(step, -MAX_STEP), MAX_STEP)
        if step != 0:
            steps[j] += step
            for i in range(starts[j], starts[j + 1]):
                move = values[i] * step
                moves[rows[i]] += move
                pulls[rows[i]] += curvatures[rows[i]] * move
        if step != 0 or weight != 0:
            active[left] = j
            left += 1
    return left, total


@fast_kernel
def search_step_size(w, gradient, steps, moves, margins, signs, costs, loss):
    """The first of 1, ½, ¼ … of the steps that brings part of what the model promises; 0 if none does."""
    norm, promise = 0.0, 0.0
    for j in range(len(w)):
        norm += abs(w[j])
        promise += gradient[j] * steps[j] + abs(w[j] + steps[j]) - abs(w[j])
    part = 1.0
    for _ in range(MAX_STEP_HALVINGS):
        new_norm = 0.0
        for j in range(len(w)):
            new_norm += abs(w[j] + part * steps[j])
        gain = compute_loss(margins, part, moves, signs, costs) - loss + new_norm - norm
        if gain <= SUFFICIENT_DECREASE * part * promise:
            return part
        part *= 0.5
    return 0.0


@fast_kernel
def solve_l1_logistic(starts, rows, values, signs, costs, eps, max_steps, max_sweeps, state, w, margins):
    """Weights of the columns starts[j]:starts[j + 1], from zeros on, and the documents' margins, written into the last
    two arguments; returns the new state of the random numbers. Stops when the violations are eps of the first ones."""
    n_rows, n_columns = len(signs), len(w)
    by_row, by_column = np.zeros((4, n_rows)), np.zeros((3, n_columns))
    slopes, curvatures, moves, pulls = by_row[0], by_row[1], by_row[2], by_row[3]
    gradient, hessian, steps = by_column[0], by_column[1], by_column[2]
    active, first, slack, tight = np.empty(n_columns, np.int64), -1.0, 1.0, 1.0
    for _ in range(max_steps):
        loss = compute_derivatives(margins, signs, costs, slopes, curvatures)
        n_active, total = select_active_columns(
            starts, rows, values, slopes, curvatures, w, slack, gradient, hessian, active
        )
        first = total if first < 0 else first
        if total <= eps * first:
            break
        slack = min(total / n_rows, 1.0)
        for row in range(n_rows):
            moves[row], pulls[row] = 0, 0
        for j in range(n_columns):
            steps[j] = 0
        n_sweeps = 0
        while n_sweeps < max_sweeps:
            state = shuffle(active[:n_active], state)
            n_active, total = descend_active_columns(
                starts, rows, values, curvatures, w, gradient, hessian, active, n_active, steps, moves, pulls
            )
            n_sweeps += 1
            if total <= tight * first:
                break
        if n_sweeps == 1:  # one was enough: ask for more from now on
            tight *= 0.25
        part = search_step_size(w, gradient, steps, moves, margins, signs, costs, loss)
        if part == 0:
            break
        for j in range(n_columns):
            w[j] += part * steps[j]
        for row in range(n_rows):
            margins[row] += part * moves[row]
    return state

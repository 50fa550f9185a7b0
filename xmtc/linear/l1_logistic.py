"""L1-regularised logistic regression: min ‖w‖₁ + Σ c log(1 + exp(−y w·x)), where c is a document's cost and y = ±1.

The improved GLMNET of LIBLINEAR (Yuan, Ho, Lin 2012): Newton steps, each computed by coordinate descent on a quadratic
model of the loss, with a line search. A bias is a column of ones and is regularised like any other weight.

For the many small problems of a forest: the slope of the loss in a weight is between −Σ c|x| over the documents with
y x > 0 and Σ c|x| over those with y x < 0. If neither sum exceeds 1, the weight is 0 whatever the others are, and the
column is not built (`bound_gradients`).
"""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import fast_kernel
from xmtc.linear.coordinate_descent import shuffle

SUFFICIENT_DECREASE = 0.01  # fraction of the predicted decrease that a step must achieve
MAX_STEP_HALVINGS = 20  # maximum halvings in the line search
MAX_STEP = 10.0  # maximum step of one weight
MIN_CURVATURE = 1e-12  # added to every curvature, which may be 0


@fast_kernel
def bound_gradients(indptr, indices, data, docs, signs, costs, against, in_favour, columns):
    """Add c|x| per column to `in_favour` (documents with y x > 0) and `against` (the others), which start as zeros.
    Write the columns that occur and return their number."""
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
    """Write the first and second derivatives of each document's loss in its margin; return the total loss."""
    loss = 0.0
    for row in range(len(margins)):
        e = np.exp(-abs(margins[row]))
        below, above = e / (1 + e), 1 / (1 + e)  # σ(−|margin|) and σ(|margin|)
        is_correct = signs[row] * margins[row] >= 0
        slopes[row] = -signs[row] * costs[row] * (below if is_correct else above)
        curvatures[row] = costs[row] * below * above
        loss += costs[row] * (np.log1p(e) + (0.0 if is_correct else abs(margins[row])))
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
    """Return the violation of the optimality condition of a weight."""
    if weight == 0:
        return max(abs(slope) - 1, 0.0)
    return abs(slope + 1) if weight > 0 else abs(slope - 1)


@fast_kernel
def select_active_columns(starts, rows, values, slopes, curvatures, w, slack, gradient, hessian, active):
    """Write the gradient and the diagonal of the Hessian, and the active columns: those with a weight, and those whose
    slope is within `slack` of moving the weight from 0. Return their number and the sum of violations."""
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
    """Run one pass of coordinate descent over the active columns on the quadratic model around w.

    `moves` are the changes of the margins, `pulls` the moves times the curvatures. Columns whose weight stays 0 become
    inactive. Return the number of active columns and the sum of violations.
    """
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
    """Return the first step size of 1, ½, ¼ … with sufficient decrease; 0 if there is none (Armijo line search)."""
    norm, predicted_change = 0.0, 0.0
    for j in range(len(w)):
        norm += abs(w[j])
        predicted_change += gradient[j] * steps[j] + abs(w[j] + steps[j]) - abs(w[j])
    size = 1.0
    for _ in range(MAX_STEP_HALVINGS):
        new_norm = 0.0
        for j in range(len(w)):
            new_norm += abs(w[j] + size * steps[j])
        change = compute_loss(margins, size, moves, signs, costs) - loss + new_norm - norm
        if change <= SUFFICIENT_DECREASE * size * predicted_change:
            return size
        size *= 0.5
    return 0.0


@fast_kernel
def solve_l1_logistic(starts, rows, values, signs, costs, eps, max_steps, max_sweeps, state, w, margins):
    """Train from zero weights; write the weights of the columns starts[j]:starts[j + 1] and the margins to the last two
    arguments. Return the new random state. Stop when the violations are at most eps times the first ones."""
    n_rows, n_columns = len(signs), len(w)
    by_row, by_column = np.zeros((4, n_rows)), np.zeros((3, n_columns))
    slopes, curvatures, moves, pulls = by_row[0], by_row[1], by_row[2], by_row[3]
    gradient, hessian, steps = by_column[0], by_column[1], by_column[2]
    active, first_total, slack, tolerance = np.empty(n_columns, np.int64), -1.0, 1.0, 1.0
    for _ in range(max_steps):
        loss = compute_derivatives(margins, signs, costs, slopes, curvatures)
        n_active, total = select_active_columns(
            starts, rows, values, slopes, curvatures, w, slack, gradient, hessian, active
        )
        first_total = total if first_total < 0 else first_total
        if total <= eps * first_total:
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
            if total <= tolerance * first_total:
                break
        if n_sweeps == 1:  # one sweep was enough, so the inner tolerance is tightened
            tolerance *= 0.25
        size = search_step_size(w, gradient, steps, moves, margins, signs, costs, loss)
        if size == 0:
            break
        for j in range(n_columns):
            w[j] += size * steps[j]
        for row in range(n_rows):
            margins[row] += size * moves[row]
    return state

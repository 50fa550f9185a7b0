"""L1- and L2-regularised squared hinge, one label at a time, by dual coordinate descent over an active set of documents
(PPD-Sparse, Yen et al. 2017).

Most documents are on the correct side of a label's margin and have α = 0. A round is one pass over the active
documents, at first the positive ones, and a search for others that violate the margin: through the columns of the
features with a weight, which are few with an L1 penalty. The cost of a label grows with its documents and their
features, not with the corpus.

As in `solver.py` the bias is not a dual feature; it is optimised between two passes. Documents without a feature that
has a weight all have the bias as margin and are only counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.numba_support import kernel
from xmtc.linear.coordinate_descent import (
    compute_alpha,
    compute_squared_norms,
    next_random_state,
    shuffle,
    soft_threshold,
)
from xmtc.linear.packing import SparseWeights, group_by_feature
from xmtc.linear.solver import seed_state

PASSIVE, NEGATIVE, POSITIVE = 0, 1, 2  # roles of a document: not active, active without the label, with the label
MAX_BIAS = 1e6  # a larger bias comes from features beyond the range of float32 and would become nan
MAX_NEWTON_STEPS = 20  # maximum steps for the bias; two or three are usual


class RowColumnDocuments(NamedTuple):
    """Documents by row and by column, with their squared norms and costs."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    column_starts: np.ndarray
    column_rows: np.ndarray
    column_values: np.ndarray
    squares: np.ndarray  # ‖x‖²
    costs: np.ndarray  # C times the weight of the document

    @classmethod
    def from_matrix(cls, X: csr_array, C: float, weights: np.ndarray | None) -> RowColumnDocuments:
        rows = X.indptr.astype(np.int64), X.indices.astype(np.int32, copy=False), X.data
        by_column, squares = csc_array(X), compute_squared_norms(rows[0], X.data)
        columns = by_column.indptr.astype(np.int64), by_column.indices.astype(np.int32), by_column.data
        costs = np.full(X.shape[0], C, np.float32) if weights is None else (C * weights).astype(np.float32)
        return cls(*rows, *columns, squares, costs)


@dataclass(frozen=True)
class ActiveSetSolver:
    """Solver of min λ‖w‖₁ + ½‖w‖² + ½b² + C Σ v max(0, 1 − y (w·x + b))² for each label; v is the document's weight."""

    penalty: float = 0.1  # λ
    eps: float = 0.03  # stop when no passive document violates its margin by more, and no α / C changes by more
    max_rounds: int = 300  # frequent labels that overlap with others need a hundred
    seed: int = 0

    def fit(self, documents: RowColumnDocuments, positives: csr_array, first: int, min_weight: float) -> SparseWeights:
        """Train a classifier for every column of `positives` (ones, shape (n_docs, n_labels)) and prune its weights.
        `first` is the label of the first column; it determines the random orders."""
        n_docs, n_features = len(documents.costs), len(documents.column_starts) - 1
        by_label, bias = csc_array(positives), np.empty(positives.shape[1], np.float32)
        work, total = Workspace.allocate(n_docs, n_features), float(documents.costs.sum())
        limits = np.float32(self.penalty), np.float32(self.eps), self.max_rounds
        label_features, label_weights = [], []
        for label in range(len(bias)):
            rows = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]].astype(np.int64)
            state = np.uint64(next_random_state(seed_state(self.seed) + np.uint64(first + label)))
            bias[label], n_seen = solve_label(*documents, total, rows, *limits, state, *work)
            features = work.seen[:n_seen].copy()
            weights = soft_threshold_array(work.sums[features], np.float32(self.penalty))
            work.sums[features], work.is_seen[features] = 0, False
            is_kept = np.abs(weights) >= min_weight
            label_features.append(features[is_kept])
            label_weights.append(weights[is_kept])
        slots = np.repeat(np.arange(len(bias)), [len(features) for features in label_features])
        return group_by_feature(np.concatenate(label_features), slots, np.concatenate(label_weights), bias)


class Workspace(NamedTuple):
    """Scratch arrays. All but the lists are zero before and after each label; the caller resets `sums` and
    `is_seen`."""

    alpha: np.ndarray  # (n_docs,) dual variables
    roles: np.ndarray  # (n_docs,) PASSIVE, NEGATIVE or POSITIVE
    active: np.ndarray  # list of active documents
    margins: np.ndarray  # (n_docs,) w·x
    is_touched: np.ndarray  # (n_docs,)
    touched: np.ndarray  # list of documents whose margin may differ from the bias
    sums: np.ndarray  # (n_features,) weights before the proximal step
    is_seen: np.ndarray  # (n_features,)
    seen: np.ndarray  # list of features that occur in visited documents

    @classmethod
    def allocate(cls, n_docs: int, n_features: int) -> Workspace:
        alpha, margins, sums = (np.zeros(n, np.float32) for n in (n_docs, n_docs, n_features))
        active, touched, seen = (np.empty(n, np.int64) for n in (n_docs, n_docs, n_features))
        roles, is_touched = np.zeros(n_docs, np.int8), np.zeros(n_docs, np.bool_)
        is_seen = np.zeros(n_features, np.bool_)
        return cls(alpha, roles, active, margins, is_touched, touched, sums, is_seen, seen)


def soft_threshold_array(sums: np.ndarray, penalty: np.float32) -> np.ndarray:
    return np.maximum(sums - penalty, np.float32(0)) + np.minimum(sums + penalty, np.float32(0))


@kernel
def update_active_documents(
    active, n_active, indptr, indices, data, squares, costs, penalty, bias, alpha, roles, sums, is_seen, seen, n_seen
):
    """Take a step for each active document; return the largest |change of α| / C and the number of seen features."""
    largest = np.float32(0)
    for at in range(n_active):
        row = active[at]
        margin = bias
        for i in range(indptr[row], indptr[row + 1]):
            margin += soft_threshold(sums[indices[i]], penalty) * data[i]
        sign = np.float32(1) if roles[row] == POSITIVE else np.float32(-1)
        new = compute_alpha(alpha[row], sign * margin, squares[row], False, costs[row])
        step = (new - alpha[row]) * sign
        if step != 0:
            alpha[row] = new
            largest = max(largest, abs(step) / costs[row])
            for i in range(indptr[row], indptr[row + 1]):
                feature = indices[i]
                sums[feature] += step * data[i]
                if not is_seen[feature]:
                    is_seen[feature], seen[n_seen] = True, feature
                    n_seen += 1
    return largest, n_seen


@kernel
def deactivate_documents(active, n_active, alpha, roles):
    """Remove the negative documents with α = 0 from the active ones; return the number left."""
    n_left = np.int64(0)
    for at in range(n_active):
        row = active[at]
        if roles[row] == POSITIVE or alpha[row] > 0:
            active[n_left] = row
            n_left += 1
        else:
            roles[row] = PASSIVE
    return n_left


@kernel
def compute_touched_margins(starts, rows, values, sums, penalty, seen, n_seen, positives, margins, is_touched, touched):
    """Write w·x of the positive documents and of all documents that have a feature with a weight; return their
    number."""
    n_touched = np.int64(0)
    for row in positives:
        is_touched[row], touched[n_touched] = True, row
        n_touched += 1
    for at in range(n_seen):
        weight = soft_threshold(sums[seen[at]], penalty)
        if weight != 0:
            for i in range(starts[seen[at]], starts[seen[at] + 1]):
                row = rows[i]
                margins[row] += weight * values[i]
                if not is_touched[row]:
                    is_touched[row], touched[n_touched] = True, row
                    n_touched += 1
    return n_touched


@kernel
def minimise_bias(bias, total, costs, margins, roles, touched, n_touched):
    """Return the optimal bias by Newton steps, safeguarded by bisection."""
    low, high, rest = -np.inf, np.inf, total
    for at in range(n_touched):
        rest -= costs[touched[at]]
    for _ in range(MAX_NEWTON_STEPS):
        slope, curvature = bias, 1.0
        if bias > -1 and rest > 0:
            slope, curvature = slope + 2 * rest * (1 + bias), curvature + 2 * rest
        for at in range(n_touched):
            row = touched[at]
            sign = 1.0 if roles[row] == POSITIVE else -1.0
            hinge = 1 - sign * (margins[row] + bias)
            if hinge > 0:
                slope, curvature = slope - 2 * costs[row] * sign * hinge, curvature + 2 * costs[row]
        if slope > 0:
            high = bias
        else:
            low = bias
        if abs(slope) <= 1e-6 * curvature:
            break
        bias -= slope / curvature
        if not low < bias < high:
            bias = (low + high) / 2
    return bias


@kernel
def activate_documents(bias, eps, margins, is_touched, touched, n_touched, roles, active, n_active):
    """Make passive documents that violate their margin active and clear the margins; return the number of active
    documents."""
    for at in range(n_touched):
        row = touched[at]
        if roles[row] == PASSIVE and 1 + bias + margins[row] > eps:
            roles[row], active[n_active] = NEGATIVE, row
            n_active += 1
        margins[row], is_touched[row] = 0, False
    return n_active


@kernel
def solve_label(
    indptr, indices, data, starts, rows, values, squares, costs, total, positives, penalty, eps, max_rounds, state,
    alpha, roles, active, margins, is_touched, touched, sums, is_seen, seen,
):  # fmt: skip
    """Train one label; return its bias and the number of seen features. The weights before the proximal step are left
    in `sums` at the features `seen`."""
    n_active, n_seen, bias = np.int64(0), np.int64(0), -1.0
    for row in positives:
        roles[row], active[n_active] = POSITIVE, row
        n_active += 1
    for _ in range(max_rounds):
        state = shuffle(active[:n_active], state)
        largest, n_seen = update_active_documents(
            active, n_active, indptr, indices, data, squares, costs, penalty, np.float32(bias), alpha, roles, sums,
            is_seen, seen, n_seen,
        )  # fmt: skip
        n_left = deactivate_documents(active, n_active, alpha, roles)
        n_touched = compute_touched_margins(
            starts, rows, values, sums, penalty, seen, n_seen, positives, margins, is_touched, touched
        )
        bias = minimise_bias(bias, total, costs, margins, roles, touched, n_touched)
        n_active = activate_documents(
            np.float32(bias), eps, margins, is_touched, touched, n_touched, roles, active, n_left
        )
        if (n_active == n_left and largest <= eps) or abs(bias) > MAX_BIAS:
            break
    for at in range(n_active):
        alpha[active[at]], roles[active[at]] = 0, PASSIVE
    return bias, n_seen

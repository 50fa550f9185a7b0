"""L1- and L2-regularised squared hinge, one label at a time, by dual coordinate descent over the few documents that
matter (Yen et al. 2017).

Most documents are on the right side of a label's margin and have no say in its weights. So a round is one pass over the
active documents, at first the label's own, followed by a search for others that miss the margin: through the columns of
the features that have a weight, which with an L1 penalty are few. What a label costs grows with its own documents and
their words, not with the corpus.

As in the solver of whole blocks, the bias is no dual feature: it is set to its best between two passes. Documents that
hold no feature with a weight all have the bias for a margin, and are counted without being looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.numba_support import kernel
from xmtc.linear.coordinate_descent import (
    compute_alpha,
    next_random_state,
    shuffle,
    soft_threshold,
    write_squared_norms,
)
from xmtc.linear.packing import SparseWeights, group_by_feature
from xmtc.linear.solver import seed_state

PASSIVE, NEGATIVE, POSITIVE = 0, 1, 2  # what a document is to a label
MAX_BIAS = (
    1e6  # a bias that is farther off comes of features whose scales float32 cannot hold, and would end as no number
)
MAX_NEWTON_STEPS = 20  # steps at most in search of the best bias, of which it takes two or three


class RowColumnDocuments(NamedTuple):
    """Documents by row and by column, their squared lengths, and what each of them counts."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    column_starts: np.ndarray  # of the columns
    column_rows: np.ndarray
    column_values: np.ndarray
    squares: np.ndarray
    costs: np.ndarray  # C times the document's weight

    @classmethod
    def from_matrix(cls, X: csr_array, C: float, weights: np.ndarray | None) -> RowColumnDocuments:
        rows = X.indptr.astype(np.int64), X.indices.astype(np.int32, copy=False), X.data
        by_column, squares = csc_array(X), np.empty(X.shape[0], np.float32)
        write_squared_norms(rows[0], X.data, squares)
        columns = by_column.indptr.astype(np.int64), by_column.indices.astype(np.int32), by_column.data
        costs = np.full(X.shape[0], C, np.float32) if weights is None else (C * weights).astype(np.float32)
        return cls(*rows, *columns, squares, costs)


@dataclass(frozen=True)
class ActiveSetSolver:
    """min λ‖w‖₁ + ½‖w‖² + ½b² + C Σ v max(0, 1 − y (w·x + b))² for each label, where v is the document's weight."""

    penalty: float = 0.1  # λ
    eps: float = 0.03  # stop when no document that is not active misses its margin by more, and none moves by more
    max_rounds: int = 300  # frequent labels that overlap with others take a hundred
    seed: int = 0

    def fit(self, documents: RowColumnDocuments, positives: csr_array, first: int, min_weight: float) -> SparseWeights:
        """Weights for every column of `positives` ((n_docs, n_labels), ones), of which the first is label `first`."""
        n_docs, n_features = len(documents.costs), len(documents.column_starts) - 1
        by_label, bias, found = csc_array(positives), np.empty(positives.shape[1], np.float32), []
        work, total = Workspace.allocate(n_docs, n_features), float(documents.costs.sum())
        for label in range(len(bias)):
            mine = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]].astype(np.int64)
            state = np.uint64(next_random_state(seed_state(self.seed) + np.uint64(first + label)))
            limits = np.float32(self.penalty), np.float32(self.eps), self.max_rounds
            bias[label], n_seen = solve_label(*documents, total, mine, *limits, state, *work)
            features = work.seen[:n_seen].copy()
            weights = soft_threshold_array(work.sums[features], np.float32(self.penalty))
            work.sums[features], work.is_seen[features] = 0, False
            kept = np.abs(weights) >= min_weight
            found.append((features[kept], weights[kept]))
        slots = np.repeat(np.arange(len(bias)), [len(features) for features, _ in found])
        features, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return group_by_feature(features, slots, weights, bias)


class Workspace(NamedTuple):
    """Room to work in. All but the lists begin as zeros, and are left so but for `sums` and `is_seen`."""

    alpha: np.ndarray  # (n_docs,) dual variables
    roles: np.ndarray  # (n_docs,)
    active: np.ndarray  # a list of documents
    margins: np.ndarray  # (n_docs,)
    is_touched: np.ndarray  # (n_docs,)
    touched: np.ndarray  # a list of documents
    sums: np.ndarray  # (n_features,) weights before their proximal step
    is_seen: np.ndarray  # (n_features,)
    seen: np.ndarray  # a list of features

    @classmethod
    def allocate(cls, n_docs: int, n_features: int) -> Workspace:
        alpha, margins, sums = (np.zeros(n, np.float32) for n in (n_docs, n_docs, n_features))
        active, touched, seen = (np.empty(n, np.int64) for n in (n_docs, n_docs, n_features))
        kinds, is_touched, is_seen = (
            np.zeros(n_docs, np.int8),
            np.zeros(n_docs, np.bool_),
            np.zeros(n_features, np.bool_),
        )
        return cls(alpha, kinds, active, margins, is_touched, touched, sums, is_seen, seen)


def soft_threshold_array(sums: np.ndarray, penalty: np.float32) -> np.ndarray:
    return np.maximum(sums - penalty, np.float32(0)) + np.minimum(sums + penalty, np.float32(0))


@kernel
def update_active_documents(
    active, n_active, indptr, indices, data, squares, costs, penalty, bias, alpha, kinds, sums, is_seen, seen, n_seen
):
    """A step for each active document: the farthest that one went, and how many features have been seen."""
    farthest = np.float32(0)
    for at in range(n_active):
        row = active[at]
        margin = bias
        for i in range(indptr[row], indptr[row + 1]):
            margin += soft_threshold(sums[indices[i]], penalty) * data[i]
        sign = np.float32(1) if kinds[row] == POSITIVE else np.float32(-1)
        new = compute_alpha(alpha[row], sign * margin, squares[row], False, costs[row])
        step = (new - alpha[row]) * sign
        if step != 0:
            alpha[row] = new
            farthest = max(farthest, abs(step) / costs[row])
            for i in range(indptr[row], indptr[row + 1]):
                feature = indices[i]
                sums[feature] += step * data[i]
                if not is_seen[feature]:
                    is_seen[feature], seen[n_seen] = True, feature
                    n_seen += 1
    return farthest, n_seen


@kernel
def deactivate_documents(active, n_active, alpha, kinds):
    """Documents without the label and without a say are no longer active; how many are left."""
    n_left = np.int64(0)
    for at in range(n_active):
        row = active[at]
        if kinds[row] == POSITIVE or alpha[row] > 0:
            active[n_left] = row
            n_left += 1
        else:
            kinds[row] = PASSIVE
    return n_left


@kernel
def compute_touched_margins(starts, rows, values, sums, penalty, seen, n_seen, positives, margins, is_touched, touched):
    """The margins, without bias, of the label's documents and of all that hold a feature with a weight; how many."""
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
def minimise_bias(bias, total, costs, margins, kinds, touched, n_touched):
    """Newton's steps, held between the largest bias seen that was too small and the smallest that was too large."""
    low, high, rest = -np.inf, np.inf, total
    for at in range(n_touched):
        rest -= costs[touched[at]]
    for _ in range(MAX_NEWTON_STEPS):
        slope, curvature = bias, 1.0
        if bias > -1 and rest > 0:
            slope, curvature = slope + 2 * rest * (1 + bias), curvature + 2 * rest
        for at in range(n_touched):
            row = touched[at]
            sign = 1.0 if kinds[row] == POSITIVE else -1.0
            missing = 1 - sign * (margins[row] + bias)
            if missing > 0:
                slope, curvature = slope - 2 * costs[row] * sign * missing, curvature + 2 * costs[row]
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
def activate_documents(bias, eps, margins, is_touched, touched, n_touched, kinds, active, n_active):
    """Passive documents that miss their margin become active; how many are now. What looking around has left is
    cleared away."""
    for at in range(n_touched):
        row = touched[at]
        if kinds[row] == PASSIVE and 1 + bias + margins[row] > eps:
            kinds[row], active[n_active] = NEGATIVE, row
            n_active += 1
        margins[row], is_touched[row] = 0, False
    return n_active


@kernel
def solve_label(
    indptr, indices, data, starts, rows, values, squares, costs, total, positives, penalty, eps, max_rounds, state,
    alpha, kinds, active, margins, is_touched, touched, sums, is_seen, seen,
):  # fmt: skip
    """One label's weights, which are left in `sums` at the features that are left in `seen`: its bias, and how many."""
    n_active, n_seen, bias = np.int64(0), np.int64(0), -1.0
    for row in positives:
        kinds[row], active[n_active] = POSITIVE, row
        n_active += 1
    for _ in range(max_rounds):
        state = shuffle(active[:n_active], state)
        farthest, n_seen = update_active_documents(
            active, n_active, indptr, indices, data, squares, costs, penalty, np.float32(bias), alpha, kinds, sums,
            is_seen, seen, n_seen,
        )  # fmt: skip
        n_left = deactivate_documents(active, n_active, alpha, kinds)
        n_touched = compute_touched_margins(
            starts, rows, values, sums, penalty, seen, n_seen, positives, margins, is_touched, touched
        )
        bias = minimise_bias(bias, total, costs, margins, kinds, touched, n_touched)
        n_active = activate_documents(
            np.float32(bias), eps, margins, is_touched, touched, n_touched, kinds, active, n_left
        )
        if (n_active == n_left and farthest <= eps) or abs(bias) > MAX_BIAS:
            break
    for at in range(n_active):
        alpha[active[at]], kinds[active[at]] = 0, PASSIVE
    return bias, n_seen

"""Ridge regression of many targets by dual coordinate descent.

As in `solver.py`, with a squared loss, whose dual variables have no bounds. There is no bias, because the predicted
vectors are compared by their direction.
"""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import fast_kernel
from xmtc.core.sparse import CompactMatrix
from xmtc.linear.coordinate_descent import compute_squared_norms, shuffle
from xmtc.linear.simd import LANES
from xmtc.linear.solver import MAX_BLOCK_LABELS, RUN_DOCUMENTS, seed_state


def fit_ridge(documents: CompactMatrix, targets: np.ndarray, C: float, passes: int, seed: int) -> np.ndarray:
    """Return the w that minimise ½‖w‖² + C Σ (w·x − t)², one column per target; shape (n_features, n_targets)."""
    n_rows, n_targets = targets.shape
    squares, n_features = compute_squared_norms(documents.indptr, documents.data), len(documents.columns)
    W = np.empty((n_features, n_targets), np.float32)
    for begin in range(0, n_targets, MAX_BLOCK_LABELS):
        width = min(MAX_BLOCK_LABELS, n_targets - begin)
        block = np.zeros((n_rows, -(-width // LANES) * LANES), np.float32)
        block[:, :width] = targets[:, begin : begin + width]
        order = np.arange(-(-n_rows // RUN_DOCUMENTS)), seed_state(seed)
        weights = descend_targets(*documents[:3], squares, n_features, block, np.float32(C), passes, *order)
        W[:, begin : begin + width] = weights[:, :width]
    return W


@fast_kernel
def descend_targets(indptr, indices, data, squares, n_features, targets, C, passes, runs, state):
    """Return the weights of a block of targets; a step visits one document for the whole block."""
    n_rows, n_targets = targets.shape
    W, alpha = np.zeros((n_features, n_targets), np.float32), np.zeros((n_rows, n_targets), np.float32)
    step = np.zeros(n_targets, np.float32)
    slack = np.float32(0.5) / C
    for _ in range(passes):
        state = shuffle(runs, state)
        for run in runs:
            for row in range(run * RUN_DOCUMENTS, min((run + 1) * RUN_DOCUMENTS, n_rows)):
                for j in range(n_targets):
                    step[j] = targets[row, j] - slack * alpha[row, j]
                for i in range(indptr[row], indptr[row + 1]):
                    weights, value = W[indices[i]], data[i]
                    for j in range(n_targets):
                        step[j] -= value * weights[j]
                for j in range(n_targets):
                    step[j] /= squares[row] + slack
                    alpha[row, j] += step[j]
                for i in range(indptr[row], indptr[row + 1]):
                    weights, value = W[indices[i]], data[i]
                    for j in range(n_targets):
                        weights[j] += value * step[j]
    return W

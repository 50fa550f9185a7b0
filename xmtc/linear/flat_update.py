"""Further training of one-vs-all models: only the labels that a change affects are trained again.

New documents are negatives of all labels. A label is trained again if its own documents have changed, or if the changed
documents violate its margin by more than a slack, which most documents without the label do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from xmtc.core.dataset_change import DatasetChange
from xmtc.core.predictions import NO_LABEL
from xmtc.linear.packing import MAX_CHUNK_SLOTS, SparseWeights, concatenate_slots
from xmtc.linear.slots import TreeSlots, replace_weights, unpack_weights
from xmtc.linear.tree import LinearTree
from xmtc.linear.tree_update import MAX_PENDING_SHARE, MIN_PENDING_LOSS, mark_changed_labels

MARGIN_SLACK = 0.2  # violation of a margin that does not count
MAX_MARGIN_CELLS = 1 << 22  # margins that are computed at a time


class UpdatedFlatTree(NamedTuple):
    """One-vs-all model after an update."""

    tree: LinearTree
    n_trained: int
    pending: np.ndarray  # (n_slots,)


def update_flat_tree(
    tree: LinearTree, change: DatasetChange, train: Callable[[np.ndarray], Iterable[SparseWeights]]
) -> UpdatedFlatTree | None:
    """Train the labels that a change affects; return None if the last chunk has no place for new labels.

    `train` returns the weights of given labels, in parts."""
    before = TreeSlots.from_tree(tree)
    new_labels = np.setdiff1d(np.arange(change.new.n_labels), change.targets)
    slots = before.with_labels(change.targets, new_labels, np.full(len(new_labels), before.chunks[-1]))
    sizes = np.bincount(slots.chunks, minlength=tree.n_chunks)
    if sizes.min() == 0 or sizes.max() > MAX_CHUNK_SLOTS:
        return None
    n_features, is_old = change.new.X.shape[1], slots.origins >= 0
    old_weights = unpack_weights(tree, n_features, change.columns)
    weights = csr_array(vstack([old_weights, csr_array((1, n_features), dtype=np.float32)]))[slots.origins]
    bias = np.where(is_old, np.append(tree.bias, 0)[slots.origins], 0).astype(np.float32)
    pending = np.append(change.pending if len(change.pending) else np.zeros(len(tree.bias)), 0)
    loss = np.where(is_old, pending[slots.origins], np.inf) + sum_violations(slots, weights, bias, change)
    assert change.new.Y is not None
    n_positive = np.append(np.bincount(change.new.Y.indices, minlength=change.new.n_labels), 0)[slots.labels]
    is_trained = loss > np.maximum(MIN_PENDING_LOSS, MAX_PENDING_SHARE * n_positive)
    is_trained |= mark_changed_labels(slots, change)
    is_trained &= slots.labels != NO_LABEL
    chosen = np.flatnonzero(is_trained)
    if len(chosen):
        trained = concatenate_slots(list(train(slots.labels[chosen])))
        bias[chosen] = trained.bias
        cells = chosen[trained.slots], np.repeat(trained.features, np.diff(trained.ends, prepend=0))
        kept = csr_array(weights.multiply(~is_trained[:, None]))
        weights = csr_array(kept + csr_array((trained.weights, cells), shape=weights.shape))
    has_same_features = np.array_equal(change.columns, np.arange(len(change.columns)))
    updated = replace_weights(tree, slots, weights, bias, is_trained, has_same_features)
    return UpdatedFlatTree(updated, len(chosen), np.where(is_trained, 0, loss).astype(np.float32))


def sum_violations(slots: TreeSlots, weights: csr_array, bias: np.ndarray, change: DatasetChange) -> np.ndarray:
    """Return the violations of the margins by changed documents, summed for each slot, shape (n_slots,)."""
    assert change.new.Y is not None
    total, size = np.zeros(slots.n_slots), max(1, MAX_MARGIN_CELLS // slots.n_slots)
    added, removed = change.added_rows, change.removed_rows
    for X, Y in (
        (change.new.X[added], change.new.Y[added]),
        (change.old.X[removed], change.old_labels[removed]),
    ):
        for begin in range(0, X.shape[0], size):
            rows = slice(begin, begin + size)
            signs = np.where(slots.memberships(Y[rows]).toarray() > 0, 1, -1)
            margins = (X[rows] @ weights.T).toarray() + bias
            total += np.maximum(0, 1 - MARGIN_SLACK - signs * margins).sum(axis=0)
    return np.where(slots.labels == NO_LABEL, 0, total)

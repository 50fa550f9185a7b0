"""Further training of label trees.

The tree stays, new labels join the leaf of their nearest label, and only classifiers that a change affects are trained
again.

A changed document leaves a classifier as it is if the document was, or is, on the correct side of its margin: its dual
variable is 0, so the optimum is the same. The loss of documents inside the margin is summed up for each classifier
(`pending`), which is trained again on all its documents when the sum is large compared to its positive documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack
from threadpoolctl import threadpool_limits

from xmtc.core.dataset import Dataset
from xmtc.core.dataset_change import DatasetChange
from xmtc.core.events import Convergence
from xmtc.core.predictions import NO_LABEL
from xmtc.core.run import Run
from xmtc.labels.vectors import LabelVectors
from xmtc.linear.blocks import TrainingBlock, to_member_arrays
from xmtc.linear.packing import SparseWeights
from xmtc.linear.slots import ROOT, TreeSlots, replace_weights, unpack_weights
from xmtc.linear.solver import MAX_BLOCK_LABELS, make_random_order, report_convergence
from xmtc.linear.tree import LinearTree
from xmtc.linear.tree_training import CERTAIN_MARGINS, TreeTrainer, shuffle_documents

MIN_PENDING_LOSS = 0.5  # summed loss of changes up to which a classifier is not trained again
MAX_PENDING_SHARE = 0.05  # of the positive documents of a classifier, for the same
MAX_LEAF_GROWTH = 2  # labels of a leaf, relative to the maximum, up to which the tree is kept
MAX_MARGIN_CELLS = 1 << 22  # margins that are computed at a time


@dataclass(frozen=True)
class UpdatedTree:
    """Label tree after an update."""

    tree: LinearTree
    n_trained: int
    pending: np.ndarray  # (n_slots,)


def find_nearest_labels(data: Dataset, new_labels: np.ndarray, run: Run) -> np.ndarray:
    """Return the label with the most similar documents for each new label, among the others."""
    if not len(new_labels):
        return new_labels
    vectors = LabelVectors.from_documents(data, run).matrix
    is_new = np.zeros(vectors.shape[0], bool)
    is_new[new_labels] = True
    others = np.flatnonzero(~is_new)
    similarity = csr_array(vectors[new_labels] @ vectors[others].T).toarray()
    return others[similarity.argmax(axis=1)]


def place_labels(
    slots: TreeSlots, change: DatasetChange, new_labels: np.ndarray, nearest_labels: np.ndarray
) -> TreeSlots:
    """Return the slots with the labels after a change; new labels are beside their nearest labels."""
    chunk_of_label = np.zeros(change.new.n_labels, np.int64)
    is_label = slots.labels != NO_LABEL
    numbers = change.targets[slots.labels[is_label]]
    chunk_of_label[numbers[numbers != NO_LABEL]] = slots.chunks[is_label][numbers != NO_LABEL]
    return slots.with_labels(change.targets, new_labels, chunk_of_label[nearest_labels])


def has_drifted(slots: TreeSlots, before: TreeSlots, max_leaf: int) -> bool:
    """Return True if a leaf has lost all its labels or has far too many."""
    sizes, old_sizes = (np.bincount(tree.chunks, minlength=before.chunks[-1] + 1) for tree in (slots, before))
    limit = MAX_LEAF_GROWTH * np.maximum(max_leaf, old_sizes)
    return bool((sizes == 0).any() or (sizes > limit).any())


def sum_losses(
    slots: TreeSlots,
    weights: csr_array,
    bias: np.ndarray,
    documents: tuple[csr_array, csr_array, csr_array],
    is_logistic: bool,
) -> np.ndarray:
    """Return the slope of the loss of some documents, summed for each classifier that they reach, shape (n_slots,).

    `documents` are features, labels and rejected labels."""
    X, Y, rejected = documents
    total, size = np.zeros(slots.n_slots), max(1, MAX_MARGIN_CELLS // slots.n_slots)
    for begin in range(0, X.shape[0], size):
        rows = slice(begin, begin + size)
        members = slots.memberships(Y[rows])
        reached = slots.scored(slots.memberships(csr_array(Y[rows] + rejected[rows]))).tocoo()
        margins = np.asarray((X[rows] @ weights.T).todense())[reached.coords] + bias[reached.coords[1]]
        signs = np.where(np.asarray(members.todense())[reached.coords] > 0, 1, -1)
        losses = 1 / (1 + np.exp(signs * margins)) if is_logistic else np.maximum(0, 1 - signs * margins)
        total += np.bincount(reached.coords[1], losses, slots.n_slots)
    return total


class UpdateData(NamedTuple):
    """Documents after a change in random order, and new labels with their nearest labels."""

    data: Dataset
    rejected: csr_array
    new_labels: np.ndarray
    nearest_labels: np.ndarray


def update_tree(
    trainer: TreeTrainer, tree: LinearTree, update: UpdateData, change: DatasetChange, pending: np.ndarray, run: Run,
    max_leaf: int,
) -> UpdatedTree | None:  # fmt: skip
    """Train the classifiers of a tree that a change affects; return None if the tree is not suitable any more.

    `pending` is the summed loss of earlier changes, shape (n_slots,).
    """
    before = TreeSlots.from_tree(tree)
    slots = place_labels(before, change, update.new_labels, update.nearest_labels)
    if has_drifted(slots, before, max_leaf):
        return None
    X, Y, data = change.new.X, change.new.Y, update.data
    assert Y is not None
    is_old = slots.origins >= 0
    weights = csr_array(
        vstack([unpack_weights(tree, X.shape[1], change.columns), csr_array((1, X.shape[1]), dtype=np.float32)])
    )
    weights = weights[slots.origins]  # a new slot has the weights of the last row, zeros
    bias = np.where(is_old, np.append(tree.bias, 0)[slots.origins], 0).astype(np.float32)
    loss = np.where(is_old, np.append(pending, 0)[slots.origins], np.inf)
    is_logistic = trainer.solver.loss == "logistic"
    added, removed = change.added_rows, change.removed_rows
    none = csr_array((len(removed), Y.shape[1]), dtype=np.float32)
    for documents in (
        (X[added], Y[added], change.rejected[added]),
        (change.old.X[removed], change.old_labels[removed], none),
    ):
        loss += sum_losses(slots, weights, bias, documents, is_logistic)
    members, reached = slots.memberships(data.Y), slots.memberships(csr_array(data.Y + update.rejected))
    n_positive = np.bincount(members.indices, minlength=slots.n_slots)
    is_trained = loss > np.maximum(MIN_PENDING_LOSS, MAX_PENDING_SHARE * n_positive)
    is_trained |= mark_changed_labels(slots, change)
    is_alone, was_alone = mark_single_children(slots), np.append(mark_single_children(before), False)[slots.origins]
    is_trained = (is_trained | was_alone) & ~is_alone
    newly_alone = is_alone & ~was_alone
    bias[newly_alone] = CERTAIN_MARGINS[trainer.solver.loss]
    kept = mask_rows(weights, ~(is_trained | newly_alone))
    weights, bias = train_slots(trainer, slots, data, (members, reached), is_trained, (kept, bias), run)
    has_same_features = np.array_equal(change.columns, np.arange(len(change.columns)))
    updated = replace_weights(tree, slots, weights, bias, is_trained | newly_alone, has_same_features)
    return UpdatedTree(updated, int(is_trained.sum()), np.where(is_trained | is_alone, 0, loss).astype(np.float32))


def mask_rows(matrix: csr_array, is_kept: np.ndarray) -> csr_array:
    """Return the matrix with zeros in the other rows."""
    masked = csr_array(
        (matrix.data * np.repeat(is_kept, np.diff(matrix.indptr)), matrix.indices, matrix.indptr), shape=matrix.shape
    )
    masked.eliminate_zeros()
    return masked


def mark_changed_labels(slots: TreeSlots, change: DatasetChange) -> np.ndarray:
    """Return which slots are labels whose documents have changed."""
    assert change.new.Y is not None
    changed = np.zeros(change.new.n_labels + 1, bool)
    changed[change.new.Y[change.added_rows].indices] = True
    changed[change.old_labels[change.removed_rows].indices] = True
    changed[change.rejected[change.added_rows].indices] = True
    changed[-1] = False  # inner slots, whose label is NO_LABEL
    return changed[slots.labels]


def mark_single_children(slots: TreeSlots) -> np.ndarray:
    """Return which slots have no siblings; they are not trained."""
    return np.bincount(slots.parents + 1)[slots.parents + 1] == 1


def train_slots(
    trainer: TreeTrainer, slots: TreeSlots, data: Dataset, documents: tuple[csr_array, csr_array],
    is_trained: np.ndarray, kept: tuple[csr_array, np.ndarray], run: Run,
) -> tuple[csr_array, np.ndarray]:  # fmt: skip
    """Return the weights and biases of all slots after training some of them; `kept` are those of the others.
    `documents` are the documents of each slot, and those that reach its children."""
    blocks = list(make_slot_blocks(slots, *documents, is_trained))
    reports: list[Convergence] = []
    weights, bias = kept[0], kept[1].copy()
    rows, columns, values = [], [], []
    with threadpool_limits(1, "blas"):
        for _, node, trained in trainer.train_blocks(data, blocks, reports, run):
            assert isinstance(trained, SparseWeights)
            children = blocks[node].children
            bias[children] = trained.bias
            rows.append(children[trained.slots])
            columns.append(np.repeat(trained.features, np.diff(trained.ends, prepend=0)))
            values.append(trained.weights)
    report_convergence(reports, run)
    if not rows:
        return weights, bias
    cells = np.concatenate(rows), np.concatenate(columns)
    return csr_array(weights + csr_array((np.concatenate(values), cells), shape=weights.shape)), bias


def make_slot_blocks(
    slots: TreeSlots, members: csr_array, reached: csr_array, is_trained: np.ndarray
) -> Iterator[TrainingBlock]:
    """Yield blocks of slots to train that have the same parent."""
    by_slot, by_parent = csc_array(members), csc_array(reached)
    documents = to_member_arrays(by_slot)
    is_root_row = np.diff(reached.indptr) > 0
    chosen = np.flatnonzero(is_trained)
    chosen = chosen[np.argsort(slots.parents[chosen], kind="stable")]
    parents, starts = np.unique(slots.parents[chosen], return_index=True)
    number = 0
    for parent, children in zip(parents.tolist(), np.split(chosen, starts[1:]), strict=True):
        if parent == ROOT:
            rows = np.flatnonzero(is_root_row).astype(np.int32)
        else:
            rows = by_parent.indices[by_parent.indptr[parent] : by_parent.indptr[parent + 1]]
        for begin in range(0, len(children), MAX_BLOCK_LABELS):
            block = children[begin : begin + MAX_BLOCK_LABELS]
            yield TrainingBlock(0, number, number, 0, False, rows, block, documents)
            number += 1


def update_trees(
    trainer: TreeTrainer, trees: tuple[LinearTree, ...], change: DatasetChange, run: Run, max_leaf: int
) -> list[UpdatedTree] | None:
    """Update all trees of a model; return None if one of them is not suitable any more."""
    new_labels = np.setdiff1d(np.arange(change.new.n_labels), change.targets)
    order = make_random_order(change.new.n_docs, trainer.solver.seed)
    update = UpdateData(
        shuffle_documents(change.new, trainer.solver.seed, run),
        change.rejected[order],
        new_labels,
        find_nearest_labels(change.new, new_labels, run),
    )
    updated, begin = [], 0
    for tree in trees:
        end = begin + len(tree.bias)
        pending = change.pending[begin:end] if len(change.pending) else np.zeros(len(tree.bias), np.float32)
        result = update_tree(trainer, tree, update, change, pending, run, max_leaf)
        if result is None:
            return None
        updated.append(result)
        begin = end
    return updated

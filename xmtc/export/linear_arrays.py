"""Linear models as plain arrays: weights by feature, and the tree of the slots."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csc_array, csr_array, hstack

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.linear.model import FIRST_STEP_LABELS, TreeModel
from xmtc.linear.slots import ROOT, TreeSlots, unpack_weights
from xmtc.methods.ensemble.calibrated_model import CalibratedModel, apply_isotonic_curve, strip_calibration
from xmtc.tagger import Tagger

BATCH_CELLS = 2**25  # margins that are computed at a time


@dataclass(frozen=True)
class LinearArrays:
    """Linear classifiers of one or several label trees. A slot is one classifier.

    The log probability of a slot is `link` of its margin plus that of its parent. The score of a label is the mean of
    its probabilities over the trees, where a tree only counts for its best MAX_RANKED labels.
    """

    weights: csr_array  # (n_features, n_slots)
    bias: np.ndarray  # (n_slots,) float32
    parents: np.ndarray  # (n_slots,) int32, a smaller slot, or ROOT
    slot_labels: np.ndarray  # (n_slots,) int32, number of a label in `labels`, or NO_LABEL
    tree_starts: np.ndarray  # (n_trees + 1,) int32, first slot of each tree
    link: str
    labels: list[str]
    names: list[str | None]
    knots: np.ndarray  # scores of the calibration curve; empty without one
    probabilities: np.ndarray  # values at the knots
    label_numbers: np.ndarray  # (n_labels,), number of each label in the model

    @property
    def n_trees(self) -> int:
        return len(self.tree_starts) - 1

    def list_levels(self) -> list[np.ndarray]:
        """Return the slots of each level below the first."""
        depth = np.zeros(len(self.parents), np.int64)
        for slot in np.flatnonzero(self.parents != ROOT):  # ascending, so that parents come first
            depth[slot] = depth[self.parents[slot]] + 1
        return [np.flatnonzero(depth == level) for level in range(1, int(depth.max()) + 1)]

    def select_trees(self, n_trees: int) -> LinearArrays:
        """Return the first trees."""
        if not 1 <= n_trees <= self.n_trees:
            raise XmtcError(f"n_trees={n_trees} is out of range; the model has {self.n_trees} label trees.")
        n_slots = int(self.tree_starts[n_trees])
        return replace(
            self,
            weights=csr_array(self.weights[:, :n_slots]),
            bias=self.bias[:n_slots],
            parents=self.parents[:n_slots],
            slot_labels=self.slot_labels[:n_slots],
            tree_starts=self.tree_starts[: n_trees + 1],
        )

    def predict(self, X: csr_array, n_labels: int, k: int = FIRST_STEP_LABELS) -> Predictions:
        """Return the k best labels of feature rows, numbered as in the model, which has n_labels."""
        levels, weights = self.list_levels(), csc_array(self.weights)
        size = max(1, BATCH_CELLS // len(self.bias))
        parts = [
            self._predict_batch(X[begin : begin + size], weights, levels, k) for begin in range(0, X.shape[0], size)
        ]
        raw = Predictions.stack(parts)
        return apply_isotonic_curve(raw, self.knots, self.probabilities) if len(self.knots) else raw

    def _predict_batch(self, X: csr_array, weights: csc_array, levels: list[np.ndarray], k: int) -> Predictions:
        logs = log_link((X @ weights).toarray() + self.bias, self.link)
        for level in levels:
            logs[:, level] += logs[:, self.parents[level]]
        scores = np.zeros((X.shape[0], len(self.labels)), np.float32)
        for begin, end in zip(self.tree_starts[:-1], self.tree_starts[1:], strict=True):
            slots = begin + np.flatnonzero(self.slot_labels[begin:end] != NO_LABEL)
            slots = slots[np.argsort(self.slot_labels[slots])]
            best = rank_columns(logs[:, slots], k if self.n_trees == 1 else FIRST_STEP_LABELS)
            rows = np.arange(len(scores))[:, None]
            scores[rows, self.slot_labels[slots[best]]] += np.exp(logs[rows, slots[best]]) + np.float32(1e-30)
        scores /= self.n_trees
        best = rank_columns(scores, k)
        values = np.take_along_axis(scores, best, axis=1)
        is_known = (np.diff(X.indptr) > 0)[:, None] & (values > 0)
        numbers = np.where(is_known, self.label_numbers[best], NO_LABEL).astype(np.int32)
        return Predictions.from_valid_arrays(numbers, np.where(is_known, values, 0))


def log_link(margins: np.ndarray, link: str) -> np.ndarray:
    """Return log P(slot | parent) of margins."""
    if link == "logistic":
        return -np.logaddexp(np.float32(0), -margins)
    return -(np.maximum(0, 1 - margins) ** (2 if link == "squared_hinge" else 3))


def rank_columns(values: np.ndarray, k: int) -> np.ndarray:
    """Return the columns of the k largest values of each row, largest first; ties rank by column."""
    return np.argsort(-values, axis=1, kind="stable")[:, :k]


def number_parents(trees: list[TreeSlots], starts: np.ndarray) -> np.ndarray:
    """Return the parents of the slots of all trees, which are numbered one tree after the other."""
    shifted = [np.where(tree.parents == ROOT, ROOT, tree.parents + starts[i]) for i, tree in enumerate(trees)]
    return np.concatenate(shifted).astype(np.int32)


def extract_arrays(tagger: Tagger, n_trees: int | None = None) -> LinearArrays:
    """Return the arrays of a linear model; raise XmtcError for another model."""
    tagger.check()
    calibrated, curve = tagger.model, (np.zeros(0), np.zeros(0))
    if isinstance(calibrated, CalibratedModel):
        curve = calibrated.scores, calibrated.probabilities
    model = strip_calibration(calibrated)
    if not isinstance(model, TreeModel):
        raise XmtcError(
            f"{tagger.about['method']} cannot be exported: only linear label trees and one-vs-all models can, such as "
            "those of parabel, bonsai, plt, dismec and ppd-sparse."
        )
    slots = [TreeSlots.from_tree(tree) for tree in model.trees]
    starts = np.concatenate([[0], np.cumsum([tree.n_slots for tree in slots])]).astype(np.int32)
    columns = np.arange(model.n_features)
    weights = [csr_array(unpack_weights(tree, model.n_features, columns).T) for tree in model.trees]
    kept = np.arange(model.n_labels) if tagger.allowed is None else np.flatnonzero(tagger.allowed)
    new_numbers = np.full(model.n_labels + 1, NO_LABEL, np.int32)  # the last entry is for NO_LABEL
    new_numbers[kept] = np.arange(len(kept))
    words = tagger.labels.words()
    labels = [words[number] for number in kept.tolist()]
    arrays = LinearArrays(
        weights=csr_array(hstack(weights, format="csr", dtype=np.float32)),
        bias=np.concatenate([tree.bias for tree in model.trees]),
        parents=number_parents(slots, starts),
        slot_labels=np.concatenate([new_numbers[np.where(tree.labels == NO_LABEL, -1, tree.labels)] for tree in slots]),
        tree_starts=starts,
        link=model.link,
        labels=labels,
        names=[tagger.label_name(label) for label in labels] if tagger.concepts is not None else [None] * len(labels),
        knots=curve[0],
        probabilities=curve[1],
        label_numbers=kept.astype(np.int32),
    )
    return arrays if n_trees is None else arrays.select_trees(n_trees)

"""Ranked answers as two plain padded arrays."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

import numpy as np

from xmtc.core.array_validation import MAX_INDEX, NUMERIC_KINDS, construct_unchecked
from xmtc.core.hyperparameters import to_short_repr
from xmtc.errors import XmtcError

NO_LABEL = -1


@dataclass(frozen=True)
class Predictions:
    """The best labels of each document, best first; NO_LABEL with score 0 where fewer than k were found."""

    labels: np.ndarray  # (n_docs, k) int32, each once in a row
    scores: np.ndarray  # (n_docs, k) float32

    def __post_init__(self) -> None:
        labels, scores = np.asarray(self.labels), np.asarray(self.scores)
        if labels.ndim != 2 or labels.shape != scores.shape:
            raise XmtcError(
                f"Found labels of shape {labels.shape} and scores of shape {scores.shape}; expected both to have a row "
                "for each document, and as many columns."
            )
        object.__setattr__(self, "labels", validate_label_array(labels))
        object.__setattr__(self, "scores", validate_score_array(scores))

    @property
    def n_docs(self) -> int:
        return self.labels.shape[0]

    @property
    def k(self) -> int:
        return self.labels.shape[1]

    def apply_threshold(self, threshold: float) -> Predictions:
        """Only the labels that score at least the threshold; the others become NO_LABEL."""
        check_threshold(threshold)
        with np.errstate(over="ignore"):  # what float32 cannot hold is more than any score
            keep = self.scores >= threshold
        labels, scores = np.where(keep, self.labels, NO_LABEL), np.where(keep, self.scores, 0)
        return Predictions.from_valid_arrays(labels.astype(np.int32, copy=False), scores.astype(np.float32, copy=False))

    def mask_documents(self, rows: np.ndarray) -> Predictions:
        """Of these documents alone (n_docs,) bool; the others get no label."""
        if rows.all():
            return self
        labels, scores = np.where(rows[:, None], self.labels, NO_LABEL), np.where(rows[:, None], self.scores, 0)
        return Predictions.from_valid_arrays(labels.astype(np.int32, copy=False), scores.astype(np.float32, copy=False))

    def keep_best(self, k: int) -> Predictions:
        """The best k of each document alone."""
        return self if k >= self.k else Predictions.from_valid_arrays(self.labels[:, :k], self.scores[:, :k])

    def pad(self, k: int) -> Predictions:
        """The same with k places for each document, of which the further ones are empty."""
        more = ((0, 0), (0, max(0, k - self.k)))
        labels, scores = np.pad(self.labels, more, constant_values=NO_LABEL), np.pad(self.scores, more)
        return Predictions.from_valid_arrays(labels, scores)

    @staticmethod
    def stack(parts: list[Predictions]) -> Predictions:
        """One answer from the answers to consecutive batches of documents."""
        return Predictions.from_valid_arrays(np.vstack([p.labels for p in parts]), np.vstack([p.scores for p in parts]))

    @staticmethod
    def from_valid_arrays(labels: np.ndarray, scores: np.ndarray) -> Predictions:
        """Without a look at them: of models whose code keeps to the contract."""
        return construct_unchecked(Predictions, labels=labels, scores=scores)


def check_k(k: int) -> None:
    """Refuse to name other than a whole number of labels."""
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool):
        raise XmtcError(f"k={to_short_repr(k)} is no number of labels; expected a whole number of at least 1.")
    if k < 1:
        raise XmtcError(f"k={to_short_repr(k)} asks for no labels; expected at least 1.")


def check_threshold(threshold: float) -> None:
    """Refuse what scores cannot be compared with."""
    try:
        fits = isinstance(threshold, (int, float, np.integer, np.floating)) and not isnan(threshold)
    except OverflowError:  # a whole number that no float can hold
        fits = False
    if not fits:
        found = f"threshold={to_short_repr(threshold)}"
        raise XmtcError(f"{found} is no number to compare scores with; expected one such as 0.5.")


def validate_label_array(labels: np.ndarray) -> np.ndarray:
    if labels.size and labels.dtype.kind not in "iu":
        raise XmtcError(f"The labels are of type {labels.dtype}; expected whole numbers, or {NO_LABEL} for none.")
    if labels.size and not (labels.min() >= NO_LABEL and labels.max() <= MAX_INDEX):
        raise XmtcError(
            f"The labels go from {labels.min()} to {labels.max()}; expected their numbers, or {NO_LABEL} for none."
        )
    in_order = np.sort(labels, axis=1)
    twice = (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] != NO_LABEL)
    if twice.any():
        row, column = np.argwhere(twice)[0]
        raise XmtcError(
            f"Label {in_order[row, column]} is named twice for document {row}; expected each label once, best first."
        )
    return np.ascontiguousarray(labels, np.int32)


def validate_score_array(scores: np.ndarray) -> np.ndarray:
    if scores.dtype.kind not in NUMERIC_KINDS:
        raise XmtcError(f"The scores are of type {scores.dtype}; expected numbers.")
    rows = np.argwhere(np.isnan(scores))
    if len(rows):
        raise XmtcError(f"The score of document {rows[0][0]} is nan; expected numbers, 0 where there is no label.")
    return np.ascontiguousarray(scores, np.float32)

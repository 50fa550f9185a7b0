"""Ranked predictions as two padded arrays."""

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
    """Predicted labels and scores of each document, best first.

    Parameters
    ----------
    labels : array of int, shape (n_docs, k)
        Numbers of the labels, each at most once in a row; -1 (`NO_LABEL`) where there are fewer than k.
    scores : array of float, shape (n_docs, k)
        Score of each label; 0 where there is none.

    Raises
    ------
    XmtcError
        If the shapes differ, a label repeats within a row, or a score is NaN.

    Examples
    --------
    >>> Predictions([[4, 2]], [[0.7, 0.2]]).apply_threshold(0.5).labels.tolist()
    [[4, -1]]
    """

    labels: np.ndarray
    scores: np.ndarray

    def __post_init__(self) -> None:
        labels, scores = np.asarray(self.labels), np.asarray(self.scores)
        if labels.ndim != 2 or labels.shape != scores.shape:
            raise XmtcError(
                f"Found labels of shape {labels.shape} and scores of shape {scores.shape}; expected the same "
                "shape (n_docs, k) for both."
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
        """Return a copy in which labels that score below the threshold are replaced by NO_LABEL."""
        check_threshold(threshold)
        with np.errstate(over="ignore"):  # a threshold beyond float32 is above every score
            return self._mask(self.scores >= threshold)

    def mask_documents(self, rows: np.ndarray) -> Predictions:
        """Return a copy with labels for the documents in a boolean mask, shape (n_docs,), only."""
        return self if rows.all() else self._mask(rows[:, None])

    def _mask(self, keep: np.ndarray) -> Predictions:
        labels, scores = np.where(keep, self.labels, NO_LABEL), np.where(keep, self.scores, 0)
        return Predictions.from_valid_arrays(labels.astype(np.int32, copy=False), scores.astype(np.float32, copy=False))

    def keep_best(self, k: int) -> Predictions:
        """Return the best k labels of each document."""
        return self if k >= self.k else Predictions.from_valid_arrays(self.labels[:, :k], self.scores[:, :k])

    def pad(self, k: int) -> Predictions:
        """Return a copy with at least k columns, filled with NO_LABEL."""
        padding = ((0, 0), (0, max(0, k - self.k)))
        labels, scores = np.pad(self.labels, padding, constant_values=NO_LABEL), np.pad(self.scores, padding)
        return Predictions.from_valid_arrays(labels, scores)

    @staticmethod
    def stack(parts: list[Predictions]) -> Predictions:
        """Concatenate the predictions of consecutive batches of documents."""
        return Predictions.from_valid_arrays(np.vstack([p.labels for p in parts]), np.vstack([p.scores for p in parts]))

    @staticmethod
    def from_valid_arrays(labels: np.ndarray, scores: np.ndarray) -> Predictions:
        """Return Predictions of arrays of the right types and values, without validation."""
        return construct_unchecked(Predictions, labels=labels, scores=scores)


def check_k(k: int) -> None:
    """Raise XmtcError unless k is a positive integer."""
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool):
        raise XmtcError(f"k={to_short_repr(k)} is not an integer; expected a number of labels of at least 1.")
    if k < 1:
        raise XmtcError(f"k={to_short_repr(k)} is not positive; expected a number of labels of at least 1.")


def check_threshold(threshold: float) -> None:
    """Raise XmtcError unless the threshold is a number."""
    try:
        is_valid = isinstance(threshold, (int, float, np.integer, np.floating)) and not isnan(threshold)
    except OverflowError:  # an integer beyond the range of float
        is_valid = False
    if not is_valid:
        raise XmtcError(f"threshold={to_short_repr(threshold)} is not a number; expected one such as 0.5.")


def validate_label_array(labels: np.ndarray) -> np.ndarray:
    if labels.size and labels.dtype.kind not in "iu":
        raise XmtcError(f"The labels are of type {labels.dtype}; expected integers, or {NO_LABEL} for no label.")
    if labels.size and not (labels.min() >= NO_LABEL and labels.max() <= MAX_INDEX):
        raise XmtcError(
            f"The labels range from {labels.min()} to {labels.max()}; expected 0 or more, or {NO_LABEL} for no label."
        )
    ordered = np.sort(labels, axis=1)
    is_duplicate = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_LABEL)
    if is_duplicate.any():
        row, column = np.argwhere(is_duplicate)[0]
        raise XmtcError(
            f"Label {ordered[row, column]} is predicted twice for document {row}; expected each label once, best first."
        )
    return np.ascontiguousarray(labels, np.int32)


def validate_score_array(scores: np.ndarray) -> np.ndarray:
    if scores.dtype.kind not in NUMERIC_KINDS:
        raise XmtcError(f"The scores are of type {scores.dtype}; expected numbers.")
    rows = np.argwhere(np.isnan(scores))
    if len(rows):
        raise XmtcError(f"A score of document {rows[0][0]} is nan; expected numbers, and 0 where there is no label.")
    return np.ascontiguousarray(scores, np.float32)

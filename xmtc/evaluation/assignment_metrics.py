"""Precision, recall and F1 of the labels that are given: over all assignments, over labels, over documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmtc.core.predictions import NO_LABEL
from xmtc.evaluation.ranked_results import RankedResults

PrecisionRecallF1 = tuple[float, float, float]


@dataclass(frozen=True)
class AssignmentMetrics:
    """Of the labels that are given: how many are right, how many of the true ones are found, and both together; over
    all assignments, as a mean over labels, and as a mean over documents."""

    micro: PrecisionRecallF1
    macro: PrecisionRecallF1
    by_document: PrecisionRecallF1
    labels_per_document: float  # of a document, on average


def compute_assignment_metrics(decided: RankedResults) -> AssignmentMetrics:
    """Of predictions all of which are given."""
    right, given, true = count_by_label(decided)
    of_labels = (given + true) > 0
    n_right, n_given, n_true = count_by_document(decided)
    return AssignmentMetrics(
        micro=compute_precision_recall_f1(right.sum(), given.sum(), true.sum()),
        macro=average_precision_recall_f1(right[of_labels], given[of_labels], true[of_labels]),
        by_document=average_precision_recall_f1(n_right, n_given, n_true),
        labels_per_document=float(n_given.mean()),
    )


def count_by_label(decided: RankedResults) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n_labels,) each: how often a label is given and right, given, and true."""
    labels, size = decided.predictions.labels, decided.n_labels
    right = np.bincount(labels[decided.hits], minlength=size)
    return right, np.bincount(labels[labels != NO_LABEL], minlength=size), decided.frequencies


def count_by_document(decided: RankedResults) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n_docs,) each: how many labels of a document are given and right, given, and true."""
    return decided.hits.sum(axis=1), (decided.predictions.labels != NO_LABEL).sum(axis=1), decided.n_true


def compute_precision_recall_f1(right: float, given: float, true: float) -> PrecisionRecallF1:
    """Precision, recall and F1."""
    return float(right / max(given, 1)), float(right / max(true, 1)), float(2 * right / max(given + true, 1))


def average_precision_recall_f1(right: np.ndarray, given: np.ndarray, true: np.ndarray) -> PrecisionRecallF1:
    if not len(right):
        return 0.0, 0.0, 0.0
    each = right / np.maximum(given, 1), right / np.maximum(true, 1), f1(right, given, true)
    return float(each[0].mean()), float(each[1].mean()), float(each[2].mean())


def f1(right: np.ndarray, given: np.ndarray, true: np.ndarray) -> np.ndarray:
    """2 right / (given + true); 0 where nothing is true and nothing given."""
    return 2 * right / np.maximum(given + true, 1)

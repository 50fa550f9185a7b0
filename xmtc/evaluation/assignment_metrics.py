"""Precision, recall and F1 of assigned labels: over all assignments, averaged over labels and over documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmtc.core.predictions import NO_LABEL
from xmtc.evaluation.ranked_results import RankedResults

PrecisionRecallF1 = tuple[float, float, float]


@dataclass(frozen=True)
class AssignmentMetrics:
    """Precision, recall and F1 of assigned labels, averaged in three ways."""

    micro: PrecisionRecallF1  # over all assignments
    macro: PrecisionRecallF1  # mean over the labels that are assigned or true
    by_document: PrecisionRecallF1  # mean over documents
    labels_per_document: float  # mean number of assigned labels


def compute_assignment_metrics(results: RankedResults) -> AssignmentMetrics:
    """Return the metrics of results whose predictions all count as assigned."""
    right, assigned, true = count_by_label(results)
    is_present = (assigned + true) > 0
    n_right, n_assigned, n_true = count_by_document(results)
    return AssignmentMetrics(
        micro=compute_precision_recall_f1(right.sum(), assigned.sum(), true.sum()),
        macro=average_precision_recall_f1(right[is_present], assigned[is_present], true[is_present]),
        by_document=average_precision_recall_f1(n_right, n_assigned, n_true),
        labels_per_document=float(n_assigned.mean()),
    )


def count_by_label(results: RankedResults) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how often each label is assigned correctly, assigned, and true; shape (n_labels,) each."""
    labels, size = results.predictions.labels, results.n_labels
    right = np.bincount(labels[results.hits], minlength=size)
    return right, np.bincount(labels[labels != NO_LABEL], minlength=size), results.frequencies


def count_by_document(results: RankedResults) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many labels of each document are assigned correctly, assigned, and true; shape (n_docs,) each."""
    return results.hits.sum(axis=1), (results.predictions.labels != NO_LABEL).sum(axis=1), results.n_true


def compute_precision_recall_f1(right: float, assigned: float, true: float) -> PrecisionRecallF1:
    return float(right / max(assigned, 1)), float(right / max(true, 1)), float(2 * right / max(assigned + true, 1))


def average_precision_recall_f1(right: np.ndarray, assigned: np.ndarray, true: np.ndarray) -> PrecisionRecallF1:
    if not len(right):
        return 0.0, 0.0, 0.0
    precisions, recalls = right / np.maximum(assigned, 1), right / np.maximum(true, 1)
    return float(precisions.mean()), float(recalls.mean()), float(f1(right, assigned, true).mean())


def f1(right: np.ndarray, assigned: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Return 2 right / (assigned + true); 0 where both are 0."""
    return 2 * right / np.maximum(assigned + true, 1)

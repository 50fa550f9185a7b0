"""Metrics of assigned labels: precision, recall and F1 over all assignments (micro), averaged over labels (macro) and
averaged over documents (example).

Assigned are the labels that score at least a threshold, of the EVALUATION_DEPTH best of each document; or, with
`@decision`, those that the model's tuned thresholds select.
"""

from __future__ import annotations

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.assignment_metrics import AssignmentMetrics, compute_assignment_metrics, count_by_document, f1
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import DECISION, SCORE_PARAMETER, register_metric


@register_metric("micro-P", parameter=SCORE_PARAMETER)
def micro_precision(results: RankedResults, threshold: float | str) -> float:
    """Precision over all assignments of labels at a score threshold or at the tuned thresholds."""
    return compute_metrics_at(results, threshold).micro[0]


@register_metric("micro-R", parameter=SCORE_PARAMETER)
def micro_recall(results: RankedResults, threshold: float | str) -> float:
    """Recall over all assignments."""
    return compute_metrics_at(results, threshold).micro[1]


@register_metric("micro-F1", parameter=SCORE_PARAMETER)
def micro_f1(results: RankedResults, threshold: float | str) -> float:
    """F1 over all assignments."""
    return compute_metrics_at(results, threshold).micro[2]


@register_metric("macro-P", parameter=SCORE_PARAMETER)
def macro_precision(results: RankedResults, threshold: float | str) -> float:
    """Precision of the assigned labels, averaged over labels."""
    return compute_metrics_at(results, threshold).macro[0]


@register_metric("macro-R", parameter=SCORE_PARAMETER)
def macro_recall(results: RankedResults, threshold: float | str) -> float:
    """Recall of the assigned labels, averaged over labels."""
    return compute_metrics_at(results, threshold).macro[1]


@register_metric("macro-F1", parameter=SCORE_PARAMETER)
def macro_f1(results: RankedResults, threshold: float | str) -> float:
    """F1 of the assigned labels, averaged over labels."""
    return compute_metrics_at(results, threshold).macro[2]


@register_metric("example-P", parameter=SCORE_PARAMETER, is_per_document=True)
def example_precision(results: RankedResults, threshold: float | str) -> np.ndarray:
    """Precision of the assigned labels, averaged over documents."""
    right, n_assigned, _ = count_by_document(select_assigned(results, threshold))
    return right / np.maximum(n_assigned, 1)


@register_metric("example-R", parameter=SCORE_PARAMETER, is_per_document=True)
def example_recall(results: RankedResults, threshold: float | str) -> np.ndarray:
    """Recall of the assigned labels, averaged over documents."""
    right, _, true = count_by_document(select_assigned(results, threshold))
    return right / np.maximum(true, 1)


@register_metric("example-F1", parameter=SCORE_PARAMETER, is_per_document=True)
def example_f1(results: RankedResults, threshold: float | str) -> np.ndarray:
    """F1 of the assigned labels, averaged over documents."""
    return f1(*count_by_document(select_assigned(results, threshold)))


def compute_metrics_at(results: RankedResults, threshold: float | str) -> AssignmentMetrics:
    return compute_assignment_metrics(select_assigned(results, threshold))


def select_assigned(results: RankedResults, threshold: float | str) -> RankedResults:
    """Return the results with only the assigned labels."""
    if threshold != DECISION:
        return results.apply_threshold(float(threshold))
    if results.assigned is None:
        raise XmtcError(
            "Metrics at @decision need tuned thresholds, and the model has none; tune them with "
            "`xmtc thresholds MODEL VALID`."
        )
    return RankedResults(results.assigned, results.Y)

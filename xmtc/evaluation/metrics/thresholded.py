"""Measures of the labels that are given: precision, recall and F1 over all assignments (micro), as a mean over labels
(macro) and as a mean over documents (example).

Given are the labels that score at least a threshold, of the DEPTH best of each document; or those that the model's own
decision gives."""

from __future__ import annotations

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.assignment_metrics import AssignmentMetrics, compute_assignment_metrics, count_by_document, f1
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import DECISION, SCORE_PARAMETER, register_metric


@register_metric("micro-P", parameter=SCORE_PARAMETER)
def micro_precision(judged: RankedResults, at: float | str) -> float:
    """Precision of the labels that score at least so much, or that the decision gives, over all assignments."""
    return compute_metrics_at(judged, at).micro[0]


@register_metric("micro-R", parameter=SCORE_PARAMETER)
def micro_recall(judged: RankedResults, at: float | str) -> float:
    """Recall of the labels that are given, over all assignments."""
    return compute_metrics_at(judged, at).micro[1]


@register_metric("micro-F1", parameter=SCORE_PARAMETER)
def micro_f1(judged: RankedResults, at: float | str) -> float:
    """F1 of the labels that are given, over all assignments."""
    return compute_metrics_at(judged, at).micro[2]


@register_metric("macro-P", parameter=SCORE_PARAMETER)
def macro_precision(judged: RankedResults, at: float | str) -> float:
    """Precision of the labels that are given, as a mean over labels."""
    return compute_metrics_at(judged, at).macro[0]


@register_metric("macro-R", parameter=SCORE_PARAMETER)
def macro_recall(judged: RankedResults, at: float | str) -> float:
    """Recall of the labels that are given, as a mean over labels."""
    return compute_metrics_at(judged, at).macro[1]


@register_metric("macro-F1", parameter=SCORE_PARAMETER)
def macro_f1(judged: RankedResults, at: float | str) -> float:
    """F1 of the labels that are given, as a mean over labels."""
    return compute_metrics_at(judged, at).macro[2]


@register_metric("example-P", parameter=SCORE_PARAMETER, is_per_document=True)
def example_precision(judged: RankedResults, at: float | str) -> np.ndarray:
    """Precision of the labels that are given, as a mean over documents."""
    right, n_given, _ = count_by_document(select_assigned(judged, at))
    return right / np.maximum(n_given, 1)


@register_metric("example-R", parameter=SCORE_PARAMETER, is_per_document=True)
def example_recall(judged: RankedResults, at: float | str) -> np.ndarray:
    """Recall of the labels that are given, as a mean over documents."""
    right, _, true = count_by_document(select_assigned(judged, at))
    return right / np.maximum(true, 1)


@register_metric("example-F1", parameter=SCORE_PARAMETER, is_per_document=True)
def example_f1(judged: RankedResults, at: float | str) -> np.ndarray:
    """F1 of the labels that are given, as a mean over documents."""
    return f1(*count_by_document(select_assigned(judged, at)))


def compute_metrics_at(judged: RankedResults, at: float | str) -> AssignmentMetrics:
    return compute_assignment_metrics(select_assigned(judged, at))


def select_assigned(judged: RankedResults, at: float | str) -> RankedResults:
    """The labels that are given, beside the truth."""
    if at != DECISION:
        return judged.apply_threshold(float(at))
    if judged.assigned is None:
        raise XmtcError(
            "Measures at a decision need one, and there is none; `xmtc thresholds MODEL VALID` gives a model one."
        )
    return RankedResults(judged.assigned, judged.Y)

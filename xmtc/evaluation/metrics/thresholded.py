"""Measures of the labels that are given: precision, recall and F1 over all assignments (micro), as a mean over labels
(macro) and as a mean over documents (example).

Given are the labels that score at least a threshold, of the DEPTH best of each document; or those that the model's own
decision gives."""

from __future__ import annotations

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.assignment_metrics import Decided, decided_figures, document_counts, f1
from xmtc.evaluation.ranked_results import Judged
from xmtc.evaluation.registry import DECISION, SCORE, measure


@measure("micro-P", at=SCORE)
def micro_precision(judged: Judged, at: float | str) -> float:
    """Precision of the labels that score at least so much, or that the decision gives, over all assignments."""
    return decided(judged, at).micro[0]


@measure("micro-R", at=SCORE)
def micro_recall(judged: Judged, at: float | str) -> float:
    """Recall of the labels that are given, over all assignments."""
    return decided(judged, at).micro[1]


@measure("micro-F1", at=SCORE)
def micro_f1(judged: Judged, at: float | str) -> float:
    """F1 of the labels that are given, over all assignments."""
    return decided(judged, at).micro[2]


@measure("macro-P", at=SCORE)
def macro_precision(judged: Judged, at: float | str) -> float:
    """Precision of the labels that are given, as a mean over labels."""
    return decided(judged, at).macro[0]


@measure("macro-R", at=SCORE)
def macro_recall(judged: Judged, at: float | str) -> float:
    """Recall of the labels that are given, as a mean over labels."""
    return decided(judged, at).macro[1]


@measure("macro-F1", at=SCORE)
def macro_f1(judged: Judged, at: float | str) -> float:
    """F1 of the labels that are given, as a mean over labels."""
    return decided(judged, at).macro[2]


@measure("example-P", at=SCORE, per_document=True)
def example_precision(judged: Judged, at: float | str) -> np.ndarray:
    """Precision of the labels that are given, as a mean over documents."""
    right, n_given, _ = document_counts(given(judged, at))
    return right / np.maximum(n_given, 1)


@measure("example-R", at=SCORE, per_document=True)
def example_recall(judged: Judged, at: float | str) -> np.ndarray:
    """Recall of the labels that are given, as a mean over documents."""
    right, _, true = document_counts(given(judged, at))
    return right / np.maximum(true, 1)


@measure("example-F1", at=SCORE, per_document=True)
def example_f1(judged: Judged, at: float | str) -> np.ndarray:
    """F1 of the labels that are given, as a mean over documents."""
    return f1(*document_counts(given(judged, at)))


def decided(judged: Judged, at: float | str) -> Decided:
    return decided_figures(given(judged, at))


def given(judged: Judged, at: float | str) -> Judged:
    """The labels that are given, beside the truth."""
    if at != DECISION:
        return judged.above(float(at))
    if judged.given is None:
        raise XmtcError(
            "Measures at a decision need one, and there is none; `xmtc thresholds MODEL VALID` gives a model one."
        )
    return Judged(judged.given, judged.Y)

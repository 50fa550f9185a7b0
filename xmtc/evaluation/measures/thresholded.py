"""Measures of the labels that score at least a threshold: micro-F1 and macro-F1.

Whatever the threshold, they see the DEPTH best predictions of each document."""

from __future__ import annotations

import numpy as np

from xmtc.base.predictions import NO_LABEL
from xmtc.evaluation.judged import Judged
from xmtc.evaluation.registry import SCORE, measure


@measure("micro-F1", at=SCORE)
def micro_f1(judged: Judged, threshold: float) -> float:
    """F1 of the labels that score at least the threshold, over all decisions."""
    right, predicted = label_counts(judged, threshold)
    return float(2 * right.sum() / max(predicted.sum() + judged.frequencies.sum(), 1))


@measure("macro-F1", at=SCORE)
def macro_f1(judged: Judged, threshold: float) -> float:
    """F1 of the labels that score at least the threshold, as a mean over labels."""
    right, predicted = label_counts(judged, threshold)
    total = predicted + judged.frequencies
    present = total > 0
    return float(np.mean(2 * right[present] / total[present])) if present.any() else 0.0


def label_counts(judged: Judged, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """(n_labels,) twice: how often each label scores at least the threshold and is right, and how often at all."""
    labels = judged.predictions.above(threshold).labels
    predicted = labels != NO_LABEL

    right = np.bincount(labels[predicted & judged.hits], minlength=judged.n_labels)
    return right, np.bincount(labels[predicted], minlength=judged.n_labels)

"""Calibration metrics: expected calibration error (ECE)."""

from __future__ import annotations

import numpy as np

from xmtc.core.predictions import NO_LABEL
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric

BINS = 10


@register_metric("ECE", parameter=K_PARAMETER, is_error=True)
def calibration_error(results: RankedResults, k: int) -> float:
    """Expected calibration error: mean difference between score and precision over ten bins; lower is better."""
    is_predicted = results.predictions.labels[:, :k] != NO_LABEL
    scores, is_correct = results.predictions.scores[:, :k][is_predicted], results.hits[:, :k][is_predicted]
    gaps = np.bincount(assign_bins(scores), scores - is_correct, minlength=BINS)  # (mean score − precision) × bin size
    return float(np.abs(gaps).sum() / max(len(scores), 1))


def assign_bins(scores: np.ndarray) -> np.ndarray:
    """Return the bin of each score, of BINS equal bins from 0 to 1."""
    return np.clip(scores * np.float32(BINS), 0, BINS - 1).astype(np.int64)  # in float32, where 10 × 0.9 is 9

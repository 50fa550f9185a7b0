"""Whether scores are the probabilities that they look like: ECE."""

from __future__ import annotations

import numpy as np

from xmtc.core.predictions import NO_LABEL
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric

BINS = 10


@register_metric("ECE", parameter=K_PARAMETER, is_error=True)
def calibration_error(judged: RankedResults, k: int) -> float:
    """How far scores are from how often they are right, in ten equal bins; less is better."""
    scores, named = judged.predictions.scores[:, :k], judged.predictions.labels[:, :k] != NO_LABEL
    scores, right = scores[named], judged.hits[:, :k][named]
    gaps = np.bincount(
        assign_bins(scores), scores - right, minlength=BINS
    )  # of a bin: (mean score − share right) × how many
    return float(np.abs(gaps).sum() / max(len(scores), 1))


def assign_bins(scores: np.ndarray) -> np.ndarray:
    """The bin of each score, of ten that are equally wide."""
    return np.clip(scores * np.float32(BINS), 0, BINS - 1).astype(np.int64)  # in float32, where 10 × 0.9 is 9

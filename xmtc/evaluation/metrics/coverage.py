"""How many of the labels are found at all: coverage."""

from __future__ import annotations

import numpy as np

from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric


@register_metric("coverage", parameter=K_PARAMETER)
def coverage(judged: RankedResults, k: int) -> float:
    """Share of the test set's labels that were found at least once."""
    found = np.unique(judged.predictions.labels[:, :k][judged.hits[:, :k]])
    return len(found) / max(int(np.count_nonzero(judged.frequencies)), 1)

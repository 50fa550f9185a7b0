"""How many of the labels are found at all: coverage."""

from __future__ import annotations

import numpy as np

from xmtc.evaluation.ranked_results import Judged
from xmtc.evaluation.registry import K, measure


@measure("coverage", at=K)
def coverage(judged: Judged, k: int) -> float:
    """Share of the test set's labels that were found at least once."""
    found = np.unique(judged.predictions.labels[:, :k][judged.hits[:, :k]])
    return len(found) / max(int(np.count_nonzero(judged.frequencies)), 1)

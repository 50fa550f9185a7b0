"""Recall of labels with few training documents: unseen (none) and rare (1 to 5).

Documents without such labels are not counted. To be means over all documents, as a paired comparison needs, the values
of the counted documents are divided by their share.
"""

from __future__ import annotations

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric

FREQUENCY_BANDS = {"unseen": (0, 0), "rare": (1, 5)}  # least and most training documents of the labels, by metric


@register_metric("unseen", parameter=K_PARAMETER, is_per_document=True)
def unseen_recall(results: RankedResults, k: int) -> np.ndarray:
    """Recall of labels without training documents among the first k predictions."""
    return divide_by_counted_share(*compute_band_recalls(results, k, "unseen"))


@register_metric("rare", parameter=K_PARAMETER, is_per_document=True)
def rare_recall(results: RankedResults, k: int) -> np.ndarray:
    """Recall of labels with 1 to 5 training documents among the first k predictions."""
    return divide_by_counted_share(*compute_band_recalls(results, k, "rare"))


def compute_band_recalls(results: RankedResults, k: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the recall of the labels of a metric for each document, and 1 for documents that have such labels."""
    if results.train_frequencies is None:
        raise XmtcError("unseen and rare need train_frequencies; pass the number of training documents of each label.")
    least, most = FREQUENCY_BANDS[metric]
    is_in_band = (results.train_frequencies >= least) & (results.train_frequencies <= most)
    n_true = np.bincount(results.true_rows, is_in_band[results.Y.indices], minlength=results.n_docs)
    hits = results.hits[:, :k]
    labels = np.where(hits, results.predictions.labels[:, :k], 0)  # a missing prediction is no label
    n_found = (hits & is_in_band[labels]).sum(axis=1)
    return n_found / np.maximum(n_true, 1), (n_true > 0).astype(float)


def divide_by_counted_share(recalls: np.ndarray, is_counted: np.ndarray) -> np.ndarray:
    return recalls / is_counted.mean() if is_counted.any() else np.full(len(recalls), np.nan)

"""Metrics of the first k predictions of each document, averaged over documents: P, R, nDCG; and coverage.

A document without labels counts 0 in the mean; a missing prediction counts as incorrect.
"""

from __future__ import annotations

import numpy as np

from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric


@register_metric("P", parameter=K_PARAMETER, is_per_document=True)
def precision(results: RankedResults, k: int) -> np.ndarray:
    """Fraction of the first k predictions that are correct."""
    return results.hits[:, :k].sum(axis=1) / k


@register_metric("R", parameter=K_PARAMETER, is_per_document=True)
def recall(results: RankedResults, k: int) -> np.ndarray:
    """Fraction of the true labels that are among the first k predictions."""
    return results.hits[:, :k].sum(axis=1) / np.maximum(results.n_true, 1)


@register_metric("nDCG", parameter=K_PARAMETER, is_per_document=True)
def ndcg(results: RankedResults, k: int) -> np.ndarray:
    """Normalised discounted cumulative gain: P@k in which higher ranks count more."""
    dcg = results.hits[:, :k] @ discounts(k)[: results.predictions.k]
    return dcg / ideal_dcg(results, k)


def discounts(k: int) -> np.ndarray:
    """Return the weight of each rank, shape (k,)."""
    return 1 / np.log2(np.arange(2, k + 2))


def ideal_dcg(results: RankedResults, k: int) -> np.ndarray:
    """Return the DCG of a perfect ranking of each document; 1 without true labels, where the gain is 0."""
    ideal = np.append(1.0, np.cumsum(discounts(k)))  # by number of true labels
    return ideal[np.minimum(results.n_true, k)]


@register_metric("coverage", parameter=K_PARAMETER)
def coverage(results: RankedResults, k: int) -> float:
    """Fraction of the labels of the test set that are predicted correctly at least once."""
    labels = np.unique(results.predictions.labels[:, :k][results.hits[:, :k]])
    return len(labels) / max(int(np.count_nonzero(results.frequencies)), 1)

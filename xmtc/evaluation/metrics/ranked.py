"""Measures of the first k predictions of each document, as a mean over documents: P, R, nDCG.

A document without labels counts 0 and stays in the mean; a missing prediction is a wrong one."""

from __future__ import annotations

import numpy as np

from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric


@register_metric("P", parameter=K_PARAMETER, is_per_document=True)
def precision(judged: RankedResults, k: int) -> np.ndarray:
    """Share of the first k predictions that are right."""
    return judged.hits[:, :k].sum(axis=1) / k


@register_metric("R", parameter=K_PARAMETER, is_per_document=True)
def recall(judged: RankedResults, k: int) -> np.ndarray:
    """Share of the document's labels found among the first k."""
    return judged.hits[:, :k].sum(axis=1) / np.maximum(judged.n_true, 1)


@register_metric("nDCG", parameter=K_PARAMETER, is_per_document=True)
def ndcg(judged: RankedResults, k: int) -> np.ndarray:
    """As P@k, but a hit counts more the higher it ranks."""
    dcg = judged.hits[:, :k] @ discounts(k)[: judged.predictions.k]
    return dcg / ideal_dcg(judged, k)


def discounts(k: int) -> np.ndarray:
    """(k,) the weight of each rank."""
    return 1 / np.log2(np.arange(2, k + 2))


def ideal_dcg(judged: RankedResults, k: int) -> np.ndarray:
    """(n_docs,) what a perfect ranking reaches; 1 for a document without labels, whose gain is 0 anyway."""
    ideal = np.append(1.0, np.cumsum(discounts(k)))  # by number of true labels
    return ideal[np.minimum(judged.n_true, k)]


@register_metric("coverage", parameter=K_PARAMETER)
def coverage(judged: RankedResults, k: int) -> float:
    """Share of the test set's labels that were found at least once."""
    found = np.unique(judged.predictions.labels[:, :k][judged.hits[:, :k]])
    return len(found) / max(int(np.count_nonzero(judged.frequencies)), 1)

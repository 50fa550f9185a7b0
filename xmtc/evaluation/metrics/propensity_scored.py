"""Ranked measures in which a rare label counts more: PSP, PSnDCG, rawPSP.

A hit counts the inverse of the label's propensity (xmtc/labels/propensity.py). The sums of PSP and PSnDCG run over all
documents before they are divided, so that a perfect ranking reaches 1; rawPSP is not divided by what is reachable."""

from __future__ import annotations

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.metrics.ranked import discounts, ideal_dcg
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric


@register_metric("PSP", parameter=K_PARAMETER, is_per_document=True)
def psp(judged: RankedResults, k: int) -> np.ndarray:
    """As P@k, but a rare label counts more."""
    return compute_propensity_scored(judged, rank_weights=np.ones(k), ideal=np.ones(1))


@register_metric("PSnDCG", parameter=K_PARAMETER, is_per_document=True)
def psndcg(judged: RankedResults, k: int) -> np.ndarray:
    """As nDCG@k, but a rare label counts more."""
    return compute_propensity_scored(judged, rank_weights=discounts(k), ideal=ideal_dcg(judged, k))


@register_metric("rawPSP", parameter=K_PARAMETER, is_per_document=True)
def raw_psp(judged: RankedResults, k: int) -> np.ndarray:
    """PSP@k before it is divided by the best reachable value, so that it may be above 1."""
    return compute_gain(judged, require_inverse_propensities(judged), np.ones(k)) / k


def require_inverse_propensities(judged: RankedResults) -> np.ndarray:
    if judged.inverse_propensities is None:
        measures = "PSP, PSnDCG and rawPSP"
        raise XmtcError(f"{measures} need train_frequencies and n_train, the label counts of the training set.")
    return judged.inverse_propensities


def compute_propensity_scored(judged: RankedResults, rank_weights: np.ndarray, ideal: np.ndarray) -> np.ndarray:
    """(n_docs,) each document's gain over the mean of the best possible gains. The mean of these values is
    sum(gain) / sum(best gain)."""
    gained, best = compute_gains(judged, rank_weights, ideal)
    return gained / best.mean() if best.any() else np.zeros(judged.n_docs)


def compute_gains(judged: RankedResults, rank_weights: np.ndarray, ideal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n_docs,) twice: each document's gain, and the best possible one."""
    inverse = require_inverse_propensities(judged)
    return (
        compute_gain(judged, inverse, rank_weights) / ideal,
        compute_best_gain(judged, inverse, rank_weights) / ideal,
    )


def compute_gain(judged: RankedResults, inverse: np.ndarray, rank_weights: np.ndarray) -> np.ndarray:
    """(n_docs,) weighted sum of the inverse propensities of the right predictions."""
    k = len(rank_weights)
    hits = judged.hits[:, :k]

    labels = np.where(hits, judged.predictions.labels[:, :k], 0)  # a wrong label may have no propensity
    return np.where(hits, inverse[labels], 0.0) @ rank_weights[: judged.predictions.k]


def compute_best_gain(judged: RankedResults, inverse: np.ndarray, rank_weights: np.ndarray) -> np.ndarray:
    """(n_docs,) the gain of a ranking of the true labels, rarest first."""
    rows = judged.true_rows
    values = inverse[judged.Y.indices]
    values = values[np.lexsort((-values, rows))]

    rank = np.arange(len(rows)) - judged.Y.indptr[rows]
    weights = np.append(rank_weights, 0.0)[np.minimum(rank, len(rank_weights))]
    return np.bincount(rows, values * weights, minlength=judged.n_docs)

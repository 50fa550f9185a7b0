"""Propensity-scored ranking metrics, in which a rare label counts more: PSP, PSnDCG, rawPSP.

A correct prediction counts the inverse propensity of its label (xmtc/labels/propensity.py). PSP and PSnDCG are divided
by the best possible value, summed over all documents, so that a perfect ranking reaches 1; rawPSP is not.
"""

from __future__ import annotations

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.metrics.ranked import discounts, ideal_dcg
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric


@register_metric("PSP", parameter=K_PARAMETER, is_per_document=True)
def psp(results: RankedResults, k: int) -> np.ndarray:
    """P@k weighted by inverse propensity, so that rare labels count more."""
    return compute_propensity_scored(results, rank_weights=np.ones(k), ideal=np.ones(1))


@register_metric("PSnDCG", parameter=K_PARAMETER, is_per_document=True)
def psndcg(results: RankedResults, k: int) -> np.ndarray:
    """nDCG@k weighted by inverse propensity, so that rare labels count more."""
    return compute_propensity_scored(results, rank_weights=discounts(k), ideal=ideal_dcg(results, k))


@register_metric("rawPSP", parameter=K_PARAMETER, is_per_document=True)
def raw_psp(results: RankedResults, k: int) -> np.ndarray:
    """PSP@k before the division by the best possible value; may be above 1."""
    return compute_gain(results, require_inverse_propensities(results), np.ones(k)) / k


def require_inverse_propensities(results: RankedResults) -> np.ndarray:
    if results.inverse_propensities is None:
        raise XmtcError(
            "PSP, PSnDCG and rawPSP need train_frequencies and n_train; pass the label counts and the number of "
            "documents of the training set."
        )
    return results.inverse_propensities


def compute_propensity_scored(results: RankedResults, rank_weights: np.ndarray, ideal: np.ndarray) -> np.ndarray:
    """Return the gain of each document divided by the mean of the best possible gains, so that the mean is
    sum(gain) / sum(best gain)."""
    gains, best = compute_gains(results, rank_weights, ideal)
    return gains / best.mean() if best.any() else np.zeros(results.n_docs)


def compute_gains(results: RankedResults, rank_weights: np.ndarray, ideal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the gain of each document and the best possible one, shape (n_docs,) each."""
    inverse = require_inverse_propensities(results)
    return (
        compute_gain(results, inverse, rank_weights) / ideal,
        compute_best_gain(results, inverse, rank_weights) / ideal,
    )


def compute_gain(results: RankedResults, inverse: np.ndarray, rank_weights: np.ndarray) -> np.ndarray:
    """Return the weighted sum of the inverse propensities of the correct predictions of each document."""
    k = len(rank_weights)
    hits = results.hits[:, :k]

    labels = np.where(hits, results.predictions.labels[:, :k], 0)  # an incorrect label may have no propensity
    return np.where(hits, inverse[labels], 0.0) @ rank_weights[: results.predictions.k]


def compute_best_gain(results: RankedResults, inverse: np.ndarray, rank_weights: np.ndarray) -> np.ndarray:
    """Return the gain of each document if its true labels were ranked rarest first."""
    rows = results.true_rows
    values = inverse[results.Y.indices]
    values = values[np.lexsort((-values, rows))]

    rank = np.arange(len(rows)) - results.Y.indptr[rows]
    weights = np.append(rank_weights, 0.0)[np.minimum(rank, len(rank_weights))]
    return np.bincount(rows, values * weights, minlength=results.n_docs)

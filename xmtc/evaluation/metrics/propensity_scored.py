"""Ranked measures in which a rare label counts more: PSP, PSnDCG, rawPSP.

A hit counts the inverse of the label's propensity (xmtc/labels/propensity.py). The sums of PSP and PSnDCG run over all
documents before they are divided, so that a perfect ranking reaches 1; rawPSP is not divided by what is reachable."""

from __future__ import annotations

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.metrics.ranked import discounts, ideal_dcg
from xmtc.evaluation.ranked_results import Judged
from xmtc.evaluation.registry import K, measure


@measure("PSP", at=K, per_document=True)
def psp(judged: Judged, k: int) -> np.ndarray:
    """As P@k, but a rare label counts more."""
    return propensity_scored(judged, rank_weights=np.ones(k), ideal=np.ones(1))


@measure("PSnDCG", at=K, per_document=True)
def psndcg(judged: Judged, k: int) -> np.ndarray:
    """As nDCG@k, but a rare label counts more."""
    return propensity_scored(judged, rank_weights=discounts(k), ideal=ideal_dcg(judged, k))


@measure("rawPSP", at=K, per_document=True)
def raw_psp(judged: Judged, k: int) -> np.ndarray:
    """PSP@k before it is divided by the best reachable value, so that it may be above 1."""
    return gain(judged, inverse_propensities(judged), np.ones(k)) / k


def inverse_propensities(judged: Judged) -> np.ndarray:
    if judged.inverse_propensities is None:
        measures = "PSP, PSnDCG and rawPSP"
        raise XmtcError(f"{measures} need train_frequencies and n_train, the label counts of the training set.")
    return judged.inverse_propensities


def propensity_scored(judged: Judged, rank_weights: np.ndarray, ideal: np.ndarray) -> np.ndarray:
    """(n_docs,) each document's gain over the mean of the best possible gains. The mean of these values is
    sum(gain) / sum(best gain)."""
    gained, best = gains(judged, rank_weights, ideal)
    return gained / best.mean() if best.any() else np.zeros(judged.n_docs)


def gains(judged: Judged, rank_weights: np.ndarray, ideal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n_docs,) twice: each document's gain, and the best possible one."""
    inverse = inverse_propensities(judged)
    return (
        gain(judged, inverse, rank_weights) / ideal,
        best_gain(judged, inverse, rank_weights) / ideal,
    )


def gain(judged: Judged, inverse: np.ndarray, rank_weights: np.ndarray) -> np.ndarray:
    """(n_docs,) weighted sum of the inverse propensities of the right predictions."""
    k = len(rank_weights)
    hits = judged.hits[:, :k]

    labels = np.where(hits, judged.predictions.labels[:, :k], 0)  # a wrong label may have no propensity
    return np.where(hits, inverse[labels], 0.0) @ rank_weights[: judged.predictions.k]


def best_gain(judged: Judged, inverse: np.ndarray, rank_weights: np.ndarray) -> np.ndarray:
    """(n_docs,) the gain of a ranking of the true labels, rarest first."""
    rows = judged.true_rows
    values = inverse[judged.Y.indices]
    values = values[np.lexsort((-values, rows))]

    rank = np.arange(len(rows)) - judged.Y.indptr[rows]
    weights = np.append(rank_weights, 0.0)[np.minimum(rank, len(rank_weights))]
    return np.bincount(rows, values * weights, minlength=judged.n_docs)

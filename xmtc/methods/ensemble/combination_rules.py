"""Rules that combine the predictions of several models: their mean, or noisy-or.

Noisy-or is equation 9 of the first version of AttentionXML (You et al. 2018): P = 1 − Π (1 − P_i).
"""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.linear.search import rank_by_mean

MEAN, NOISY_OR = RULES = ("mean", "noisy-or")
FLOAT32_EPSNEG = float(np.finfo(np.float32).epsneg)  # distance from 1 to the next smaller float32


def combine_predictions(predictions: list[Predictions], rule: str, n_labels: int, k: int) -> Predictions:
    """Return the k best labels of each document by all models' predictions; ties are broken by label number."""
    with np.errstate(divide="ignore"):  # scores of 0 and 1 give infinite logarithms, which is correct here
        if rule == MEAN:
            width = max(part.k for part in predictions)
            padded = [part.pad(width) for part in predictions]
            labels, scores = (
                np.stack([part.labels for part in padded], 1),
                np.stack([part.scores for part in padded], 1),
            )
            return Predictions.from_valid_arrays(*rank_by_mean(labels, np.log(scores), n_labels, k))
        labels = np.hstack([part.labels for part in predictions])
        scores = np.hstack([part.scores for part in predictions])
        # log(−log(1 − P)): the sum over models of −log(1 − P) tells labels apart even if P is nearly 1
        evidence = np.log(-np.log1p(-np.minimum(scores, 1)))
    best, total = rank_with_tie_breaking(labels, evidence, scores, n_labels, k)
    return Predictions.from_valid_arrays(best, -np.expm1(-total))


def rank_with_tie_breaking(
    labels: np.ndarray, evidence: np.ndarray, scores: np.ndarray, n_labels: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best labels of each document by the sum of exp(evidence), and the sums.

    If a model gives several labels the probability 1, equation 9 is 1 for all of them. Such ties are broken by the mean
    of the models' log-odds.
    """
    n_docs, width = labels.shape
    best, total = np.full((n_docs, k), NO_LABEL, np.int32), np.zeros((n_docs, k), np.float32)
    work = (
        np.zeros(n_labels, np.float32),  # sum of exp(evidence) of each label; reset to zero after each document
        np.zeros(n_labels, np.float64),  # sum of log-odds of each label; reset to zero after each document
        np.empty(width, np.int32),  # distinct labels of a document
        np.empty(k + 1, np.int32),  # best labels, and one more to detect a tie at rank k
        np.empty((2, k + 1), np.float64),  # their sums and log-odds
    )
    rank_documents(labels, evidence, scores, work, best, total)
    return best, total


@kernel
def rank_documents(labels, evidence, scores, work, best, total):
    """Write the results of `rank_with_tie_breaking` into `best` and `total`."""
    sums, odds, seen, items, keys = work
    for doc in range(len(labels)):
        n_seen = np.int64(0)
        for i in range(labels.shape[1]):
            label = labels[doc, i]
            if label != NO_LABEL:
                if sums[label] == 0:
                    seen[n_seen] = label
                    n_seen += 1
                sums[label] += np.exp(evidence[doc, i]) + np.float32(1e-30)  # never 0, so that a label is listed once
        n = sort_top_labels(seen[:n_seen], sums, odds, items, keys)
        if has_ties(keys[0, :n]):
            add_log_odds(labels[doc], scores[doc], odds)
            n = sort_top_labels(seen[:n_seen], sums, odds, items, keys)
        for i in range(min(n, best.shape[1])):
            best[doc, i], total[doc, i] = items[i], keys[0, i]
        for label in seen[:n_seen]:
            sums[label], odds[label] = 0, 0


@kernel
def has_ties(descending):
    for i in range(1, len(descending)):  # noqa: SIM110  (compiled code has no generators)
        if descending[i] == descending[i - 1]:
            return True
    return False


@kernel
def add_log_odds(labels, scores, odds):
    """Add the log-odds log(P / (1 − P)) of each prediction, relative to those of a label without a prediction.

    P is clipped to the interval from FLOAT32_EPSNEG to 1 − FLOAT32_EPSNEG.
    """
    for i in range(len(labels)):
        if labels[i] != NO_LABEL:
            p = min(max(np.float64(scores[i]), FLOAT32_EPSNEG), 1 - FLOAT32_EPSNEG)
            odds[labels[i]] += np.log(p / (1 - p)) - np.log(FLOAT32_EPSNEG / (1 - FLOAT32_EPSNEG))


@kernel
def sort_top_labels(labels, sums, odds, items, keys):
    """Write the best labels, sorted by sum, then log-odds, then label number, and return their number."""
    n = np.int64(0)
    for label in labels:
        at = n
        while at > 0 and is_ranked_before_by_odds(
            sums[label], odds[label], label, keys[0, at - 1], keys[1, at - 1], items[at - 1]
        ):
            at -= 1
            if at + 1 < len(items):
                items[at + 1], keys[0, at + 1], keys[1, at + 1] = items[at], keys[0, at], keys[1, at]
        if at < len(items):
            items[at], keys[0, at], keys[1, at] = label, sums[label], odds[label]
            n += np.int64(n < len(items))
    return n


@kernel
def is_ranked_before_by_odds(total, odds, label, other_total, other_odds, other_label):
    if total != other_total:
        return total > other_total
    return odds > other_odds or (odds == other_odds and label < other_label)

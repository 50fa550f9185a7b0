"""How the answers of several models become one: by their mean, or by eq. 9 of AttentionXML's first version."""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.linear.search import rank_by_mean

MEAN, NOISY_OR = RULES = ("mean", "noisy-or")
FLOAT32_EPSNEG = 2.0**-24  # from 1 to the largest number of float32 under it


def combine_predictions(found: list[Predictions], rule: str, n_labels: int, k: int) -> Predictions:
    """The k best labels of each document by all models together; equal ones rank by label number."""
    labels, scores = np.hstack([part.labels for part in found]), np.hstack([part.scores for part in found])
    with np.errstate(divide="ignore"):  # log 0 and log ∞ are what they should be
        if rule == MEAN:
            return Predictions.from_valid_arrays(*rank_by_mean(labels, np.log(scores), n_labels, k, len(found)))
        # adds up where 1 − P is multiplied, and tells labels apart whose P is nearly 1
        evidence = np.log(-np.log1p(-np.minimum(scores, 1)))
    best, total = rank_with_tie_breaking(labels, evidence, scores, n_labels, k)
    return Predictions.from_valid_arrays(best, -np.expm1(-total))


def rank_with_tie_breaking(
    labels: np.ndarray, evidence: np.ndarray, scores: np.ndarray, n_labels: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels of each document by the sum of exp(evidence). Where a model is certain of several labels, eq. 9
    is 1 whatever the others say: labels that it cannot tell apart rank by the mean of the models' log-odds."""
    n_docs, width = labels.shape
    best, total = np.full((n_docs, k), NO_LABEL, np.int32), np.zeros((n_docs, k), np.float32)
    room = (
        np.zeros(n_labels, np.float32),  # evidence of each label,
        np.zeros(n_labels, np.float64),  # and its log-odds; both are left as zeros by every document
        np.empty(width, np.int32),  # the labels that a document has
        np.empty(k + 1, np.int32),  # its best, and one more: the k-th may have an equal behind it
        np.empty((2, k + 1), np.float64),
    )
    rank_documents(labels, evidence, scores, room, best, total)
    return best, total


@kernel
def rank_documents(labels, evidence, scores, room, best, total):
    """`rank_untied`, written into its last two arguments."""
    sums, odds, seen, items, keys = room
    for doc in range(len(labels)):
        n_seen = np.int64(0)
        for i in range(labels.shape[1]):
            label = labels[doc, i]
            if label != NO_LABEL:
                if sums[label] == 0:
                    seen[n_seen] = label
                    n_seen += 1
                sums[label] += np.exp(evidence[doc, i]) + np.float32(1e-30)  # never 0, so that none is seen twice
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
    """To each label log P / (1 − P), above that of a label that is not named: P is kept as far from 0 and from 1 as
    float32 can come to 1."""
    for i in range(len(labels)):
        if labels[i] != NO_LABEL:
            p = min(max(np.float64(scores[i]), FLOAT32_EPSNEG), 1 - FLOAT32_EPSNEG)
            odds[labels[i]] += np.log(p / (1 - p)) - np.log(FLOAT32_EPSNEG / (1 - FLOAT32_EPSNEG))


@kernel
def sort_top_labels(labels, sums, odds, items, keys):
    """Write the best labels in their order: by sum, then by log-odds, then by number; how many they are."""
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

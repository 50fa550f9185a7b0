"""Candidate labels of a stacked combination: the best labels of every member, and their features for the ranker."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions

CANDIDATE_LABELS = 20  # of each member
MIN_SCORE = 1e-6  # of a candidate of another member, and the lowest score whose log-odds are told apart
FREQUENCY_STEPS = 2  # per doubling of the number of documents; exact numbers would identify single labels


class Candidates(NamedTuple):
    """Pairs of a document and a label, sorted by both, with what the members say of them."""

    documents: np.ndarray  # (n,)
    labels: np.ndarray  # (n,)
    scores: np.ndarray  # (n, n_members), 0 where a member does not predict the label
    ranks: np.ndarray  # (n, n_members), from 0; CANDIDATE_LABELS where a member does not predict the label


def collect_candidates(predictions: list[Predictions], n_labels: int) -> Candidates:
    """Return the union of the labels that the members predict."""
    keys = [locate_labels(part, n_labels) for part in predictions]
    pairs = np.unique(np.concatenate(keys))
    scores = np.zeros((len(pairs), len(predictions)))
    ranks = np.full((len(pairs), len(predictions)), CANDIDATE_LABELS, np.int64)
    for number, (part, own) in enumerate(zip(predictions, keys, strict=True)):
        rows, is_label = np.searchsorted(pairs, own), part.labels != NO_LABEL
        scores[rows, number] = part.scores[is_label]
        ranks[rows, number] = np.minimum(np.nonzero(is_label)[1], CANDIDATE_LABELS)
    return Candidates(pairs // n_labels, pairs % n_labels, scores, ranks)


def locate_labels(predictions: Predictions, n_labels: int) -> np.ndarray:
    """Return document × n_labels + label of each predicted label."""
    documents, columns = np.nonzero(predictions.labels != NO_LABEL)
    return documents * n_labels + predictions.labels[documents, columns].astype(np.int64)


def compute_log_odds(scores: np.ndarray) -> np.ndarray:
    clipped = np.clip(scores, MIN_SCORE, 1 - MIN_SCORE)
    return np.log(clipped / (1 - clipped))


def round_frequencies(frequencies: np.ndarray) -> np.ndarray:
    """Return the logarithm of label frequencies, in steps."""
    return np.round(FREQUENCY_STEPS * np.log2(1 + frequencies))


def build_features(candidates: Candidates, frequencies: np.ndarray) -> np.ndarray:
    """Return the features of the ranker; `frequencies` are the rounded ones of each candidate's label.

    Columns: each member's log-odds, each member's rank, the mean log-odds, the number of members that predict the
    label, and the label's frequency."""
    log_odds = compute_log_odds(candidates.scores)
    n_found = (candidates.scores > 0).sum(axis=1)
    return np.column_stack([log_odds, candidates.ranks, log_odds.mean(axis=1), n_found, frequencies])


def list_monotonic_constraints(n_members: int) -> list[int]:
    """Return 1 for the features with which the probability does not decrease, else 0."""
    return [1] * n_members + [0] * n_members + [1, 0, 0]


def mark_correct(candidates: Candidates, Y: csr_array) -> np.ndarray:
    """Return which candidates are labels of their document."""
    documents = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    true_pairs = documents * Y.shape[1] + Y.indices
    return np.isin(candidates.documents * Y.shape[1] + candidates.labels, true_pairs)


def rank_candidates(candidates: Candidates, scores: np.ndarray, n_docs: int, k: int) -> Predictions:
    """Return the k candidates of each document with the highest scores; ties are broken by label number."""
    order = np.lexsort((candidates.labels, -scores, candidates.documents))
    documents = candidates.documents[order]
    ranks = np.arange(len(order)) - np.searchsorted(documents, documents)
    labels, best = np.full((n_docs, k), NO_LABEL, np.int32), np.zeros((n_docs, k), np.float32)
    is_kept = ranks < k
    labels[documents[is_kept], ranks[is_kept]] = candidates.labels[order[is_kept]]
    best[documents[is_kept], ranks[is_kept]] = scores[order[is_kept]]
    return Predictions.from_valid_arrays(labels, best)

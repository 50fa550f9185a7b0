"""Confident learning: probably wrong and probably missing labels.

Northcutt, Jiang, Chuang: Confident Learning: Estimating Uncertainty in Dataset Labels (JAIR 2021).

Each label is a binary problem with out-of-fold scores. A label is missing if its score is at least its mean score in
documents that have it, and above 0.5. It is wrong if its score is at most its mean score in documents that do not have
it, and below 0.5. These are the off-diagonal counts of the paper's confident joint (eq. 1 and 2), as in cleanlab.

Two differences from the paper: scores are sparse, only the k best labels of a document have one and the others score 0.
And because most of thousands of labels are too rare for any model, labels with few documents are not checked, and
labels with a low mean score are never called wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions

MIN_LABEL_DOCUMENTS = 5  # labels with fewer documents are not checked
MIN_MEAN_SCORE = 0.25  # in documents that have the label; below it, it is never called wrong
SCORE_TOLERANCE = 1e-6  # of comparisons between scores


@dataclass(frozen=True)
class SuspectLabels:
    """Probable label errors, the most confident first."""

    documents: np.ndarray  # (n,)
    labels: np.ndarray  # (n,)
    confidence: np.ndarray  # (n,) distance of the score from the mean, 0 to 1

    def __len__(self) -> int:
        return len(self.documents)


@dataclass(frozen=True)
class MeanScores:
    """Mean scores of labels, each of shape (n_labels,)."""

    n_docs: np.ndarray  # documents that have the label
    present: np.ndarray  # mean score in these
    absent: np.ndarray  # mean score in the others; -1 if there are none


def find_label_errors(
    found: Predictions, Y: csr_array, min_documents: int = MIN_LABEL_DOCUMENTS, min_mean_score: float = MIN_MEAN_SCORE
) -> tuple[SuspectLabels, SuspectLabels]:
    """Return the probably wrong and the probably missing labels of documents with labels Y."""
    documents, labels, scores, is_given = collect_scored_pairs(found, Y)
    usual = compute_mean_scores(labels, scores, is_given, *Y.shape)
    is_judged = usual.n_docs[labels] >= min_documents
    is_likely = (scores >= usual.present[labels] - SCORE_TOLERANCE) & (2 * scores > 1 + SCORE_TOLERANCE)
    is_unlikely = (scores <= usual.absent[labels] + SCORE_TOLERANCE) & (2 * scores <= 1 - SCORE_TOLERANCE)
    missing = is_judged & is_likely & ~is_given
    wrong = is_judged & is_unlikely & is_given & (usual.present[labels] >= min_mean_score)
    return (
        sort_suspects(wrong, documents, labels, usual.present[labels] - scores),
        sort_suspects(missing, documents, labels, scores - usual.absent[labels]),
    )


def collect_scored_pairs(found: Predictions, Y: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return document, label, score and presence of every pair that is in Y or has a score."""
    named, n_labels = found.labels != NO_LABEL, Y.shape[1]
    scored = np.repeat(np.arange(found.n_docs), named.sum(axis=1)) * n_labels + found.labels[named]
    given = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * n_labels + Y.indices
    every = np.union1d(scored, given)
    scores = np.zeros(len(every))
    scores[np.searchsorted(every, scored)] = found.scores[named]
    return every // n_labels, every % n_labels, scores, np.isin(every, given, assume_unique=True)


def compute_mean_scores(
    labels: np.ndarray, scores: np.ndarray, is_given: np.ndarray, n_docs: int, n_labels: int
) -> MeanScores:
    n = np.bincount(labels[is_given], minlength=n_labels)
    present = np.bincount(labels[is_given], scores[is_given], minlength=n_labels)
    absent = np.bincount(labels[~is_given], scores[~is_given], minlength=n_labels)
    without = n_docs - n
    return MeanScores(n, present / np.maximum(n, 1), np.where(without > 0, absent / np.maximum(without, 1), -1))


def sort_suspects(
    chosen: np.ndarray, documents: np.ndarray, labels: np.ndarray, confidence: np.ndarray
) -> SuspectLabels:
    where = np.flatnonzero(chosen)
    where = where[np.argsort(-confidence[where], kind="stable")]
    return SuspectLabels(documents[where], labels[where], confidence[where])

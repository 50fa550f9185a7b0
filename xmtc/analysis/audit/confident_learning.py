"""Labels that are probably wrong, and those that are probably missing: confident learning. Northcutt, Jiang, Chuang:
Confident Learning: Estimating Uncertainty in Dataset Labels (JAIR 2021).

Each label is a question of its own: has a document got it or not? Given are scores by models that have not seen the
document. A label is missing where it scores at least as much as it does on average in documents that have it, and more
than a half; it is wrong where it scores no more than on average in those that do not have it, and less than a half.
These are the off-diagonal counts of the paper's confident joint (its eq. 1 and 2), as cleanlab flags them.

Of the paper it differs in two things. Scores are sparse: only the k best labels of a document have one, and the others
are taken to score nothing, which is what they would score but for a little. And with thousands of labels most are so
rare that no model can tell: labels of few documents are not judged, and of those that score little even where they
stand, none is called wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions

MIN_LABEL_DOCUMENTS = 5  # documents of a label that is judged
MIN_MEAN_SCORE = 0.25  # mean score in documents that have it, of a label that may be called wrong
SCORE_TOLERANCE = 1e-6  # what scores may differ by and be the same


@dataclass(frozen=True)
class SuspectLabels:
    """Labels of documents that are suspected, the surest first."""

    documents: np.ndarray  # (n,)
    labels: np.ndarray  # (n,)
    confidence: np.ndarray  # (n,) how far the score is from what is usual, 0 to 1

    def __len__(self) -> int:
        return len(self.documents)


@dataclass(frozen=True)
class MeanScores:
    """What labels score on average, each (n_labels,)."""

    n_docs: np.ndarray  # documents that have it
    present: np.ndarray  # in these
    absent: np.ndarray  # in the others; below 0 where there are none


def find_label_errors(
    found: Predictions, Y: csr_array, min_documents: int = MIN_LABEL_DOCUMENTS, min_mean_score: float = MIN_MEAN_SCORE
) -> tuple[SuspectLabels, SuspectLabels]:
    """Of the labels Y of documents those that are likely wrong, and labels that they likely lack."""
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
    """Every document and label that is given or has a score: which, the score, and whether it is given."""
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


def sort_suspects(chosen: np.ndarray, documents: np.ndarray, labels: np.ndarray, sureness: np.ndarray) -> SuspectLabels:
    where = np.flatnonzero(chosen)
    where = where[np.argsort(-sureness[where], kind="stable")]
    return SuspectLabels(documents[where], labels[where], sureness[where])

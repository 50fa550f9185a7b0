"""What a match is worth: logistic regression on a few features of it and on the record of its label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.methods.lexical.automaton import NameMatches
from xmtc.storage.form import Form, array

N_FOLDS = 5  # parts of the training documents, each judged by what the others know
MAX_TRAINING_MATCHES = 200_000  # matches to learn a dozen weights from
MIN_DEFAULT_LABEL_SHARE = 0.5  # a label that more documents than these have where it is not named is given to all
PRIOR_MATCHES = 2.0  # right matches, as many as expected, that every label's record begins with
N_FEATURES = 12
MAX_TRAINING_DOCUMENTS = int(np.iinfo(np.int32).max)


class LabelCounts(NamedTuple):
    """What some documents say of each label, or of each candidate's label."""

    n_docs: float | np.ndarray
    has: np.ndarray  # documents that have the label
    named: np.ndarray  # documents in which one of its names occurs
    right: np.ndarray  # and that have it
    expected: np.ndarray  # of these, as many as would have it by all other features


@dataclass(frozen=True)
class MatchClassifier(Form):
    """The weights of features, and the record of each label."""

    n_docs: int
    weights: np.ndarray = array(np.float64)  # (N_FEATURES + 1,) the last for the constant
    has: np.ndarray = array(np.int32)  # (n_labels,) as in Record
    named: np.ndarray = array(np.int32)
    right: np.ndarray = array(np.int32)
    expected: np.ndarray = array(np.float32)

    def as_label_counts(self) -> LabelCounts:
        return LabelCounts(self.n_docs, self.has, self.named, self.right, self.expected)

    def predict_probabilities(self, found: NameMatches, doc_lengths: np.ndarray) -> np.ndarray:
        """(n_candidates,) the probability of each."""
        features = compute_match_features(found, doc_lengths, select_label_counts(self.as_label_counts(), found.labels))
        return apply_logistic(features, self.weights)

    def default_labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The labels that most documents have without naming them, and how many do."""
        unnamed = np.maximum(self.n_docs - self.named, 1)
        share = (self.has - self.right) / unnamed
        labels = np.flatnonzero(share > MIN_DEFAULT_LABEL_SHARE).astype(np.int32)
        return labels, share[labels].astype(np.float32)

    def check_sizes(self, n_labels: int) -> None:
        if len(self.weights) != N_FEATURES + 1 or not 1 <= self.n_docs <= MAX_TRAINING_DOCUMENTS:
            raise ValueError("its features have no weights")
        for part in (self.has, self.named, self.right, self.expected):
            if len(part) != n_labels or part.min(initial=0) < 0:
                raise ValueError("it has no record of its labels")
        has, named, right = (part.astype(np.int64) for part in (self.has, self.named, self.right))
        if (right > np.minimum(has, named)).any() or (has - right > self.n_docs - named).any():
            raise ValueError("its record of labels counts more documents than there are")


def fit_match_classifier(found: NameMatches, doc_lengths: np.ndarray, Y: csr_array) -> MatchClassifier:
    """First without what is expected of labels, which needs an answer itself, then with it."""
    n_docs, n_labels = Y.shape
    is_right = mark_correct_matches(found, Y)
    folds = found.docs % N_FOLDS
    counted = [count_labels_by_fold(Y), sum_by_fold(found, n_labels), sum_by_fold(found, n_labels, is_right)]
    sizes = np.bincount(np.arange(n_docs) % N_FOLDS, minlength=N_FOLDS)

    def of_others(expected: np.ndarray) -> LabelCounts:
        """The record of each candidate's label in all folds but its own."""
        left = [part.sum(axis=0)[found.labels] - part[folds, found.labels] for part in (*counted, expected)]
        return LabelCounts(n_docs - sizes[folds], *left)

    nothing = np.zeros((N_FOLDS, n_labels))
    features = compute_match_features(found, doc_lengths, of_others(nothing))
    without = np.where(np.arange(N_FEATURES) == N_FEATURES - 1, 0, features)
    expected = sum_by_fold(found, n_labels, apply_logistic(without, fit_logistic_regression(without, is_right)))
    features = compute_match_features(found, doc_lengths, of_others(expected))
    has, named, right = (part.sum(axis=0).astype(np.int32) for part in counted)
    return MatchClassifier(
        n_docs=n_docs,
        weights=fit_logistic_regression(features, is_right),
        has=has,
        named=named,
        right=right,
        expected=expected.sum(axis=0).astype(np.float32),
    )


def mark_correct_matches(found: NameMatches, Y: csr_array) -> np.ndarray:
    """(n_candidates,) bool, whether the document has the label."""
    n_labels = Y.shape[1]
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    return np.isin(found.docs.astype(np.int64) * n_labels + found.labels, rows * n_labels + Y.indices)


def count_labels_by_fold(Y: csr_array) -> np.ndarray:
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    return np.array([np.bincount(Y.indices[rows % N_FOLDS == i], minlength=Y.shape[1]) for i in range(N_FOLDS)])


def sum_by_fold(found: NameMatches, n_labels: int, values: np.ndarray | None = None) -> np.ndarray:
    """(FOLDS, n_labels) the sums of candidates' values, or their number."""
    values = np.ones(len(found.docs)) if values is None else values.astype(np.float64)
    parts = (found.docs % N_FOLDS == i for i in range(N_FOLDS))
    return np.array([np.bincount(found.labels[part], values[part], minlength=n_labels) for part in parts])


def select_label_counts(record: LabelCounts, labels: np.ndarray) -> LabelCounts:
    return LabelCounts(record.n_docs, *(part[labels] for part in record[1:]))


def compute_match_features(found: NameMatches, doc_lengths: np.ndarray, record: LabelCounts) -> np.ndarray:
    """(n_candidates, N_FEATURES) of the match, of its document, and of its label."""
    n_candidates = np.bincount(found.docs, minlength=len(doc_lengths))
    columns = [
        np.log(found.counts),
        np.log1p(found.first),
        np.log(found.lengths),
        found.preferred,
        np.log(found.shared),
        found.covered / found.counts,
        np.log(doc_lengths[found.docs]),
        np.log(n_candidates[found.docs]),
        np.log((record.has + 0.5) / (record.n_docs + 1)),
        record.has > 0,
        np.log((record.named + 0.5) / (record.n_docs + 1)),
        np.log((record.right + PRIOR_MATCHES) / (record.expected + PRIOR_MATCHES)),
    ]
    return np.stack(columns, axis=1).astype(np.float64) if len(found.docs) else np.zeros((0, N_FEATURES))


def apply_logistic(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(features @ weights[:-1] + weights[-1], -50, 50)))


def fit_logistic_regression(features: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Weights of features, as they are, and of the constant; those of a single answer where only one is known."""
    from sklearn.linear_model import LogisticRegression  # not needed where a model is only used

    step = 1 + len(features) // MAX_TRAINING_MATCHES
    features, is_right = features[::step], is_right[::step]
    if is_right.all() or not is_right.any():
        share = (is_right.sum() + 0.5) / (len(is_right) + 1)
        return np.append(np.zeros(features.shape[1]), np.log(share / (1 - share)))
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0, scale, 1)
    found = LogisticRegression(solver="newton-cholesky", max_iter=100).fit((features - mean) / scale, is_right)
    weights = found.coef_[0] / scale
    return np.append(weights, found.intercept_[0] - weights @ mean)

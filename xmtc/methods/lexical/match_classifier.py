"""Logistic regression that estimates the probability of a matched label from features of the match and its label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.methods.lexical.automaton import NameMatches
from xmtc.storage.form import Form, array

N_FOLDS = 5  # folds for cross-fitting the label statistics
MAX_TRAINING_MATCHES = 200_000  # enough for a dozen weights
MIN_DEFAULT_LABEL_SHARE = 0.5  # a label with a larger share of the documents that do not name it is always predicted
PRIOR_MATCHES = 2.0  # pseudo-count of correct and of expected matches of every label
N_FEATURES = 12
MAX_TRAINING_DOCUMENTS = int(np.iinfo(np.int32).max)


class LabelCounts(NamedTuple):
    """Numbers of documents of each label, or of each match's label."""

    n_docs: float | np.ndarray  # all documents
    has: np.ndarray  # documents that have the label
    named: np.ndarray  # documents in which one of its names occurs
    right: np.ndarray  # documents with both
    expected: np.ndarray  # expected value of `right` by all other features


@dataclass(frozen=True)
class MatchClassifier(Form):
    """Weights of the features, and the document counts of each label."""

    n_docs: int
    weights: np.ndarray = array(np.float64)  # (N_FEATURES + 1,), the last is the intercept
    has: np.ndarray = array(np.int32)  # (n_labels,), as in LabelCounts
    named: np.ndarray = array(np.int32)
    right: np.ndarray = array(np.int32)
    expected: np.ndarray = array(np.float32)

    def predict_probabilities(self, matches: NameMatches, doc_lengths: np.ndarray) -> np.ndarray:
        """Return the probability of each match, shape (n_matches,)."""
        per_label = (self.has, self.named, self.right, self.expected)
        counts = LabelCounts(self.n_docs, *(values[matches.labels] for values in per_label))
        return apply_logistic(compute_match_features(matches, doc_lengths, counts), self.weights)

    def default_labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels that most documents have without naming them, and their shares of such documents."""
        n_unnamed = np.maximum(self.n_docs - self.named, 1)
        shares = (self.has - self.right) / n_unnamed
        labels = np.flatnonzero(shares > MIN_DEFAULT_LABEL_SHARE).astype(np.int32)
        return labels, shares[labels].astype(np.float32)

    def check_sizes(self, n_labels: int) -> None:
        """Raise an error if arrays have the wrong length, or counts contradict each other."""
        if len(self.weights) != N_FEATURES + 1:
            raise ValueError(f"weights has {len(self.weights)} values; expected {N_FEATURES + 1}")
        if not 1 <= self.n_docs <= MAX_TRAINING_DOCUMENTS:
            raise ValueError(f"n_docs is {self.n_docs}; expected a number from 1 to {MAX_TRAINING_DOCUMENTS}")
        for name in ("has", "named", "right", "expected"):
            values = getattr(self, name)
            if len(values) != n_labels or values.min(initial=0) < 0:
                raise ValueError(f"{name} of the match classifier does not have {n_labels} values of at least 0")
        has, named, right = (values.astype(np.int64) for values in (self.has, self.named, self.right))
        if (right > np.minimum(has, named)).any() or (has - right > self.n_docs - named).any():
            raise ValueError("has, named and right of the match classifier count more documents than n_docs")


def fit_match_classifier(matches: NameMatches, doc_lengths: np.ndarray, Y: csr_array) -> MatchClassifier:
    """Train the classifier twice: first without the expected number of correct matches, to compute it, then with it."""
    n_docs, n_labels = Y.shape
    is_right = mark_correct_matches(matches, Y)
    folds = matches.docs % N_FOLDS
    fold_counts = [count_labels_by_fold(Y), sum_by_fold(matches, n_labels), sum_by_fold(matches, n_labels, is_right)]
    fold_sizes = np.bincount(np.arange(n_docs) % N_FOLDS, minlength=N_FOLDS)

    def count_in_other_folds(expected: np.ndarray) -> LabelCounts:
        """Return the counts of each match's label over all folds but its own."""
        counts = [
            values.sum(axis=0)[matches.labels] - values[folds, matches.labels] for values in (*fold_counts, expected)
        ]
        return LabelCounts(n_docs - fold_sizes[folds], *counts)

    features = compute_match_features(matches, doc_lengths, count_in_other_folds(np.zeros((N_FOLDS, n_labels))))
    masked = np.where(np.arange(N_FEATURES) == N_FEATURES - 1, 0, features)  # the last feature needs `expected`
    expected = sum_by_fold(matches, n_labels, apply_logistic(masked, fit_logistic_regression(masked, is_right)))
    features = compute_match_features(matches, doc_lengths, count_in_other_folds(expected))
    has, named, right = (values.sum(axis=0).astype(np.int32) for values in fold_counts)
    return MatchClassifier(
        n_docs=n_docs,
        weights=fit_logistic_regression(features, is_right),
        has=has,
        named=named,
        right=right,
        expected=expected.sum(axis=0).astype(np.float32),
    )


def mark_correct_matches(matches: NameMatches, Y: csr_array) -> np.ndarray:
    """Return a mask of the matches whose document has the label, shape (n_matches,)."""
    n_labels = Y.shape[1]
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    return np.isin(matches.docs.astype(np.int64) * n_labels + matches.labels, rows * n_labels + Y.indices)


def count_labels_by_fold(Y: csr_array) -> np.ndarray:
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    return np.array([np.bincount(Y.indices[rows % N_FOLDS == i], minlength=Y.shape[1]) for i in range(N_FOLDS)])


def sum_by_fold(matches: NameMatches, n_labels: int, values: np.ndarray | None = None) -> np.ndarray:
    """Return the sums of the matches' values, or their numbers, shape (N_FOLDS, n_labels)."""
    values = np.ones(len(matches.docs)) if values is None else values.astype(np.float64)
    folds = (matches.docs % N_FOLDS == i for i in range(N_FOLDS))
    return np.array([np.bincount(matches.labels[fold], values[fold], minlength=n_labels) for fold in folds])


def compute_match_features(matches: NameMatches, doc_lengths: np.ndarray, counts: LabelCounts) -> np.ndarray:
    """Return features of each match, its document and its label, shape (n_matches, N_FEATURES)."""
    matches_per_doc = np.bincount(matches.docs, minlength=len(doc_lengths))
    columns = [
        np.log(matches.counts),
        np.log1p(matches.first),
        np.log(matches.lengths),
        matches.preferred,
        np.log(matches.shared),
        matches.covered / matches.counts,
        np.log(doc_lengths[matches.docs]),
        np.log(matches_per_doc[matches.docs]),
        np.log((counts.has + 0.5) / (counts.n_docs + 1)),
        counts.has > 0,
        np.log((counts.named + 0.5) / (counts.n_docs + 1)),
        np.log((counts.right + PRIOR_MATCHES) / (counts.expected + PRIOR_MATCHES)),
    ]
    return np.stack(columns, axis=1).astype(np.float64) if len(matches.docs) else np.zeros((0, N_FEATURES))


def apply_logistic(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(features @ weights[:-1] + weights[-1], -50, 50)))


def fit_logistic_regression(features: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Return the weights of the unscaled features and the intercept; only an intercept if all matches are alike."""
    from sklearn.linear_model import LogisticRegression  # imported here, because prediction does not need it

    step = 1 + len(features) // MAX_TRAINING_MATCHES
    features, is_right = features[::step], is_right[::step]
    if is_right.all() or not is_right.any():
        share = (is_right.sum() + 0.5) / (len(is_right) + 1)
        return np.append(np.zeros(features.shape[1]), np.log(share / (1 - share)))
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0, scale, 1)
    regression = LogisticRegression(solver="newton-cholesky", max_iter=100).fit((features - mean) / scale, is_right)
    weights = regression.coef_[0] / scale
    return np.append(weights, regression.intercept_[0] - weights @ mean)

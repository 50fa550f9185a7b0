"""What a match is worth: logistic regression on a few features of it and on the record of its label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.methods.lexical.automaton import Candidates
from xmtc.storage.form import Form, array

FOLDS = 5  # parts of the training documents, each judged by what the others know
ENOUGH = 200_000  # matches to learn a dozen weights from
HALF = 0.5  # a label that more documents than these have where it is not named is given to all
PRIOR = 2.0  # right matches, as many as expected, that every label's record begins with
N_FEATURES = 12
MOST_DOCS = int(np.iinfo(np.int32).max)


class Record(NamedTuple):
    """What some documents say of each label, or of each candidate's label."""

    n_docs: float | np.ndarray
    has: np.ndarray  # documents that have the label
    named: np.ndarray  # documents in which one of its names occurs
    right: np.ndarray  # and that have it
    expected: np.ndarray  # of these, as many as would have it by all other features


@dataclass(frozen=True)
class Evidence(Form):
    """The weights of features, and the record of each label."""

    n_docs: int
    weights: np.ndarray = array(np.float64)  # (N_FEATURES + 1,) the last for the constant
    has: np.ndarray = array(np.int32)  # (n_labels,) as in Record
    named: np.ndarray = array(np.int32)
    right: np.ndarray = array(np.int32)
    expected: np.ndarray = array(np.float32)

    def record(self) -> Record:
        return Record(self.n_docs, self.has, self.named, self.right, self.expected)

    def scores(self, found: Candidates, doc_lengths: np.ndarray) -> np.ndarray:
        """(n_candidates,) the probability of each."""
        features = features_of(found, doc_lengths, of_labels(self.record(), found.labels))
        return probabilities(features, self.weights)

    def given_to_all(self) -> tuple[np.ndarray, np.ndarray]:
        """The labels that most documents have without naming them, and how many do."""
        unnamed = np.maximum(self.n_docs - self.named, 1)
        share = (self.has - self.right) / unnamed
        labels = np.flatnonzero(share > HALF).astype(np.int32)
        return labels, share[labels].astype(np.float32)

    def check_within(self, n_labels: int) -> None:
        if len(self.weights) != N_FEATURES + 1 or not 1 <= self.n_docs <= MOST_DOCS:
            raise ValueError("its features have no weights")
        for part in (self.has, self.named, self.right, self.expected):
            if len(part) != n_labels or part.min(initial=0) < 0:
                raise ValueError("it has no record of its labels")
        has, named, right = (part.astype(np.int64) for part in (self.has, self.named, self.right))
        if (right > np.minimum(has, named)).any() or (has - right > self.n_docs - named).any():
            raise ValueError("its record of labels counts more documents than there are")


def learn(found: Candidates, doc_lengths: np.ndarray, Y: csr_array) -> Evidence:
    """First without what is expected of labels, which needs an answer itself, then with it."""
    n_docs, n_labels = Y.shape
    is_right = hits(found, Y)
    folds = found.docs % FOLDS
    counted = [has_in_folds(Y), in_folds(found, n_labels), in_folds(found, n_labels, is_right)]
    sizes = np.bincount(np.arange(n_docs) % FOLDS, minlength=FOLDS)

    def of_others(expected: np.ndarray) -> Record:
        """The record of each candidate's label in all folds but its own."""
        left = [part.sum(axis=0)[found.labels] - part[folds, found.labels] for part in (*counted, expected)]
        return Record(n_docs - sizes[folds], *left)

    nothing = np.zeros((FOLDS, n_labels))
    features = features_of(found, doc_lengths, of_others(nothing))
    without = np.where(np.arange(N_FEATURES) == N_FEATURES - 1, 0, features)
    expected = in_folds(found, n_labels, probabilities(without, fitted(without, is_right)))
    features = features_of(found, doc_lengths, of_others(expected))
    has, named, right = (part.sum(axis=0).astype(np.int32) for part in counted)
    return Evidence(
        n_docs=n_docs,
        weights=fitted(features, is_right),
        has=has,
        named=named,
        right=right,
        expected=expected.sum(axis=0).astype(np.float32),
    )


def hits(found: Candidates, Y: csr_array) -> np.ndarray:
    """(n_candidates,) bool, whether the document has the label."""
    n_labels = Y.shape[1]
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    return np.isin(found.docs.astype(np.int64) * n_labels + found.labels, rows * n_labels + Y.indices)


def has_in_folds(Y: csr_array) -> np.ndarray:
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    return np.array([np.bincount(Y.indices[rows % FOLDS == i], minlength=Y.shape[1]) for i in range(FOLDS)])


def in_folds(found: Candidates, n_labels: int, values: np.ndarray | None = None) -> np.ndarray:
    """(FOLDS, n_labels) the sums of candidates' values, or their number."""
    values = np.ones(len(found.docs)) if values is None else values.astype(np.float64)
    parts = (found.docs % FOLDS == i for i in range(FOLDS))
    return np.array([np.bincount(found.labels[part], values[part], minlength=n_labels) for part in parts])


def of_labels(record: Record, labels: np.ndarray) -> Record:
    return Record(record.n_docs, *(part[labels] for part in record[1:]))


def features_of(found: Candidates, doc_lengths: np.ndarray, record: Record) -> np.ndarray:
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
        np.log((record.right + PRIOR) / (record.expected + PRIOR)),
    ]
    return np.stack(columns, axis=1).astype(np.float64) if len(found.docs) else np.zeros((0, N_FEATURES))


def probabilities(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(features @ weights[:-1] + weights[-1], -50, 50)))


def fitted(features: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Weights of features, as they are, and of the constant; those of a single answer where only one is known."""
    from sklearn.linear_model import LogisticRegression  # not needed where a model is only used

    step = 1 + len(features) // ENOUGH
    features, is_right = features[::step], is_right[::step]
    if is_right.all() or not is_right.any():
        share = (is_right.sum() + 0.5) / (len(is_right) + 1)
        return np.append(np.zeros(features.shape[1]), np.log(share / (1 - share)))
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0, scale, 1)
    found = LogisticRegression(solver="newton-cholesky", max_iter=100).fit((features - mean) / scale, is_right)
    weights = found.coef_[0] / scale
    return np.append(weights, found.intercept_[0] - weights @ mean)

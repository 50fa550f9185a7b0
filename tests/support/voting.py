"""Minimal methods that read words, or words and terms: each of them votes for the labels it occurred with.

Tests add them to METHODS temporarily.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmtc import Dataset, Explanation, Method, Model, Predictions, Run, array, param
from xmtc.methods import METHODS


def enter(monkeypatch) -> None:
    """Add the methods to METHODS during a test."""
    for kind in (WordVotes, AllVotes):
        monkeypatch.setitem(METHODS, kind.__name__.lower(), f"{kind.__module__}:{kind.__name__}")


def best(scores: np.ndarray, k: int) -> Predictions:
    scores = scores / np.maximum(scores.sum(1, keepdims=True), 1)
    labels = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
    return Predictions(labels, np.take_along_axis(scores, labels, axis=1).astype(np.float32))


@dataclass(frozen=True, kw_only=True)
class WordVotesModel(Model):
    votes: np.ndarray = array(np.float32, ndim=2)  # (n_words, n_labels)

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        return best(data.tokens("words").to_count_matrix() @ self.votes, k)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        return Explanation("words", np.arange(3, dtype=np.int32), np.ones(3, np.float32))


@dataclass(frozen=True)
class WordVotes(Method):
    """Words vote for labels."""

    required_views = ("words",)
    power: float = param(1.0, "what votes are raised to")

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> WordVotesModel:
        assert list(data.views) == ["words"]
        assert valid is None or valid.sizes == data.sizes
        result = votes(data.tokens("words").to_count_matrix(), data.Y) ** self.power
        return WordVotesModel(n_labels=data.n_labels, views=data.sizes, votes=result)


@dataclass(frozen=True, kw_only=True)
class AllVotesModel(Model):
    votes: np.ndarray = array(np.float32, ndim=2)  # (n_terms + n_words, n_labels)

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        of_terms, of_words = np.split(self.votes, [self.views["tfidf"]])
        return best(data.X @ of_terms + data.tokens("words").to_count_matrix() @ of_words, k)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        terms = document.X.indices
        return Explanation.from_occurrences("tfidf", terms, self.votes[terms, label] * document.X.data)


@dataclass(frozen=True)
class AllVotes(Method):
    """Terms and words vote for labels."""

    required_views = ("tfidf", "words")

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> AllVotesModel:
        both = np.concatenate([votes(data.X, data.Y), votes(data.tokens("words").to_count_matrix(), data.Y)])
        return AllVotesModel(n_labels=data.n_labels, views=data.sizes, votes=both)


def votes(X, Y) -> np.ndarray:
    """Return the weights of the columns of X for each label, larger for columns that occur with few labels."""
    beside = (X.T @ Y).toarray()
    return (beside / np.maximum(beside.sum(1, keepdims=True), 1)).astype(np.float32) ** 2

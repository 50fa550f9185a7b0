"""The smallest methods that read words, and words beside features: each word, and each feature, votes for the labels it
was seen with. They stand in METHODS only while a test puts them there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xmtc.base.dataset import Dataset
from xmtc.base.method import Explanation, Method, Model
from xmtc.base.params import param
from xmtc.base.predictions import Predictions
from xmtc.base.run import Run
from xmtc.methods import METHODS
from xmtc.store import FORMS


def enter(monkeypatch) -> None:
    """Put the methods into METHODS, and what they leave into FORMS, for as long as a test runs."""
    for kind in (WordVotes, AllVotes):
        monkeypatch.setitem(METHODS, kind.__name__.lower(), f"{kind.__module__}:{kind.__name__}")
    for form in (WordVotesModel, AllVotesModel):
        monkeypatch.setitem(FORMS, form.__name__, form.__module__)


def best(scores: np.ndarray, k: int) -> Predictions:
    scores = scores / np.maximum(scores.sum(1, keepdims=True), 1)
    labels = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
    return Predictions(labels, np.take_along_axis(scores, labels, axis=1).astype(np.float32))


@dataclass(frozen=True)
class WordVotesModel(Model):
    n_labels: int
    n_words: int
    votes: NDArray[np.float32]  # (n_words, n_labels)

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        return best(data.tokens.counts() @ self.votes, k)

    def explain(self, document: Dataset, label: int) -> Explanation:
        return Explanation(np.arange(3, dtype=np.int32), np.ones(3, np.float32))


@dataclass(frozen=True)
class WordVotes(Method):
    """Words vote for labels."""

    reads = ("tokens", "Y")
    power: float = param(1.0, "what votes are raised to")

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> WordVotesModel:
        assert data.n_features == 0
        assert data.tokens.vectors.shape[0] == data.n_words
        assert valid is None or valid.tokens.vectors is None
        return WordVotesModel(data.n_labels, data.n_words, votes(data.tokens.counts(), data.Y) ** self.power)


@dataclass(frozen=True)
class AllVotesModel(Model):
    n_labels: int
    n_features: int
    n_words: int
    votes: NDArray[np.float32]  # (n_features + n_words, n_labels)

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        of_features, of_words = np.split(self.votes, [self.n_features])
        return best(data.X @ of_features + data.tokens.counts() @ of_words, k)

    def explain(self, document: Dataset, label: int) -> Explanation:
        features = document.X.indices
        weights = self.votes[features, label] * document.X.data
        order = np.argsort(-weights)
        return Explanation(features[order], weights[order])


@dataclass(frozen=True)
class AllVotes(Method):
    """Features and words vote for labels."""

    reads = ("X", "tokens", "Y")

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> AllVotesModel:
        both = np.concatenate([votes(data.X, data.Y), votes(data.tokens.counts(), data.Y)])
        return AllVotesModel(data.n_labels, data.n_features, data.n_words, both)


def votes(X, Y) -> np.ndarray:
    """How often each column of X stands beside each label, most for the columns that stand beside few."""
    beside = (X.T @ Y).toarray()
    return (beside / np.maximum(beside.sum(1, keepdims=True), 1)).astype(np.float32) ** 2

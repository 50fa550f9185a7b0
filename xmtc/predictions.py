"""Ranked answers as two plain padded arrays, and the few ways of making them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NO_LABEL = -1


@dataclass(frozen=True)
class Predictions:
    """The best labels of each document, best first; NO_LABEL with score 0 where fewer than k were found."""

    labels: np.ndarray  # (n_docs, k) int32
    scores: np.ndarray  # (n_docs, k) float32

    @property
    def n_docs(self) -> int:
        return self.labels.shape[0]

    @property
    def k(self) -> int:
        return self.labels.shape[1]

    def top(self, k: int) -> Predictions:
        return Predictions(self.labels[:, :k], self.scores[:, :k])

    def above(self, threshold: float) -> Predictions:
        """Only the labels that score at least the threshold; the others become NO_LABEL."""
        keep = self.scores >= threshold
        return Predictions(np.where(keep, self.labels, NO_LABEL), np.where(keep, self.scores, 0).astype(np.float32))

    @staticmethod
    def stack(parts: list[Predictions]) -> Predictions:
        """One answer from the answers to consecutive batches of documents."""
        return Predictions(np.vstack([p.labels for p in parts]), np.vstack([p.scores for p in parts]))

    @staticmethod
    def from_dense(scores: np.ndarray, k: int) -> Predictions:
        """Top k of a full (n_docs, n_labels) score matrix; equal scores rank by label id."""
        k = min(k, scores.shape[1])
        labels = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(scores, labels, axis=1)
        return Predictions(labels.astype(np.int32), best.astype(np.float32))

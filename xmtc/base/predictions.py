"""Ranked answers as two plain padded arrays."""

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

    def above(self, threshold: float) -> Predictions:
        """Only the labels that score at least the threshold; the others become NO_LABEL."""
        keep = self.scores >= threshold
        return Predictions(np.where(keep, self.labels, NO_LABEL), np.where(keep, self.scores, 0).astype(np.float32))

    @staticmethod
    def stack(parts: list[Predictions]) -> Predictions:
        """One answer from the answers to consecutive batches of documents."""
        return Predictions(np.vstack([p.labels for p in parts]), np.vstack([p.scores for p in parts]))

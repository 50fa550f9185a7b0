"""Nearest-centroid method: a label is the mean of its documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmtc import Dataset, Explanation, Method, Model, Predictions, Run, array, param


@dataclass(frozen=True)
class Centroid(Method):
    """Cosine similarity to the mean of the documents of each label."""

    power: float = param(1.0, "Exponent of the summed weights.", low=0.1, search=(0.5, 2.0))

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> CentroidModel:
        assert data.Y is not None  # checked by fit; for type checkers
        sums = (data.Y.T @ data.X).toarray() ** self.power
        lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
        centroids = (sums / lengths).astype(np.float32)
        return CentroidModel(n_labels=data.n_labels, views=data.sizes, centroids=centroids)


@dataclass(frozen=True, kw_only=True)
class CentroidModel(Model):
    centroids: np.ndarray = array(np.float32, ndim=2)  # (n_labels, n_terms)

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        scores = np.clip(data.X @ self.centroids.T, 0, 1)
        labels = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
        return Predictions(labels, np.take_along_axis(scores, labels, axis=1).astype(np.float32))

    def _explain(self, document: Dataset, label: int) -> Explanation:
        (view,), X = self.views, document.X
        return Explanation.from_occurrences(view, X.indices, X.data * self.centroids[label, X.indices])

    def check(self) -> None:
        if self.centroids.shape != (self.n_labels, sum(self.views.values())):
            raise ValueError("centroids have the wrong shape")

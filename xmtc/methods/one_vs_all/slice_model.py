"""Model of Slice: a centroid and a linear classifier per label, and the search for labels with similar centroids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.methods.embedding.neighbours import build_index, search_approximate
from xmtc.methods.lexical.model import rank_scored_pairs
from xmtc.storage.form import array

ALL_LABELS = 0  # number of candidates that stands for every label
EXACT_SEARCH = 0  # number of edges of a search without an index
MAX_BATCH_TEXTS = 256
MAX_BATCH_VALUES = 2**24  # numbers of a batch: cosines and margins, or the weights of all candidates


class CentroidSearch:
    """Search for the labels whose centroids have the largest cosine with a vector; labels without one are not found."""

    def __init__(self, centroids: np.ndarray, edges: int, ef: int):
        self.is_found = centroids.any(axis=1)
        self.labels = np.flatnonzero(self.is_found)
        self.centroids = centroids.astype(np.float32)
        known = self.centroids[self.labels].T
        self.index = build_index(known, slice(0, len(self.labels)), edges, ef) if edges and len(self.labels) else None

    def find(self, vectors: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the n labels with the largest cosines and these, in any order; NO_LABEL where there are fewer."""
        if n == ALL_LABELS:
            labels = np.broadcast_to(
                np.where(self.is_found, np.arange(len(self.centroids)), NO_LABEL), (len(vectors), len(self.centroids))
            )
            return labels, vectors @ self.centroids.T
        n = min(n, len(self.labels))
        if self.index is not None:
            places, cosines = search_approximate(vectors, self.index, n)
            return np.where(places < 0, NO_LABEL, self.labels[places]), cosines
        cosines = vectors @ self.centroids[self.labels].T
        places = np.argpartition(-cosines, n - 1, axis=1)[:, :n] if n else np.zeros((len(vectors), 0), np.int64)
        return self.labels[places], np.take_along_axis(cosines, places, axis=1)


@dataclass(frozen=True, kw_only=True)
class SliceModel(Model):
    """Mean of two probabilities of each candidate: σ(w · x + b) of its classifier, and σ(scale cos(x, centroid))."""

    n_candidates: int  # labels whose centroids are nearest; ALL_LABELS: every label
    edges: int  # of the index, per label and level; EXACT_SEARCH: no index
    ef: int  # candidates of a search in the index
    scale: float  # of the cosines
    centroids: np.ndarray = array(np.float16, ndim=2)  # (n_labels, d), unit length, or zero without documents
    weights: np.ndarray = array(np.float16, ndim=2)  # (n_labels, d)
    biases: np.ndarray = array(np.float32)  # (n_labels,)

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        k, vectors, search = min(k, self.n_labels), data.X, self._search
        size = self._choose_batch_size()
        batches = [slice(i, i + size) for i in range(0, data.n_docs, size)]

        def rank(batch: slice) -> Predictions:
            rows = vectors[batch].toarray()
            labels, cosines = search.find(rows, self.n_candidates)
            scores = (expit(self._compute_margins(rows, labels)) + expit(self.scale * cosines)) / 2
            documents, places = np.nonzero(labels != NO_LABEL)
            pairs = documents, labels[documents, places], scores[documents, places].astype(np.float32)
            return rank_scored_pairs(*pairs, len(rows), k)

        empty = Predictions.from_valid_arrays(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        with threadpool_limits(1, "blas"):  # the batches run in parallel
            return Predictions.stack([empty, *run.map(rank, batches, "predicting", total=len(batches))])

    def _compute_margins(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the margins of the classifiers of some labels, shape (n_rows, n_candidates)."""
        weights, biases = self._float_weights, self.biases
        if self._has_index and self.n_candidates != ALL_LABELS:
            return np.matmul(weights[labels], rows[:, :, None])[:, :, 0] + biases[labels]
        return np.take_along_axis(rows @ weights.T + biases, labels, axis=1)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the contribution of each number to the mean of the two log odds, except for the similarity to the mean
        of all centroids, which is the same for all labels and part of the bias."""
        (view,) = self.views
        vector, centroids = document.X.toarray()[0], self._search.centroids
        common = centroids[self._search.labels].mean(axis=0) if len(self._search.labels) else centroids[label]
        contributions = vector * (self._float_weights[label] + self.scale * (centroids[label] - common)) / 2
        numbers = np.flatnonzero(contributions)
        bias = float(self.biases[label] + self.scale * (vector @ common)) / 2
        return Explanation.from_occurrences(view, numbers, contributions[numbers], bias=bias)

    def to_exhaustive(self) -> SliceModel:
        return self if self.n_candidates == ALL_LABELS else replace(self, n_candidates=ALL_LABELS)

    @property
    def _has_index(self) -> bool:
        return self.edges != EXACT_SEARCH

    @cached_property
    def _search(self) -> CentroidSearch:
        return CentroidSearch(self.centroids, self.edges, self.ef)

    @cached_property
    def _float_weights(self) -> np.ndarray:
        return self.weights.astype(np.float32)

    def _choose_batch_size(self) -> int:
        n_found, width = self.n_candidates or self.n_labels, self.centroids.shape[1]
        per_text = n_found * width if self._has_index and self.n_candidates != ALL_LABELS else 4 * self.n_labels
        return max(1, min(MAX_BATCH_TEXTS, MAX_BATCH_VALUES // max(per_text, 1)))

    def check(self) -> None:
        if len(self.views) != 1 or min(self.n_candidates, self.edges, self.ef) < 0 or not np.isfinite(self.scale):
            raise ValueError("its index has several views, a negative size or no finite scale")
        (width,) = self.views.values()
        for name, values in (("centroids", self.centroids), ("weights", self.weights)):
            if values.shape != (self.n_labels, width):
                raise ValueError(f"its {name} have the shape {values.shape}; expected {(self.n_labels, width)}")
            if not np.isfinite(values).all():
                raise ValueError(f"its {name} are not finite")
        if self.biases.shape != (self.n_labels,):
            raise ValueError(f"it has {len(self.biases)} biases; expected {self.n_labels}")

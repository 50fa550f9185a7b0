"""Model of Matcher: an index of label names and training documents, and a classifier of the labels found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from threadpoolctl import threadpool_limits

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.methods.lexical.match_classifier import apply_logistic
from xmtc.methods.lexical.model import rank_scored_pairs
from xmtc.methods.matcher.candidates import (
    ALL_LABELS,
    FEATURES,
    N_FEATURES,
    VOTE_FLOOR,
    MatchIndex,
    VectorSearch,
    project,
)
from xmtc.storage.form import array

MAX_BATCH_TEXTS = 256
MAX_BATCH_SIMILARITIES = 2**24  # numbers of a batch: one per text and vector, and all features


@dataclass(frozen=True, kw_only=True)
class MatcherModel(Model):
    """Probabilities of the labels whose names or training documents are similar to a text."""

    n_candidates: int  # labels with the most similar names; ALL_LABELS: every label
    index: MatchIndex
    weights: np.ndarray = array(np.float64)  # (N_FEATURES + 1,), the last is the intercept

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        k, queries = min(k, self.n_labels), data.X
        size = choose_batch_size(self._search, self.n_candidates)
        batches = [slice(i, i + size) for i in range(0, data.n_docs, size)]

        def rank(batch: slice) -> Predictions:
            vectors = queries[batch].toarray()
            rows, labels, features = self._search.find_candidates(vectors, self.n_candidates)
            scores = apply_logistic(features, self.weights).astype(np.float32)
            return rank_scored_pairs(rows, labels, scores, len(vectors), k)

        empty = Predictions.from_valid_arrays(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        with threadpool_limits(1, "blas"):  # the batches run in parallel
            return Predictions.stack([empty, *run.map(rank, batches, "matching texts", total=len(batches))])

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the product of each number of the text's vector and the derivative of the label's log odds by it."""
        (view,) = self.views
        vector = document.X.toarray()[0]
        contributions = vector * self.differentiate_by_vector(vector, label)
        numbers = np.flatnonzero(contributions)
        return Explanation.from_occurrences(view, numbers, contributions[numbers])

    def differentiate_by_vector(self, vector: np.ndarray, label: int) -> np.ndarray:
        """Return the derivative of a label's log odds by a text's vector, shape (d,).

        The derivative by the projected vector is a weighted sum of vectors of names and of nearest documents."""
        projection = self.index.projection
        query = project(vector[None], projection)
        by_query = self._differentiate(query, label)
        length = np.linalg.norm(vector + vector @ projection) or 1.0
        by_direction = (by_query - (by_query @ query.T) * query) / length  # without the change of length
        return np.asarray(by_direction + by_direction @ projection.T)[0]

    def _differentiate(self, query: np.ndarray, label: int) -> np.ndarray:
        """Return the derivative of a label's log odds by a projected vector, shape (1, d). Ranks are constant."""
        search = self._search
        is_unseen = search.frequencies[label] == 0
        weights = self.weights[:-1][is_unseen * len(FEATURES) :][: len(FEATURES)]
        by_name, by_difference, _, by_root, by_log, by_nearest, by_document, _ = weights

        similarities = search.names @ query[0]
        own = np.flatnonzero(self.index.name_labels == label)
        derivative = np.zeros(query.shape[1])
        if len(similarities):
            derivative -= by_difference * search.names[similarities.argmax()]
        if len(own):
            derivative += (by_name + by_difference) * search.names[own[similarities[own].argmax()]]
        (nearest,), _, (votes,) = search.find_neighbours(query)
        if len(nearest):
            documents, has_label = search.documents[nearest], self._mark_documents(nearest, label)
            share = votes[has_label].sum()
            by_share = by_log / (share + VOTE_FLOOR) + (by_root / (2 * share**0.5) if share > 0 else 0)
            of_votes = (votes * (has_label - share)) @ documents / self.index.temperature
            derivative += by_share * of_votes + by_document * documents[0]
            if has_label.any():
                derivative += by_nearest * documents[has_label.argmax()]
        return derivative[None]

    def _mark_documents(self, documents: np.ndarray, label: int) -> np.ndarray:
        """Return which documents have a label, shape (n,)."""
        begins, ends = self.index.offsets[documents], self.index.offsets[documents + 1]
        pairs = zip(begins.tolist(), ends.tolist(), strict=True)
        return np.array([label in self.index.labels[begin:end] for begin, end in pairs], bool)

    def to_exhaustive(self) -> MatcherModel:
        return self if self.n_candidates == ALL_LABELS else replace(self, n_candidates=ALL_LABELS)

    @cached_property
    def _search(self) -> VectorSearch:
        return VectorSearch(self.index)

    def check(self) -> None:
        if len(self.views) != 1 or self.n_candidates < 0:
            raise ValueError("its matcher has several views, or a negative number of candidates")
        self.index.check_sizes(self.n_labels, *self.views.values())
        if len(self.weights) != N_FEATURES + 1:
            raise ValueError(f"its matcher has {len(self.weights)} weights; expected {N_FEATURES + 1}")


def choose_batch_size(search: VectorSearch, n_candidates: int) -> int:
    """Return the number of texts whose similarities and features fit into a limited amount of memory."""
    n_labels = search.index.n_labels
    n_found = n_labels if n_candidates == ALL_LABELS else n_candidates
    per_text = search.n_vectors + n_labels + 4 * N_FEATURES * n_found
    return max(1, min(MAX_BATCH_TEXTS, MAX_BATCH_SIMILARITIES // max(per_text, 1)))

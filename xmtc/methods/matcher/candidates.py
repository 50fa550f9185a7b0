"""Search for the labels whose names or training documents are similar to a text, and features of each candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmtc.core.array_validation import is_offset_array
from xmtc.storage.form import Form, array

ALL_LABELS = 0  # number of candidates that stands for every label
MAX_RANK = 50  # ranks of names from here on are equal
VOTE_FLOOR = 1e-3  # added to votes before the logarithm is taken
FEATURES = (
    "similarity of the name",
    "difference to the most similar name",
    "logarithm of the rank of the name",
    "square root of the votes",
    "logarithm of the votes",
    "similarity of the nearest document with the label",
    "similarity of the nearest document",
    "logarithm of the number of documents",
)
N_FEATURES = 2 * len(FEATURES) + 1  # for unseen and for other labels, and whether a label is unseen


class MatchCandidates(NamedTuple):
    """Pairs of a text and a label, in the order of the texts and then of the labels."""

    rows: np.ndarray  # (n,) number of the text
    labels: np.ndarray  # (n,)
    features: np.ndarray  # (n, N_FEATURES) float64


@dataclass(frozen=True)
class MatchIndex(Form):
    """Projected vectors of label names and of training documents, of unit length, or zero without a known word."""

    n_labels: int
    n_neighbours: int
    temperature: float  # of the votes of neighbours
    projection: np.ndarray = array(np.float32, ndim=2)  # (d, d); the projection of x is x + x @ projection
    names: np.ndarray = array(np.float16, ndim=2)  # (n_names, d), in the order of their labels
    name_labels: np.ndarray = array(np.int32)  # (n_names,) ascending
    documents: np.ndarray = array(np.float16, ndim=2)  # (n_docs, d)
    offsets: np.ndarray = array(np.int64)  # (n_docs + 1,) document i has labels[offsets[i]:offsets[i + 1]]
    labels: np.ndarray = array(np.int32)

    def check_sizes(self, n_labels: int, width: int) -> None:
        """Raise ValueError if a search would read out of bounds."""
        if self.n_labels != n_labels or self.n_neighbours < 1 or not self.temperature > 0:
            raise ValueError("its index has another number of labels, no neighbours or no temperature")
        if self.projection.shape != (width, width):
            raise ValueError(f"its projection has the shape {self.projection.shape}; expected {(width, width)}")
        for name, rows, labels in (("names", self.names, self.name_labels), ("documents", self.documents, self.labels)):
            if rows.shape[1] != width:
                raise ValueError(f"its {name} have vectors of {rows.shape[1]} numbers; expected {width}")
            if labels.min(initial=0) < 0 or labels.max(initial=0) >= n_labels:
                raise ValueError(f"its {name} have labels out of range")
        if len(self.name_labels) != len(self.names) or (np.diff(self.name_labels) < 0).any():
            raise ValueError("its names do not have one label each, in ascending order")
        if not is_offset_array(self.offsets, len(self.documents), len(self.labels)):
            raise ValueError("its documents do not have one range of labels each")


class VectorSearch:
    """Exact search in an index, with its vectors in float32."""

    def __init__(self, index: MatchIndex):
        self.index = index
        self.names, self.documents = index.names.astype(np.float32), index.documents.astype(np.float32)
        self.name_starts = np.flatnonzero(np.diff(index.name_labels, prepend=-1))
        self.frequencies = np.bincount(index.labels, minlength=index.n_labels)

    @property
    def n_vectors(self) -> int:
        return len(self.names) + len(self.documents)

    def score_names(self, queries: np.ndarray) -> np.ndarray:
        """Return the similarity of each label's most similar name, shape (n_queries, n_labels); 0 without a name."""
        best = np.zeros((len(queries), self.index.n_labels), np.float32)
        if len(self.names):
            similarities = queries @ self.names.T
            best[:, self.index.name_labels[self.name_starts]] = np.maximum.reduceat(
                similarities, self.name_starts, axis=1
            )
        return best

    def find_neighbours(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the nearest documents, their similarities and their shares of the vote, each (n_queries, n), nearest
        first."""
        n = min(self.index.n_neighbours, len(self.documents))
        similarities = queries @ self.documents.T
        nearest = np.argpartition(-similarities, n - 1, axis=1)[:, :n] if n else np.zeros((len(queries), 0), np.int64)
        similarities = np.take_along_axis(similarities, nearest, axis=1)
        order = np.argsort(-similarities, axis=1, kind="stable")
        nearest = np.take_along_axis(nearest, order, axis=1)
        similarities = np.take_along_axis(similarities, order, axis=1)
        votes = np.exp((similarities - similarities[:, :1]) / np.float32(self.index.temperature))
        return nearest, similarities, votes / votes.sum(axis=1, keepdims=True)

    def find_candidates(self, queries: np.ndarray, n_candidates: int) -> MatchCandidates:
        """Return the labels of the most similar names and of the nearest documents, with their features."""
        n_labels, queries = self.index.n_labels, project(queries, self.index.projection)
        names = self.score_names(queries)
        ranked = rank_names(names, min(max(n_candidates, MAX_RANK), n_labels))
        neighbours = self.find_neighbours(queries)
        vote_keys, votes, nearest = self._sum_votes(*neighbours)
        first = np.arange(len(queries))[:, None] * n_labels
        if n_candidates == ALL_LABELS:
            keys = np.arange(len(queries) * n_labels)
        else:
            keys = np.union1d(vote_keys, (ranked[:, :n_candidates] + first).ravel())
        rows, labels = np.divmod(keys, n_labels)

        name_ranks = np.full(names.shape, MAX_RANK, np.int64)
        np.put_along_axis(name_ranks, ranked[:, :MAX_RANK], np.arange(min(MAX_RANK, n_labels))[None], axis=1)
        share, similarity = np.zeros(len(keys)), np.zeros(len(keys))
        places = np.searchsorted(keys, vote_keys)
        share[places], similarity[places] = votes, nearest
        top_document = neighbours[1].max(axis=1, initial=0)
        frequencies = self.frequencies[labels]
        columns = [
            names[rows, labels],
            names[rows, labels] - names.max(axis=1)[rows],
            np.log1p(name_ranks[rows, labels]),
            np.sqrt(share),
            np.log(share + VOTE_FLOOR),
            similarity,
            top_document[rows],
            np.log1p(frequencies),
        ]
        return MatchCandidates(
            rows, labels, separate_unseen(np.stack(columns, axis=1).astype(np.float64), frequencies == 0)
        )

    def _sum_votes(
        self, nearest: np.ndarray, similarities: np.ndarray, votes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pairs of a query and a label with votes, as ascending keys, with the votes of each and the
        similarity of the nearest document with the label."""
        offsets = self.index.offsets
        begins, lengths = offsets[nearest].ravel(), (offsets[nearest + 1] - offsets[nearest]).ravel()
        ends = np.cumsum(lengths)
        positions = np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - (ends - lengths), lengths)
        rows = np.repeat(np.repeat(np.arange(len(nearest)), nearest.shape[1]), lengths)
        pairs = rows * self.index.n_labels + self.index.labels[positions]
        # The first occurrence of a pair is that of the nearest document.
        keys, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        totals = np.bincount(inverse, np.repeat(votes.ravel(), lengths), len(keys))
        return keys, totals, np.repeat(similarities.ravel(), lengths)[first]


def rank_names(similarities: np.ndarray, n: int) -> np.ndarray:
    """Return the n labels with the most similar names of each query, most similar first; ties by label number."""
    top = np.sort(np.argpartition(-similarities, n - 1, axis=1)[:, :n], axis=1)
    order = np.argsort(-np.take_along_axis(similarities, top, axis=1), axis=1, kind="stable")
    return np.take_along_axis(top, order, axis=1)


def separate_unseen(features: np.ndarray, is_unseen: np.ndarray) -> np.ndarray:
    """Return the features in separate columns for unseen and for other labels, and whether a label is unseen."""
    unseen = is_unseen[:, None].astype(np.float64)
    return np.hstack([features * (1 - unseen), features * unseen, unseen])


def project(vectors: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """Return projected vectors of unit length; zero vectors stay zero."""
    projected = vectors + vectors @ projection
    lengths = np.linalg.norm(projected, axis=1, keepdims=True)
    return np.asarray(projected / np.where(lengths > 0, lengths, 1))

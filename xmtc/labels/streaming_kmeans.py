"""Labels as vectors that are never stored, for corpora whose label vectors would not fit into memory.

A label's vector is the sum of its documents, made of length 1. How far it leans to one of two centres is then the sum
of how far its documents do, and a centre is a sum of documents, too, each as often as it has labels there: halving a
million labels takes a few looks at the documents instead of at their labels' vectors, which hold many times as much.
Once a part is small enough, the vectors of its labels are made, for this one division."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.numba_support import kernel
from xmtc.core.run import MapFunction, Run
from xmtc.labels.balanced_kmeans import add_labels, dot_rows, halve, run_two_means, split_pieces
from xmtc.labels.vectors import LabelVectors, compute_sum_norms, input_space, sum_label_rows, sum_rows

MAX_STORED_VALUES = 2**29  # numbers of label vectors, at most, that are stored: 4 GiB
MAX_PART_VALUES = 2**25  # numbers of a part's label vectors, at most, that are made for one division


@dataclass(frozen=True)
class StreamedLabelVectors:
    X: csr_array  # documents
    Y: csr_array  # their labels
    members: csc_array  # the same, by label
    scale: np.ndarray  # (n_labels,) float32, one divided by the length of the label's sum; 0 where that is 0
    sizes: np.ndarray  # (n_labels,) int64, features of all of a label's documents

    @property
    def n_labels(self) -> int:
        return len(self.scale)

    def halve(self, part: np.ndarray, seed: np.random.SeedSequence, each: MapFunction = map) -> tuple[np.ndarray, ...]:
        """As `clustering.halve`, and with the same beginning."""
        if self.sizes[part].sum() <= MAX_PART_VALUES:
            among = np.arange(len(part))
            return tuple(part[half] for half in halve(LabelVectors(self.compute_vectors(part)), among, seed, each))
        first, second = np.random.default_rng(seed).choice(len(part), 2, replace=False)
        is_first = StreamedTwoMeans(self, part, each).run(first, second)
        return part[is_first], part[~is_first]

    def compute_vectors(self, part: np.ndarray) -> csr_array:
        """Of some labels."""
        counts = self.members.indptr[part + 1] - self.members.indptr[part]
        starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        among = np.repeat(self.members.indptr[part] - starts[:-1], counts) + np.arange(starts[-1])
        lengths, columns, values, _ = sum_rows(self.X, starts, self.members.indices[among])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return csr_array((values, columns, indptr), shape=(len(part), self.X.shape[1]))


def build_label_vectors(data: Dataset, run: Run = Run()) -> LabelVectors | StreamedLabelVectors:
    """Labels as the sums of their documents: stored, or not, if there are too many."""
    X, members = input_space(data), csc_array(data.Y)
    sizes = np.add.reduceat(np.append(np.diff(X.indptr)[members.indices].astype(np.int64), 0), members.indptr[:-1])
    sizes[np.diff(members.indptr) == 0] = 0
    if sizes.sum() <= MAX_STORED_VALUES:
        return LabelVectors(sum_label_rows(X, members, run))
    norms = compute_sum_norms(X, members, run)
    scale = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)
    return StreamedLabelVectors(X, csr_array(data.Y), members, scale, sizes)


@dataclass(frozen=True)
class StreamedTwoMeans:
    """One division by 2-means, through the documents of the part."""

    labels: StreamedLabelVectors
    part: np.ndarray
    each: MapFunction

    @cached_property
    def documents(self) -> np.ndarray:
        """Those with a label of the part."""
        is_ours = np.zeros(self.labels.X.shape[0], bool)
        mark_documents(self.labels.members.indptr, self.labels.members.indices, self.part, is_ours)
        return np.flatnonzero(is_ours)

    def run(self, first: int, second: int) -> np.ndarray:
        return run_two_means(self.add, self.dot, len(self.part), self.labels.X.shape[1], first, second)

    def add(self, total: np.ndarray, positions: np.ndarray, factors: np.ndarray) -> None:
        """Add labels of the part to `total`, each times its factor."""
        labels, Y = self.labels, self.labels.Y
        change, share = np.zeros(labels.n_labels, np.float32), np.zeros(len(self.documents), np.float32)
        change[self.part[positions]] = factors * labels.scale[self.part[positions]]
        pieces = split_pieces(np.diff(Y.indptr)[self.documents])
        weigh = partial(sum_label_factors, Y.indptr, Y.indices, change)
        list(self.each(lambda piece: weigh(self.documents[piece], share[piece]), pieces))
        added = np.flatnonzero(share)
        add_labels(total, labels.X, self.documents[added], share[added], self.each)

    def dot(self, vector: np.ndarray, products: np.ndarray) -> None:
        X, members = self.labels.X, self.labels.members
        of_document = np.zeros(X.shape[0], np.float32)
        found = np.empty(len(self.documents), np.float32)
        by_row = partial(dot_rows, X.indptr, X.indices, X.data)
        pieces = split_pieces(np.diff(X.indptr)[self.documents])
        list(self.each(lambda piece: by_row(self.documents[piece], vector, found[piece]), pieces))
        of_document[self.documents] = found
        by_label = partial(dot_labels, members.indptr, members.indices, of_document, self.labels.scale)
        pieces = split_pieces(np.diff(members.indptr)[self.part])
        list(self.each(lambda piece: by_label(self.part[piece], products[piece]), pieces))


@kernel
def mark_documents(indptr, indices, labels, is_ours):
    for label in labels:
        for i in range(indptr[label], indptr[label + 1]):
            is_ours[indices[i]] = True


@kernel
def sum_label_factors(indptr, indices, change, documents, share):
    """How often each document is added: the sum over its labels."""
    for position in range(len(documents)):
        total = np.float32(0)
        for i in range(indptr[documents[position]], indptr[documents[position] + 1]):
            total += change[indices[i]]
        share[position] = total


@kernel
def dot_labels(indptr, indices, of_document, scale, labels, products):
    """Labels' products with a vector: the sum over their documents, divided by the length of the label's sum."""
    for position in range(len(labels)):
        label, total = labels[position], np.float32(0)
        for i in range(indptr[label], indptr[label + 1]):
            total += of_document[indices[i]]
        products[position] = total * scale[label]

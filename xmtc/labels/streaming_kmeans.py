"""Balanced 2-means without stored label vectors, for corpora whose label vectors do not fit into memory.

A label vector is the normalised sum of the label's documents. Its dot product with a centre is therefore the sum of its
documents' products, and a centre is a weighted sum of documents. So a split of a million labels reads the documents a
few times instead of the label vectors, which are many times as large. For a part that is small enough, the label
vectors are computed for this one split."""

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

MAX_STORED_VALUES = 2**29  # values of all label vectors, at most 4 GiB; beyond that they are not stored
MAX_PART_VALUES = 2**25  # values of a part's label vectors that are computed for one split


@dataclass(frozen=True)
class StreamedLabelVectors:
    """Label vectors that are computed from the documents when needed."""

    X: csr_array  # documents
    Y: csr_array  # labels of the documents
    members: csc_array  # Y by column
    scale: np.ndarray  # (n_labels,) float32; 1 / norm of the label's sum, 0 where the norm is 0
    sizes: np.ndarray  # (n_labels,) int64; number of features of all documents of a label

    @property
    def n_labels(self) -> int:
        return len(self.scale)

    def halve(
        self, part: np.ndarray, seed: np.random.SeedSequence, parallel_map: MapFunction = map
    ) -> tuple[np.ndarray, ...]:
        """Split as `balanced_kmeans.halve` does, from the same initial centres."""
        if self.sizes[part].sum() <= MAX_PART_VALUES:
            vectors = LabelVectors(self.compute_vectors(part))
            return tuple(part[half] for half in halve(vectors, np.arange(len(part)), seed, parallel_map))
        first, second = np.random.default_rng(seed).choice(len(part), 2, replace=False)
        is_first = StreamedTwoMeans(self, part, parallel_map).run(first, second)
        return part[is_first], part[~is_first]

    def compute_vectors(self, part: np.ndarray) -> csr_array:
        """Return the vectors of some labels."""
        counts = self.members.indptr[part + 1] - self.members.indptr[part]
        starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        entries = np.repeat(self.members.indptr[part] - starts[:-1], counts) + np.arange(starts[-1])
        lengths, columns, values, _ = sum_rows(self.X, starts, self.members.indices[entries])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return csr_array((values, columns, indptr), shape=(len(part), self.X.shape[1]))


def build_label_vectors(data: Dataset, run: Run = Run()) -> LabelVectors | StreamedLabelVectors:
    """Return the label vectors in input space, streamed if they are too large to store."""
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
    """One split by 2-means that reads the documents of the part."""

    labels: StreamedLabelVectors
    part: np.ndarray
    parallel_map: MapFunction

    @cached_property
    def documents(self) -> np.ndarray:
        """Documents with a label of the part."""
        is_member = np.zeros(self.labels.X.shape[0], bool)
        mark_documents(self.labels.members.indptr, self.labels.members.indices, self.part, is_member)
        return np.flatnonzero(is_member)

    def run(self, first: int, second: int) -> np.ndarray:
        return run_two_means(self.add, self.dot, len(self.part), self.labels.X.shape[1], first, second)

    def add(self, total: np.ndarray, positions: np.ndarray, factors: np.ndarray) -> None:
        """Add labels of the part, times their factors, to `total`."""
        labels, Y = self.labels, self.labels.Y
        label_factors = np.zeros(labels.n_labels, np.float32)
        label_factors[self.part[positions]] = factors * labels.scale[self.part[positions]]
        document_factors = np.zeros(len(self.documents), np.float32)
        sum_factors = partial(sum_label_factors, Y.indptr, Y.indices, label_factors)
        pieces = split_pieces(np.diff(Y.indptr)[self.documents])
        list(self.parallel_map(lambda piece: sum_factors(self.documents[piece], document_factors[piece]), pieces))
        changed = np.flatnonzero(document_factors)
        add_labels(total, labels.X, self.documents[changed], document_factors[changed], self.parallel_map)

    def dot(self, vector: np.ndarray, products: np.ndarray) -> None:
        """Write the product of each label of the part with a vector."""
        X, members = self.labels.X, self.labels.members
        own_products = np.empty(len(self.documents), np.float32)
        dot_documents = partial(dot_rows, X.indptr, X.indices, X.data)
        pieces = split_pieces(np.diff(X.indptr)[self.documents])
        list(self.parallel_map(lambda piece: dot_documents(self.documents[piece], vector, own_products[piece]), pieces))
        document_products = np.zeros(X.shape[0], np.float32)
        document_products[self.documents] = own_products
        dot_parts = partial(dot_labels, members.indptr, members.indices, document_products, self.labels.scale)
        pieces = split_pieces(np.diff(members.indptr)[self.part])
        list(self.parallel_map(lambda piece: dot_parts(self.part[piece], products[piece]), pieces))


@kernel
def mark_documents(indptr, indices, labels, is_member):
    for label in labels:
        for i in range(indptr[label], indptr[label + 1]):
            is_member[indices[i]] = True


@kernel
def sum_label_factors(indptr, indices, label_factors, documents, document_factors):
    """Write the factor of each document: the sum of the factors of its labels."""
    for position in range(len(documents)):
        total = np.float32(0)
        for i in range(indptr[documents[position]], indptr[documents[position] + 1]):
            total += label_factors[indices[i]]
        document_factors[position] = total


@kernel
def dot_labels(indptr, indices, document_products, scale, labels, products):
    """Write the product of each label with a vector: the scaled sum of its documents' products."""
    for position in range(len(labels)):
        label, total = labels[position], np.float32(0)
        for i in range(indptr[label], indptr[label + 1]):
            total += document_products[indices[i]]
        products[position] = total * scale[label]

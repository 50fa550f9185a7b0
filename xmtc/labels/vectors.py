"""Labels as vectors of length 1: the sum of the features of the documents that carry them, the labels they occur with,
or both (Bonsai's three representations)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array, csr_array, hstack

from xmtc.core.dataset import Dataset, Tokens
from xmtc.core.memory import concatenate_and_free
from xmtc.core.numba_support import kernel
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr, normalise_rows, scale_rows

MAX_BATCH_LABELS = 1024  # summed by one thread at a time, at most
MIN_PARTS = 64  # into which the labels are cut at least, so that every thread has some

LabelSums = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # of some labels: see sum_rows


@dataclass(frozen=True)
class LabelVectors:
    # (n_labels, n) float32, rows of length 1; empty for labels without documents, and where these add up to nothing
    matrix: csr_array

    @property
    def n_labels(self) -> int:
        return self.matrix.shape[0]

    @classmethod
    def from_documents(cls, data: Dataset, run: Run = Run()) -> LabelVectors:
        """Input space: the normalised sum of a label's documents."""
        return cls(sum_label_rows(input_space(data), csc_array(data.Y), run))

    @classmethod
    def from_words(cls, tokens: Tokens, Y: csr_array, run: Run = Run()) -> LabelVectors:
        """Input space where documents are sequences of words: the normalised sum of their tf-idf."""
        counts = tokens.to_count_matrix()
        df = np.bincount(counts.indices, minlength=tokens.size)
        idf = 1 + np.log((1 + tokens.n_docs) / (1 + df))
        counts.data = ((1 + np.log(counts.data)) * idf[counts.indices]).astype(np.float32)
        return cls(sum_label_rows(normalise_rows(counts), csc_array(Y), run))

    @classmethod
    def from_labels(cls, data: Dataset, run: Run = Run()) -> LabelVectors:
        """Output space: how often a label occurs with every label, itself included."""
        return cls(sum_label_rows(scale_rows(csr_array(data.Y), data.weights), csc_array(data.Y), run))

    @classmethod
    def from_both(cls, data: Dataset, run: Run = Run()) -> LabelVectors:
        """Joint space: input and output side by side."""
        both = (cls.from_documents(data, run).matrix, cls.from_labels(data, run).matrix)
        return cls(normalise_rows(csr_array(hstack(both, format="csr"))))


def input_space(data: Dataset) -> csr_array:
    """Documents as they are added up: by their leading features, if some are named so, and with their weights."""
    X = data.X if not data.bag.n_cluster_columns else normalise_rows(csr_array(data.X[:, : data.bag.n_cluster_columns]))
    return scale_rows(X, data.weights)


def sum_label_rows(X: csr_array, members: csc_array, run: Run) -> csr_array:
    """For every column of `members`, the sum of the rows of X that belong to it, divided by its length."""
    parts = list(iterate_label_sums(X, members, run))
    lengths, indices, values = ([part[i] for part in parts] for i in range(3))
    parts.clear()
    indptr = narrow_indptr(np.concatenate([[0], np.cumsum(np.concatenate(lengths))]))
    return csr_array(
        (concatenate_and_free(values), concatenate_and_free(indices), indptr), shape=(members.shape[1], X.shape[1])
    )


def compute_sum_norms(X: csr_array, members: csc_array, run: Run) -> np.ndarray:
    """(n_labels,) float64, the lengths that `sums_of_rows` divides by. Of the sums, only some are there at a time."""
    return np.concatenate([norms for *_, norms in iterate_label_sums(X, members, run)])


def iterate_label_sums(X: csr_array, members: csc_array, run: Run) -> Iterator[LabelSums]:
    """`sum_rows` of all labels, some at a time."""
    n_labels = members.shape[1]
    shares = np.arange(1, MIN_PARTS) * members.nnz // MIN_PARTS  # labels have unequal numbers of documents
    cuts = np.unique([*range(0, n_labels, MAX_BATCH_LABELS), *np.searchsorted(members.indptr, shares), n_labels])

    def sums(part: tuple[int, int]) -> LabelSums:
        return sum_rows(X, members.indptr[part[0] : part[1] + 1], members.indices)

    bounds = list(pairwise(cuts))
    return run.map_on_cluster(sums, bounds, "summing labels", total=len(bounds))


def sum_rows(X: csr_array, starts: np.ndarray, documents: np.ndarray) -> LabelSums:
    """Of each label, whose documents are documents[starts[l]:starts[l + 1]], the sum of their rows divided by its
    length: how many features it has, which, their values, and the length."""
    n_labels, n_features = len(starts) - 1, X.shape[1]
    summed = documents[starts[0] : starts[-1]]
    capacity = int((X.indptr[summed + 1].astype(np.int64) - X.indptr[summed]).sum())
    lengths, norms = np.empty(n_labels, np.int64), np.empty(n_labels, np.float64)
    columns, values = np.empty(capacity, np.int32), np.empty(capacity, np.float32)
    total, seen_by = np.zeros(n_features, np.float32), np.full(n_features, -1, np.int32)

    n = write_label_sums(
        X.indptr, X.indices, X.data, starts, documents, total, seen_by, lengths, columns, values, norms
    )
    return lengths, columns[:n].copy(), values[:n].copy(), norms


@kernel
def write_label_sums(indptr, indices, data, starts, documents, total, seen_by, lengths, columns, values, norms):
    """`sum_rows`, written into its last four arguments; returns how many values there are. `total` holds the sum of
    one label at a time, in the columns that this label is the last to have been seen by."""
    n = np.int64(0)
    for label in range(len(lengths)):
        begin = n
        for i in range(starts[label], starts[label + 1]):
            for k in range(indptr[documents[i]], indptr[documents[i] + 1]):
                column = np.uint32(indices[k])
                if seen_by[column] != label:
                    seen_by[column] = label
                    total[column] = 0
                    columns[n] = column
                    n += 1
                total[column] += data[k]
        square = 0.0
        for i in range(begin, n):
            square += total[columns[i]] * total[columns[i]]
        if not 1e-30 < square < 1e30:  # in float32, squares may have vanished or become infinite
            square = 0.0
            for i in range(begin, n):
                square += np.float64(total[columns[i]]) * np.float64(total[columns[i]])
        if square == 0:
            n = begin
        for i in range(begin, n):
            values[i] = total[columns[i]] / np.sqrt(square)
        lengths[label], norms[label] = n - begin, np.sqrt(square)
    return n

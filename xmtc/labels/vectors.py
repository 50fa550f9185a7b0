"""Label vectors of unit length in the three representations of Bonsai: input space (sum of the features of the label's
documents), output space (co-occurring labels) and joint space (both)."""

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

MAX_BATCH_LABELS = 1024  # labels that one thread sums at a time
MIN_PARTS = 64  # parts of the labels, so that every thread has work

LabelSums = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # result of sum_rows


@dataclass(frozen=True)
class LabelVectors:
    """Stored label vectors."""

    matrix: csr_array  # (n_labels, n) float32; unit-length rows, empty for labels whose sum is zero

    @property
    def n_labels(self) -> int:
        return self.matrix.shape[0]

    @classmethod
    def from_documents(cls, data: Dataset, run: Run = Run()) -> LabelVectors:
        """Return the vectors in input space: normalised sums of the documents of each label."""
        return cls(sum_label_rows(input_space(data), csc_array(data.Y), run))

    @classmethod
    def from_words(cls, tokens: Tokens, Y: csr_array, run: Run = Run()) -> LabelVectors:
        """Return the vectors in input space for sequences of words: normalised sums of their tf-idf."""
        counts = tokens.to_count_matrix()
        df = np.bincount(counts.indices, minlength=tokens.size)
        idf = 1 + np.log((1 + tokens.n_docs) / (1 + df))
        counts.data = ((1 + np.log(counts.data)) * idf[counts.indices]).astype(np.float32)
        return cls(sum_label_rows(normalise_rows(counts), csc_array(Y), run))

    @classmethod
    def from_labels(cls, data: Dataset, run: Run = Run()) -> LabelVectors:
        """Return the vectors in output space: co-occurrence counts with every label, itself included."""
        return cls(sum_label_rows(scale_rows(csr_array(data.Y), data.weights), csc_array(data.Y), run))

    @classmethod
    def from_both(cls, data: Dataset, run: Run = Run()) -> LabelVectors:
        """Return the vectors in joint space: input and output space side by side."""
        both = (cls.from_documents(data, run).matrix, cls.from_labels(data, run).matrix)
        return cls(normalise_rows(csr_array(hstack(both, format="csr"))))


def input_space(data: Dataset) -> csr_array:
    """Return the weighted documents, restricted to the clustering columns if the bag has such."""
    X = data.X if not data.bag.n_cluster_columns else normalise_rows(csr_array(data.X[:, : data.bag.n_cluster_columns]))
    return scale_rows(X, data.weights)


def sum_label_rows(X: csr_array, members: csc_array, run: Run) -> csr_array:
    """Return, for every column of `members`, the normalised sum of its rows of X."""
    parts = list(iterate_label_sums(X, members, run))
    lengths, indices, values = ([part[i] for part in parts] for i in range(3))
    parts.clear()
    indptr = narrow_indptr(np.concatenate([[0], np.cumsum(np.concatenate(lengths))]))
    return csr_array(
        (concatenate_and_free(values), concatenate_and_free(indices), indptr), shape=(members.shape[1], X.shape[1])
    )


def compute_sum_norms(X: csr_array, members: csc_array, run: Run) -> np.ndarray:
    """Return the norms by which `sum_label_rows` divides, shape (n_labels,), without storing all sums."""
    return np.concatenate([norms for *_, norms in iterate_label_sums(X, members, run)])


def iterate_label_sums(X: csr_array, members: csc_array, run: Run) -> Iterator[LabelSums]:
    """Yield the result of `sum_rows` for consecutive parts of the labels."""
    n_labels = members.shape[1]
    shares = np.arange(1, MIN_PARTS) * members.nnz // MIN_PARTS  # labels have unequal numbers of documents
    cuts = np.unique([*range(0, n_labels, MAX_BATCH_LABELS), *np.searchsorted(members.indptr, shares), n_labels])

    def sums(part: tuple[int, int]) -> LabelSums:
        return sum_rows(X, members.indptr[part[0] : part[1] + 1], members.indices)

    bounds = list(pairwise(cuts))
    return run.map_on_cluster(sums, bounds, "summing labels", total=len(bounds))


def sum_rows(X: csr_array, starts: np.ndarray, documents: np.ndarray) -> LabelSums:
    """Return the normalised sum of the rows of each label's documents, documents[starts[l]:starts[l + 1]], as
    (features per label, columns, values, norms)."""
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
    """Write the result of `sum_rows` into the last four arguments and return the number of values. `total` has the sum
    of the current label in the columns whose `seen_by` is this label."""
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
        if not 1e-30 < square < 1e30:  # float32 squares may underflow or overflow
            square = 0.0
            for i in range(begin, n):
                square += np.float64(total[columns[i]]) * np.float64(total[columns[i]])
        if square == 0:
            n = begin
        for i in range(begin, n):
            values[i] = total[columns[i]] / np.sqrt(square)
        lengths[label], norms[label] = n - begin, np.sqrt(square)
    return n

"""Labels as vectors: the normalised sum of the features of the documents that carry them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.compiled import kernel
from xmtc.data.dataset import Dataset
from xmtc.run import Run

LABELS = 1024  # summed by one thread at a time


@dataclass(frozen=True)
class LabelVectors:
    matrix: csr_array  # (n_labels, n_features) float32, rows of length 1, or empty for labels without documents

    @property
    def n_labels(self) -> int:
        return self.matrix.shape[0]

    @classmethod
    def from_documents(cls, data: Dataset, run: Run = Run()) -> LabelVectors:
        X, Y = data.X, csc_array(data.Y)
        starts = range(0, data.n_labels, LABELS)

        def sums(start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            ends = Y.indptr[start : start + LABELS + 1]
            return sum_rows(X.indptr, X.indices, X.data, X.shape[1], ends, Y.indices)

        parts = list(run.map(sums, starts, "summing labels", total=len(starts)))
        lengths = np.concatenate([lengths for lengths, _, _ in parts])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        indices, values = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        return cls(csr_array((values, indices, indptr), shape=(data.n_labels, data.n_features)))


@kernel
def sum_rows(indptr, indices, data, n_features, ends, documents):
    """Of each label, whose documents are documents[ends[l]:ends[l + 1]], the sum of their rows divided by its length:
    how many features it has, which, and their values."""
    n_labels, capacity = len(ends) - 1, 0
    for i in range(ends[0], ends[-1]):
        capacity += indptr[documents[i] + 1] - indptr[documents[i]]
    lengths = np.zeros(n_labels, np.int64)
    columns, values = np.empty(capacity, np.int32), np.empty(capacity, np.float32)
    total, place, n = np.zeros(n_features, np.float32), np.full(n_features, -1, np.int32), 0
    for label in range(n_labels):
        begin = n
        for i in range(ends[label], ends[label + 1]):
            for k in range(indptr[documents[i]], indptr[documents[i] + 1]):
                column = indices[k]
                if place[column] != label:
                    place[column] = label
                    total[column] = 0
                    columns[n] = column
                    n += 1
                total[column] += data[k]
        square = 0.0
        for i in range(begin, n):
            square += total[columns[i]] * total[columns[i]]
        for i in range(begin, n):
            values[i] = total[columns[i]] / np.sqrt(square)
        lengths[label] = n - begin
    return lengths, columns[:n].copy(), values[:n].copy()

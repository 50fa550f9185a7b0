"""What a method trains on and a model predicts from: arrays only, no text and no names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array


@dataclass(frozen=True)
class Dataset:
    """Documents as rows: features X, and the labels Y where they are known."""

    X: csr_array  # (n_docs, n_features) float32
    Y: csr_array | None = None  # (n_docs, n_labels) float32, ones at the labels

    @property
    def n_docs(self) -> int:
        return self.X.shape[0]

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @property
    def n_labels(self) -> int:
        return 0 if self.Y is None else self.Y.shape[1]

    def fingerprint(self) -> str:
        """The same for the same matrices alone."""
        found = hashlib.blake2b(digest_size=16)
        for matrix in (self.X, self.Y):
            if matrix is not None:
                for part in (np.array(matrix.shape), matrix.indptr, matrix.indices, matrix.data):
                    found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()

    def rows(self, index: np.ndarray | slice) -> Dataset:
        """The documents at the given rows."""
        return Dataset(self.X[index], None if self.Y is None else self.Y[index])

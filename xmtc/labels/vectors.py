"""Labels as vectors: the normalised sum of the features of the documents that carry them."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.sparse import csr_array

from xmtc.data.dataset import Dataset
from xmtc.data.given import with_unit_rows


@dataclass(frozen=True)
class LabelVectors:
    matrix: csr_array  # (n_labels, n_features) float32, rows of length 1, or empty for labels without documents

    @property
    def n_labels(self) -> int:
        return self.matrix.shape[0]

    @classmethod
    def from_documents(cls, data: Dataset) -> LabelVectors:
        assert data.Y is not None
        return cls(with_unit_rows(csr_array(data.Y.T.tocsr() @ data.X)))

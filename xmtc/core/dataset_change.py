"""Change of the training data of a model, for methods that train only what it affects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.method import Model
from xmtc.core.training_store import renumber_columns

NO_ROW = -1  # stored row of a document that has changed


@dataclass(frozen=True)
class DatasetChange:
    """Training data before and after an update."""

    old: Dataset
    new: Dataset
    rejected: csr_array  # (n_docs, n_labels), ones at labels of new documents that a person has rejected
    stored_rows: np.ndarray  # (n_docs,), the same document in `old`, or NO_ROW
    targets: np.ndarray  # (n_old_labels,), new number of each old label, or NO_LABEL
    columns: np.ndarray  # number of each old column of the only bag in the new one; the old documents have the new ones
    pending: np.ndarray  # (n_classifiers,) float32, `ModelUpdate.pending` of the update before; empty after a training

    @cached_property
    def old_labels(self) -> csr_array:
        """Old documents with their labels in the new numbers."""
        assert self.old.Y is not None
        return renumber_columns(self.old.Y, self.targets, self.new.n_labels)

    @cached_property
    def added_rows(self) -> np.ndarray:
        """Rows of new documents that are new, or have other features or labels than before."""
        assert self.new.Y is not None
        is_added = self.stored_rows == NO_ROW
        assert self.old.Y is not None
        kept = np.flatnonzero(~is_added)
        lost = np.diff(self.old.Y.indptr) != np.diff(self.old_labels.indptr)  # documents of removed labels
        is_added[kept[lost[self.stored_rows[kept]]]] = True
        return np.flatnonzero(is_added)

    @cached_property
    def removed_rows(self) -> np.ndarray:
        """Rows of old documents without an equal new one."""
        is_kept = np.zeros(self.old.n_docs, bool)
        equal = np.delete(self.stored_rows, self.added_rows)
        is_kept[equal] = True
        return np.flatnonzero(~is_kept)


class ModelUpdate(NamedTuple):
    """Model after an update, and how much of it was trained."""

    model: Model
    n_trained: int  # classifiers
    n_classifiers: int
    pending: np.ndarray  # (n_classifiers,) float32, loss of changes that each classifier has not been trained on

"""Training data that a model keeps for updates: ids, features and labels of its documents, without their texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import is_offset_array
from xmtc.core.dataset import Bag, Dataset, LabelNames, Tokens
from xmtc.core.predictions import NO_LABEL
from xmtc.core.sparse import narrow_indptr
from xmtc.storage.form import Form, array

NAME_VIEWS = "tokens", "vectors", "subwords"  # of LabelNames


class StoredView(Form, ABC):
    """Documents in one view."""

    @abstractmethod
    def to_view(self) -> Bag | Tokens:
        """Return the documents, validated."""


@dataclass(frozen=True)
class StoredBag(StoredView):
    """Rows of a sparse matrix; fields as in `Bag`."""

    n_columns: int
    n_cluster_columns: int
    weight_scale: float
    indptr: np.ndarray = array(np.int64)
    indices: np.ndarray = array(np.int32)
    values: np.ndarray = array(np.float32)

    def to_view(self) -> Bag:
        matrix = csr_array(
            (self.values, self.indices, narrow_indptr(self.indptr)), shape=(len(self.indptr) - 1, self.n_columns)
        )
        return Bag(matrix, None, self.n_cluster_columns, self.weight_scale)


@dataclass(frozen=True)
class StoredTokens(StoredView):
    """Sequences of token ids; fields as in `Tokens`."""

    size: int
    ids: np.ndarray = array(np.int32, np.int64, np.uint16, np.uint32)
    offsets: np.ndarray = array(np.int64, np.int32)

    def to_view(self) -> Tokens:
        return Tokens(self.ids, self.offsets, self.size)


@dataclass(frozen=True)
class StoredNames(Form):
    """Names of labels; `views` are those of `LabelNames` that are not None, by the name of their field."""

    views: dict[str, StoredView]
    labels: np.ndarray = array(np.int32)
    preferred: np.ndarray = array(np.bool_)

    @classmethod
    def from_names(cls, names: LabelNames) -> StoredNames:
        views = {name: getattr(names, name) for name in NAME_VIEWS}
        stored = {name: store_view(view) for name, view in views.items() if view is not None}
        return cls(stored, names.labels, names.preferred)

    def to_names(self) -> LabelNames:
        """Return the names, validated."""
        views: dict[str, Any] = {name: view.to_view() for name, view in self.views.items()}
        return LabelNames(
            labels=self.labels, preferred=self.preferred, **{name: views.get(name) for name in NAME_VIEWS}
        )

    def validate(self, n_labels: int) -> None:
        """Raise ValueError unless each name has a label and features."""
        is_valid = len(self.labels) == len(self.preferred) and set(self.views) <= set(NAME_VIEWS)
        if not is_valid or self.labels.min(initial=0) < 0 or self.labels.max(initial=-1) >= n_labels:
            raise ValueError("the names of its labels are not names of labels of the model")
        for view in self.views.values():
            check_offsets(view, len(self.labels), "the names of its labels do not have features each")
        self.to_names()


@dataclass(frozen=True)
class TrainingStore(Form):
    """Training documents of a model: identity, features, labels and rejected labels."""

    views: dict[str, StoredView]
    n_labels: int
    n_changed: int  # documents that changed since the last training from scratch
    id_text: np.ndarray = array(np.uint8)  # concatenated ids; empty ids for documents without one of their own
    id_ends: np.ndarray = array(np.int64)  # (n_docs + 1,)
    hashes: np.ndarray = array(np.uint64)  # (n_docs,), of the contents
    label_ends: np.ndarray = array(np.int64)  # (n_docs + 1,); document i has labels[label_ends[i]:label_ends[i + 1]]
    labels: np.ndarray = array(np.int32)
    rejected_ends: np.ndarray = array(np.int64)  # (n_docs + 1,)
    rejected: np.ndarray = array(np.int32)  # labels that a person has rejected
    weights: np.ndarray = array(np.float32)  # (n_docs,), or (0,) if all documents count alike
    is_name: np.ndarray = array(np.bool_)  # (n_docs,), rows that are names of labels, or (0,) if there are none
    pending: np.ndarray = array(np.float32)  # `ModelUpdate.pending` of the last update, or (0,) after a training
    names: tuple[StoredNames, ...] = ()  # one item if the method reads names of labels

    @classmethod
    def from_dataset(
        cls,
        data: Dataset,
        ids: Sequence[str],
        hashes: Sequence[int] | np.ndarray,
        rejected: csr_array | None = None,
        n_changed: int = 0,
        pending: np.ndarray | None = None,
    ) -> TrainingStore:
        """Store documents with their labels; names of labels may follow the documents, and have no ids and hashes."""
        assert data.Y is not None
        n_names = data.n_docs - len(ids)
        ids, hashes = [*ids, *[""] * n_names], np.append(np.array(hashes, np.uint64), np.zeros(n_names, np.uint64))
        encoded = [id.encode("utf-8", "replace") for id in ids]
        no_rejected = csr_array(data.Y.shape, dtype=np.float32)
        negatives = no_rejected if rejected is None else rejected
        return cls(
            views={name: store_view(view) for name, view in data.views.items()},
            n_labels=data.n_labels,
            n_changed=n_changed,
            id_text=np.frombuffer(b"".join(encoded), np.uint8),
            id_ends=np.concatenate([[0], np.cumsum([len(id) for id in encoded])]).astype(np.int64),
            hashes=hashes,
            label_ends=data.Y.indptr.astype(np.int64),
            labels=data.Y.indices.astype(np.int32),
            rejected_ends=negatives.indptr.astype(np.int64),
            rejected=negatives.indices.astype(np.int32),
            weights=np.zeros(0, np.float32) if data.weights is None else data.weights,
            is_name=np.zeros(0, bool) if data.is_name is None else data.is_name,
            pending=np.zeros(0, np.float32) if pending is None else pending,
            names=() if data.names is None else (StoredNames.from_names(data.names),),
        )

    @property
    def n_docs(self) -> int:
        return len(self.hashes)

    @property
    def n_bytes(self) -> int:
        """Size of all arrays in bytes."""
        forms: list[Form] = [self, *self.views.values()]
        forms += [form for names in self.names for form in (names, *names.views.values())]
        values = [getattr(form, field.name) for form in forms for field in fields(form)]  # type: ignore[arg-type]
        return sum(value.nbytes for value in values if isinstance(value, np.ndarray))

    def read_ids(self) -> list[str]:
        text, ends = bytes(self.id_text), self.id_ends.tolist()
        return [text[ends[i] : ends[i + 1]].decode(errors="replace") for i in range(self.n_docs)]

    def to_dataset(self) -> Dataset:
        """Return the documents with their labels, validated."""
        views = {name: view.to_view() for name, view in self.views.items()}
        weights, is_name = (part if len(part) else None for part in (self.weights, self.is_name))
        names = self.names[0].to_names() if self.names else None
        return Dataset(views, self.label_matrix(), weights, names, is_name)

    def label_matrix(self) -> csr_array:
        return build_indicator(self.label_ends, self.labels, self.n_labels)

    def rejected_matrix(self) -> csr_array:
        return build_indicator(self.rejected_ends, self.rejected, self.n_labels)

    def with_labels(self, targets: np.ndarray, n_labels: int) -> TrainingStore:
        """Return a copy with other labels; `targets` has the new number of each label, or NO_LABEL."""
        matrices = (renumber_columns(m, targets, n_labels) for m in (self.label_matrix(), self.rejected_matrix()))
        Y, rejected = matrices
        return replace(
            self,
            n_labels=n_labels,
            label_ends=Y.indptr.astype(np.int64),
            labels=Y.indices.astype(np.int32),
            rejected_ends=rejected.indptr.astype(np.int64),
            rejected=rejected.indices.astype(np.int32),
            names=tuple(StoredNames.from_names(names.to_names().with_labels(targets)) for names in self.names),
        )

    def check(self) -> None:
        n = self.n_docs
        if not n or not is_offset_array(self.id_ends, n, len(self.id_text)) or len(self.weights) not in (0, n):
            raise ValueError("its training documents do not have one id and weight each")
        if len(self.is_name) not in (0, n):
            raise ValueError("it does not say which training documents are names of labels")
        for ends, labels in ((self.label_ends, self.labels), (self.rejected_ends, self.rejected)):
            is_valid = is_offset_array(ends, n, len(labels))
            if not is_valid or labels.min(initial=0) < 0 or labels.max(initial=-1) >= self.n_labels:
                raise ValueError("the labels of its training documents are not labels of the model")
        if self.n_changed < 0:
            raise ValueError("fewer than no training documents have changed")
        for view in self.views.values():
            check_offsets(view, n, "its training documents do not have features each")
        for names in self.names:
            names.validate(self.n_labels)
        self.to_dataset()


def check_offsets(view: StoredView, n_rows: int, problem: str) -> None:
    """Raise ValueError unless a view has this number of rows."""
    offsets, size = (
        (view.indptr, len(view.indices)) if isinstance(view, StoredBag) else (view.offsets, len(view.ids))  # type: ignore[attr-defined]
    )
    if not is_offset_array(offsets, n_rows, size):
        raise ValueError(problem)


def store_view(view: Bag | Tokens) -> StoredView:
    if isinstance(view, Tokens):
        return StoredTokens(view.size, view.ids, view.offsets)
    matrix = view.matrix
    return StoredBag(
        n_columns=matrix.shape[1],
        n_cluster_columns=view.n_cluster_columns,
        weight_scale=view.weight_scale,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32, copy=False),
        values=matrix.data,
    )


def build_indicator(ends: np.ndarray, labels: np.ndarray, n_labels: int) -> csr_array:
    """Return ones at the labels of each document."""
    indptr = narrow_indptr(np.array(ends))
    return csr_array((np.ones(len(labels), np.float32), np.array(labels), indptr), shape=(len(ends) - 1, n_labels))


def renumber_columns(matrix: csr_array, targets: np.ndarray, n_columns: int) -> csr_array:
    """Return an indicator matrix with column i as column targets[i], dropped if that is NO_LABEL."""
    rows, columns = matrix.nonzero()
    new = targets[columns]
    rows, new = rows[new != NO_LABEL], new[new != NO_LABEL]
    renumbered = csr_array((np.ones(len(new), np.float32), (rows, new)), shape=(matrix.shape[0], n_columns))
    renumbered.sum_duplicates()
    renumbered.data[:] = 1
    return renumbered

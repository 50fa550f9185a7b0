"""What a method trains on and a model predicts from: arrays only, no text and no names of labels.

A document can be seen in several views: as a bag of terms (Bag) or as a sequence of tokens (Tokens). A Dataset holds
those that a method reads, by name, and the labels beside them.

All three look at the arrays that they are given, once, and convert what can be converted: a dense array or another
kind of sparse matrix, other types of numbers. What is derived from them is not looked at again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import (
    as_document_weights,
    as_feature_matrix,
    as_label_matrix,
    as_token_ids,
    as_token_offsets,
    construct_unchecked,
)
from xmtc.core.sparse import narrow_indptr
from xmtc.errors import XmtcError

Index = np.ndarray | slice


class Terms(Protocol):
    """What the columns of a Bag, or the ids of Tokens, stand for."""

    def __len__(self) -> int: ...

    def words(self) -> list[str]: ...


@dataclass(frozen=True)
class Bag:
    """Documents as rows of a sparse matrix."""

    matrix: csr_array  # (n_docs, size) float32, finite; columns rise within each row
    vocabulary: Terms | None = None  # the term of each column, where they have one
    n_cluster_columns: int = 0  # the first columns, by which alone labels are clustered; 0: all
    weight_scale: float = 1.0  # how small weights are expected, where documents have many terms for each word

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", as_feature_matrix(self.matrix))

    @property
    def n_docs(self) -> int:
        return self.matrix.shape[0]

    @property
    def size(self) -> int:
        """Columns."""
        return self.matrix.shape[1]

    def select_rows(self, index: Index) -> Bag:
        """The documents at these rows."""
        return self.copy_with(matrix=self.matrix[index])

    def copy_with(self, **values: Any) -> Bag:
        """With other values of some fields, which follow from those that were checked."""
        return construct_unchecked(Bag, **(vars(self) | values))

    def arrays(self) -> Iterator[np.ndarray]:
        """Every number, and the shapes that tell where one array ends and the next begins."""
        return iterate_csr_arrays(self.matrix)


@dataclass(frozen=True)
class Tokens:
    """Documents as sequences of tokens: their ids end to end, and the offset of each document."""

    ids: np.ndarray  # (n,) int32, in [0, size)
    offsets: np.ndarray  # (n_docs + 1,) int64, document i is ids[offsets[i]:offsets[i + 1]]
    size: int  # ids that there are
    vocabulary: Terms | None = None  # of words: the word of each id from 1 on; 0 is the unknown word
    encoder: str = ""  # of subwords in training: the folder or hub name of the encoder that they are read by

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", int(self.size))
        object.__setattr__(self, "ids", as_token_ids(self.ids, self.size))
        object.__setattr__(self, "offsets", as_token_offsets(self.offsets, len(self.ids)))

    @property
    def n_docs(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(n_docs,) int64, how many tokens each document has."""
        return np.diff(self.offsets)

    def select_rows(self, index: Index) -> Tokens:
        """The documents at these rows."""
        begins, lengths = self.offsets[:-1][index], self.lengths[index]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        return self.copy_with(ids=self.ids[positions], offsets=offsets)

    def copy_with(self, **values: Any) -> Tokens:
        """With other values of some fields, which follow from those that were checked."""
        return construct_unchecked(Tokens, **(vars(self) | values))

    def to_count_matrix(self) -> csr_array:
        """(n_docs, size) float32: how often each word occurs in each document; the unknown word is left out."""
        known = self.ids != 0
        ends = np.concatenate([[0], np.cumsum(known)])[self.offsets]
        ids = self.ids[known]
        counted = csr_array((np.ones(len(ids), np.float32), ids, narrow_indptr(ends)), shape=(self.n_docs, self.size))
        counted.sum_duplicates()
        return counted

    def arrays(self) -> Iterator[np.ndarray]:
        """Every number, and the shapes that tell where one array ends and the next begins."""
        yield from (np.array([self.n_docs, self.size]), self.offsets, self.ids)
        if self.encoder:
            yield np.frombuffer(self.encoder.encode(errors="replace"), np.uint8)


@dataclass(frozen=True)
class LabelNames:
    """What the labels of a Dataset are called, for methods that look for names in texts: each name is a short document
    in the same view as the texts. Labels that no document has may be among them."""

    tokens: Tokens  # a document for each name
    labels: np.ndarray  # (n_names,) int32, whose name it is
    preferred: np.ndarray  # (n_names,) bool, whether it is the label's own, and not an alternative one

    def arrays(self) -> Iterator[np.ndarray]:
        yield from (*self.tokens.arrays(), self.labels, self.preferred)


@dataclass(frozen=True)
class Dataset:
    """Documents in the views that a method reads, and their labels where these are known."""

    views: Mapping[str, Bag | Tokens]
    Y: csr_array | None = None  # (n_docs, n_labels) float32, ones at the labels
    weights: np.ndarray | None = None  # (n_docs,) float32: 2 counts as the document twice, 0 as its absence
    names: LabelNames | None = None  # what labels are called, where a method asks for it

    def __post_init__(self) -> None:
        for name, view in self.views.items():
            if not isinstance(view, Bag | Tokens):
                raise XmtcError(f"The view {name} is a {type(view).__name__}; expected a Bag(matrix) or Tokens.")
        if self.Y is not None:
            object.__setattr__(self, "Y", as_label_matrix(self.Y))
        self._check_rows()
        if self.weights is not None:
            object.__setattr__(self, "weights", as_document_weights(self.weights, self.n_docs))

    def _check_rows(self) -> None:
        rows = {name: view.n_docs for name, view in self.views.items()}
        if not rows:
            raise XmtcError("Found a Dataset without views; expected at least one, such as {'columns': Bag(matrix)}.")
        if self.Y is not None:
            rows["Y"] = self.Y.shape[0]
        if len(set(rows.values())) > 1:
            found = ", ".join(f"{name} has {n:,}" for name, n in rows.items())
            raise XmtcError(f"Views and labels must be of the same documents, a row for each; found that {found}.")

    @classmethod
    def from_matrix(cls, X: Any, Y: Any = None, weights: Any = None) -> Dataset:
        """Documents that are rows of a matrix: sparse, of any format, or dense."""
        return cls({"columns": Bag(X)}, Y, weights)

    @property
    def n_docs(self) -> int:
        return next(iter(self.views.values())).n_docs

    @property
    def n_labels(self) -> int:
        return 0 if self.Y is None else self.Y.shape[1]

    @property
    def sizes(self) -> dict[str, int]:
        """Of each view: columns of a Bag, ids of Tokens."""
        return {name: view.size for name, view in self.views.items()}

    @property
    def bag(self) -> Bag:
        """The view of a method that reads one bag of terms, whichever it is."""
        (found,) = (view for view in self.views.values() if isinstance(view, Bag))
        return found

    @property
    def X(self) -> csr_array:
        """The matrix of that bag."""
        return self.bag.matrix

    def tokens(self, view: str) -> Tokens:
        """A view that holds sequences."""
        found = self.views[view]
        assert isinstance(found, Tokens)
        return found

    def keep_views(self, names: Iterable[str]) -> Dataset:
        """Without the views that are not named."""
        views = {name: self.views[name] for name in names}
        return self.copy_with(views=views)

    def select_rows(self, index: Index) -> Dataset:
        """The documents at these rows."""
        views = {name: view.select_rows(index) for name, view in self.views.items()}
        Y = None if self.Y is None else self.Y[index]
        weights = None if self.weights is None else self.weights[index]
        return self.copy_with(views=views, Y=Y, weights=weights)

    def select_label_columns(self, columns: np.ndarray) -> Dataset:
        """With some of the labels only, and without names, which are of all."""
        return self.copy_with(Y=None if self.Y is None else self.Y[:, columns], names=None)

    def copy_with(self, **values: Any) -> Dataset:
        """With other values of some fields, which follow from those that were checked."""
        return construct_unchecked(Dataset, **(vars(self) | values))

    def drop_zero_weights(self) -> Dataset:
        """Without the documents of weight 0, and without weights where all others weigh 1."""
        if self.weights is None:
            return self
        counted = self.weights > 0
        if not counted.any():
            raise XmtcError("All documents have the weight zero; expected more for those to learn from.")
        left = self if counted.all() else self.select_rows(counted)
        return left if np.any(left.weights != 1) else left.copy_with(weights=None)

    def fingerprint(self) -> str:
        """The same for the same numbers alone."""
        found = hashlib.blake2b(digest_size=16)
        for name, view in self.views.items():
            found.update(name.encode())
            for part in view.arrays():
                found.update(np.ascontiguousarray(part).data)
        for part in () if self.Y is None else iterate_csr_arrays(self.Y):
            found.update(np.ascontiguousarray(part).data)
        if self.weights is not None:
            found.update(self.weights.data)
        for part in () if self.names is None else self.names.arrays():
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()


def iterate_csr_arrays(matrix: csr_array) -> Iterator[np.ndarray]:
    yield from (np.array(matrix.shape), matrix.indptr, matrix.indices, matrix.data)

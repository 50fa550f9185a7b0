"""What a method trains on and a model predicts from: arrays only, no text and no names of labels.

A document can be seen in several views: as a bag of terms (Bag) or as a sequence of tokens (Tokens). A Dataset holds
those that a method reads, by name, and the labels beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array

from xmtc.sparse import narrow

Index = np.ndarray | slice


class Terms(Protocol):
    """What the columns of a Bag, or the ids of Tokens, stand for."""

    def __len__(self) -> int: ...

    def words(self) -> list[str]: ...


@dataclass(frozen=True)
class Bag:
    """Documents as rows of a sparse matrix."""

    matrix: csr_array  # (n_docs, size) float32
    vocabulary: Terms | None = None  # the term of each column, where they have one

    @property
    def n_docs(self) -> int:
        return self.matrix.shape[0]

    @property
    def size(self) -> int:
        """Columns."""
        return self.matrix.shape[1]

    def rows(self, index: Index) -> Bag:
        """The documents at these rows."""
        return replace(self, matrix=self.matrix[index])

    def arrays(self) -> Iterator[np.ndarray]:
        """Every number, and the shapes that tell where one array ends and the next begins."""
        return arrays_of(self.matrix)


@dataclass(frozen=True)
class Tokens:
    """Documents as sequences of tokens: their ids end to end, and the offset of each document."""

    ids: np.ndarray  # (n,) int32, in [0, size)
    offsets: np.ndarray  # (n_docs + 1,) int64, document i is ids[offsets[i]:offsets[i + 1]]
    size: int  # ids that there are
    vocabulary: Terms | None = None  # of words: the word of each id from 1 on; 0 is the unknown word
    encoder: str = ""  # of subwords in training: the folder or hub name of the encoder that they are read by

    @property
    def n_docs(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(n_docs,) int64, how many tokens each document has."""
        return np.diff(self.offsets)

    def rows(self, index: Index) -> Tokens:
        """The documents at these rows."""
        begins, lengths = self.offsets[:-1][index], self.lengths[index]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        return replace(self, ids=self.ids[positions], offsets=offsets)

    def counts(self) -> csr_array:
        """(n_docs, size) float32: how often each word occurs in each document; the unknown word is left out."""
        known = self.ids != 0
        ends = np.concatenate([[0], np.cumsum(known)])[self.offsets]
        ids = self.ids[known]
        counted = csr_array((np.ones(len(ids), np.float32), ids, narrow(ends)), shape=(self.n_docs, self.size))
        counted.sum_duplicates()
        return counted

    def arrays(self) -> Iterator[np.ndarray]:
        """Every number, and the shapes that tell where one array ends and the next begins."""
        yield from (np.array([self.n_docs, self.size]), self.offsets, self.ids)
        if self.encoder:
            yield np.frombuffer(self.encoder.encode(errors="replace"), np.uint8)


@dataclass(frozen=True)
class Dataset:
    """Documents in the views that a method reads, and their labels where these are known."""

    views: Mapping[str, Bag | Tokens]
    Y: csr_array | None = None  # (n_docs, n_labels) float32, ones at the labels

    def __post_init__(self) -> None:
        rows = {view.n_docs for view in self.views.values()} | ({self.Y.shape[0]} if self.Y is not None else set())
        if len(rows) != 1:
            raise ValueError(f"a Dataset needs views, and labels, of the same documents; found {sorted(rows)} of them")

    @classmethod
    def from_matrix(cls, X: csr_array, Y: csr_array | None = None) -> Dataset:
        """Documents that are rows of a matrix."""
        return cls({"columns": Bag(X)}, Y)

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

    def only(self, names: Iterable[str]) -> Dataset:
        """Without the views that are not named."""
        return replace(self, views={name: self.views[name] for name in names})

    def rows(self, index: Index) -> Dataset:
        """The documents at these rows."""
        views = {name: view.rows(index) for name, view in self.views.items()}
        return Dataset(views, None if self.Y is None else self.Y[index])

    def fingerprint(self) -> str:
        """The same for the same numbers alone."""
        found = hashlib.blake2b(digest_size=16)
        for name, view in self.views.items():
            found.update(name.encode())
            for part in view.arrays():
                found.update(np.ascontiguousarray(part).data)
        for part in () if self.Y is None else arrays_of(self.Y):
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()


def arrays_of(matrix: csr_array) -> Iterator[np.ndarray]:
    yield from (np.array(matrix.shape), matrix.indptr, matrix.indices, matrix.data)

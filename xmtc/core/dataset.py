"""Input of methods and models: arrays only, without texts and label names.

A view represents documents as a bag of terms (`Bag`) or as sequences of tokens (`Tokens`). A `Dataset` holds the views
that a method reads, by name, and the labels.

All three validate their arrays and convert dense arrays, other sparse formats and other number types. Copies made by
their methods are not validated again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
    """Vocabulary of a view: the term of each column or token id."""

    def __len__(self) -> int: ...

    def words(self) -> list[str]: ...


@dataclass(frozen=True)
class Bag:
    """Documents as rows of a sparse matrix.

    Parameters
    ----------
    matrix : sparse or dense matrix of numbers, shape (n_docs, size)
        Features; stored as canonical float32 CSR.
    vocabulary : Terms, optional
        Term of each column.
    n_cluster_columns : int, default=0
        Number of leading columns that label clustering uses; 0 uses all.
    weight_scale : float, default=1.0
        Expected scale of weights, below 1 where each word yields many terms.

    Examples
    --------
    >>> Bag([[0, 1.5], [2, 0]]).n_docs
    2
    """

    matrix: csr_array
    vocabulary: Terms | None = None
    n_cluster_columns: int = 0
    weight_scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", as_feature_matrix(self.matrix))

    @property
    def n_docs(self) -> int:
        return self.matrix.shape[0]

    @property
    def size(self) -> int:
        """Number of columns."""
        return self.matrix.shape[1]

    def select_rows(self, index: Index) -> Bag:
        """Return the documents at these rows."""
        return self.copy_with(matrix=self.matrix[index])

    def copy_with(self, **values: Any) -> Bag:
        """Return a copy with some fields replaced, without validation."""
        return construct_unchecked(Bag, **(vars(self) | values))

    def arrays(self) -> Iterator[np.ndarray]:
        """Yield the shape and all arrays, for a fingerprint."""
        return iterate_csr_arrays(self.matrix)


@dataclass(frozen=True)
class Tokens:
    """Documents as sequences of token ids.

    Parameters
    ----------
    ids : array of int, shape (n_tokens,)
        Token ids of all documents, concatenated; each in [0, size).
    offsets : array of int, shape (n_docs + 1,)
        Document i is `ids[offsets[i]:offsets[i + 1]]`.
    size : int
        Number of distinct ids.
    vocabulary : Terms, optional
        Word of each id from 1 on; id 0 is the unknown word.
    encoder : str, default=""
        Directory or Hugging Face Hub name of the encoder that reads these subwords, in training.

    Examples
    --------
    >>> Tokens([3, 1, 2], [0, 2, 3], 4).lengths.tolist()
    [2, 1]
    """

    ids: np.ndarray
    offsets: np.ndarray
    size: int
    vocabulary: Terms | None = None
    encoder: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", int(self.size))
        object.__setattr__(self, "ids", as_token_ids(self.ids, self.size))
        object.__setattr__(self, "offsets", as_token_offsets(self.offsets, len(self.ids)))

    @property
    def n_docs(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each document, shape (n_docs,), int64."""
        return np.diff(self.offsets)

    def select_rows(self, index: Index) -> Tokens:
        """Return the documents at these rows."""
        begins, lengths = self.offsets[:-1][index], self.lengths[index]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        return self.copy_with(ids=self.ids[positions], offsets=offsets)

    def copy_with(self, **values: Any) -> Tokens:
        """Return a copy with some fields replaced, without validation."""
        return construct_unchecked(Tokens, **(vars(self) | values))

    def to_count_matrix(self) -> csr_array:
        """Return the count of each word in each document, shape (n_docs, size), float32, without unknown words."""
        known = self.ids != 0
        ends = np.concatenate([[0], np.cumsum(known)])[self.offsets]
        ids = self.ids[known]
        counts = csr_array((np.ones(len(ids), np.float32), ids, narrow_indptr(ends)), shape=(self.n_docs, self.size))
        counts.sum_duplicates()
        return counts

    def arrays(self) -> Iterator[np.ndarray]:
        """Yield the shape and all arrays, for a fingerprint."""
        yield from (np.array([self.n_docs, self.size]), self.offsets, self.ids)
        if self.encoder:
            yield np.frombuffer(self.encoder.encode(errors="replace"), np.uint8)


@dataclass(frozen=True)
class LabelNames:
    """Names of labels, for methods that compare them with texts: as token sequences, as sentence vectors, or both.

    Labels without training documents may be included.

    Parameters
    ----------
    tokens : Tokens, optional
        One document per name, in the view of the texts.
    labels : ndarray of int32, shape (n_names,)
        Label of each name.
    preferred : ndarray of bool, shape (n_names,)
        Whether a name is the preferred one of its label.
    vectors : Bag, optional
        Sentence vector of each name.
    subwords : Tokens, optional
        Subwords of each name, for encoders that are trained.
    """

    tokens: Tokens | None
    labels: np.ndarray
    preferred: np.ndarray
    vectors: Bag | None = None
    subwords: Tokens | None = None

    def select(self, index: Index) -> LabelNames:
        """Return some of the names."""
        tokens, subwords = (view and view.select_rows(index) for view in (self.tokens, self.subwords))
        vectors = self.vectors and self.vectors.select_rows(index)
        return LabelNames(tokens, self.labels[index], self.preferred[index], vectors, subwords)

    def arrays(self) -> Iterator[np.ndarray]:
        for view in (self.tokens, self.vectors, self.subwords):
            yield from () if view is None else view.arrays()
        yield from (self.labels, self.preferred)

    def with_labels(self, targets: np.ndarray) -> LabelNames:
        """Return the names with label i as label targets[i]; names of labels with a negative target are left out."""
        kept = self.select(targets[self.labels] >= 0)
        return replace(kept, labels=targets[kept.labels].astype(np.int32))


@dataclass(frozen=True)
class Dataset:
    """Documents in the views that a method reads, with their labels if known.

    Parameters
    ----------
    views : mapping of str to Bag or Tokens
        Views by name, each with one row per document.
    Y : sparse or dense matrix, shape (n_docs, n_labels), optional
        Ones at the labels of a document; stored as float32 CSR.
    weights : array of float, shape (n_docs,), optional
        Document weights: 2 counts like the document twice, 0 like its absence.
    names : LabelNames, optional
        Names of labels, for methods with `has_label_name_input`.
    is_name : ndarray of bool, shape (n_docs,), optional
        Rows that are a name of a label instead of a document. They are never held out.

    Raises
    ------
    XmtcError
        If the views, Y and weights do not have one row per document, or hold invalid values.

    Examples
    --------
    >>> data = Dataset.from_matrix([[0, 1.5], [2, 0]], [[1, 0, 0], [0, 1, 1]])
    >>> data.n_docs, data.n_labels, data.sizes
    (2, 3, {'columns': 2})
    """

    views: Mapping[str, Bag | Tokens]
    Y: csr_array | None = None
    weights: np.ndarray | None = None
    names: LabelNames | None = None
    is_name: np.ndarray | None = None

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
            raise XmtcError("The Dataset has no views; expected at least one, such as {'columns': Bag(matrix)}.")
        if self.Y is not None:
            rows["Y"] = self.Y.shape[0]
        if self.is_name is not None:
            rows["is_name"] = len(self.is_name)
        if len(set(rows.values())) > 1:
            counts = ", ".join(f"{name} has {n:,}" for name, n in rows.items())
            raise XmtcError(
                f"Views and labels have different numbers of rows: {counts}; expected one row per document."
            )

    @classmethod
    def from_matrix(cls, X: Any, Y: Any = None, weights: Any = None) -> Dataset:
        """Return a Dataset whose documents are the rows of a sparse or dense matrix X, as the view "columns"."""
        return cls({"columns": Bag(X)}, Y, weights)

    @property
    def n_docs(self) -> int:
        return next(iter(self.views.values())).n_docs

    @property
    def n_labels(self) -> int:
        return 0 if self.Y is None else self.Y.shape[1]

    @property
    def sizes(self) -> dict[str, int]:
        """Number of columns of each Bag and of ids of each Tokens, by view."""
        return {name: view.size for name, view in self.views.items()}

    @property
    def document_labels(self) -> csr_array:
        """Labels of the documents, without the rows that are names of labels."""
        assert self.Y is not None
        return self.Y if self.is_name is None else self.Y[~self.is_name]

    @property
    def has_weights_of_names_only(self) -> bool:
        """True if all documents have weight 1, and only names of labels may have others."""
        return self.weights is not None and self.is_name is not None and bool((self.weights[~self.is_name] == 1).all())

    @property
    def bag(self) -> Bag:
        """The only view that is a Bag."""
        (bag,) = (view for view in self.views.values() if isinstance(view, Bag))
        return bag

    @property
    def X(self) -> csr_array:
        """Matrix of the only view that is a Bag."""
        return self.bag.matrix

    def tokens(self, view: str) -> Tokens:
        """Return a view that holds token sequences."""
        tokens = self.views[view]
        assert isinstance(tokens, Tokens)
        return tokens

    def keep_views(self, names: Iterable[str]) -> Dataset:
        """Return a copy with the named views only."""
        return self.copy_with(views={name: self.views[name] for name in names})

    def select_rows(self, index: Index) -> Dataset:
        """Return the documents at these rows."""
        views = {name: view.select_rows(index) for name, view in self.views.items()}
        Y = None if self.Y is None else self.Y[index]
        weights = None if self.weights is None else self.weights[index]
        is_name = None if self.is_name is None else self.is_name[index]
        return self.copy_with(views=views, Y=Y, weights=weights, is_name=is_name)

    def drop_names(self) -> Dataset:
        """Return the documents without the rows that are names of labels."""
        assert self.is_name is not None
        weights = None if self.has_weights_of_names_only else self.weights
        return self.copy_with(weights=weights).select_rows(~self.is_name).copy_with(is_name=None)

    def select_label_columns(self, columns: np.ndarray) -> Dataset:
        """Return a copy with some of the labels, and without label names."""
        return self.copy_with(Y=None if self.Y is None else self.Y[:, columns], names=None)

    def copy_with(self, **values: Any) -> Dataset:
        """Return a copy with some fields replaced, without validation."""
        return construct_unchecked(Dataset, **(vars(self) | values))

    def drop_zero_weights(self) -> Dataset:
        """Return a copy without the documents of weight 0, and without weights if all others have weight 1."""
        if self.weights is None:
            return self
        is_positive = self.weights > 0
        if not is_positive.any():
            raise XmtcError("All documents have zero weight; give a positive weight to the documents to train on.")
        rest = self if is_positive.all() else self.select_rows(is_positive)
        return rest if np.any(rest.weights != 1) else rest.copy_with(weights=None)

    def fingerprint(self) -> str:
        """Return a hash of all arrays."""
        digest = hashlib.blake2b(digest_size=16)
        for name, view in self.views.items():
            digest.update(name.encode())
            for part in view.arrays():
                digest.update(np.ascontiguousarray(part).data)
        for part in () if self.Y is None else iterate_csr_arrays(self.Y):
            digest.update(np.ascontiguousarray(part).data)
        if self.weights is not None:
            digest.update(self.weights.data)
        if self.is_name is not None:
            digest.update(self.is_name.data)
        for part in () if self.names is None else self.names.arrays():
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


def iterate_csr_arrays(matrix: csr_array) -> Iterator[np.ndarray]:
    yield from (np.array(matrix.shape), matrix.indptr, matrix.indices, matrix.data)

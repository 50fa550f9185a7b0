"""View of numeric features that the corpus contains (XMC repository format, svmlight, npz) instead of texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import is_ascending
from xmtc.core.dataset import Bag, Tokens
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr, normalise_rows
from xmtc.errors import XmtcError
from xmtc.features.view import FEATURES, FittedView, View
from xmtc.storage.form import array
from xmtc.text.word_spans import Span

SparseRow = tuple[np.ndarray, np.ndarray]  # int32 column numbers, float32 values
MIN_WIDE_COLUMNS = 2**20  # number of columns above which unused columns are dropped, if most are unused


@dataclass(frozen=True)
class Columns(View):
    """Numeric features of a corpus."""

    title: ClassVar[str] = "Features of the corpus"
    input_kind: ClassVar[str] = FEATURES
    replaced_view: ClassVar[str] = "tfidf"

    unit_length: bool = param(
        False,
        "Scaling of each document's features to unit length; on by default except for fastxml, pfastrexml and methods "
        "of other packages.",
    )
    n_columns: int = param(0, "Minimum number of columns; a corpus may declare its own.", low=0, high=2**31 - 1)

    def fit(self, contents: Iterable[SparseRow], run: Run = Run()) -> tuple[FittedColumns, Bag]:
        X = build_matrix(contents, self.n_columns)
        is_scaled = self.unit_length and X.shape[1] > 1  # a single column would become constant
        fields = {"n_columns": X.shape[1], "unit_length": is_scaled}
        fitted = FittedColumns(**fields)
        if X.shape[1] > MIN_WIDE_COLUMNS:
            columns = np.unique(np.append(X.indices, 0)).astype(np.int32)  # at least one column
            if 2 * len(columns) < X.shape[1]:
                fitted = OccurringColumns(**fields, columns=columns)
        return fitted, fitted.scale(X)


@dataclass(frozen=True, kw_only=True)
class FittedColumns(FittedView):
    """View of all columns of a corpus of features."""

    input_kind: ClassVar[str] = FEATURES

    n_columns: int
    unit_length: bool

    @property
    def size(self) -> int:
        return self.n_columns

    def transform(self, contents: Iterable[SparseRow], run: Run = Run()) -> Bag:
        """Return new documents; columns beyond those of training have no weights and are dropped."""
        X = build_matrix(contents, self.n_columns)
        return self.scale(
            X if X.shape[1] == self.n_columns else select_entries(X, X.indices < self.n_columns, self.n_columns)
        )

    def scale(self, X: csr_array) -> Bag:
        return Bag(normalise_rows(X) if self.unit_length else X)

    def describe_scaling(self) -> str:
        """Return the end of the sentence "The features of each document were …"."""
        if self.unit_length:
            return "scaled to unit length; unit_length=false keeps them as they are"
        return "kept as they are; unit_length=true scales them to unit length"

    def mark_known_documents(self, features: Bag | Tokens) -> np.ndarray:
        """Return True for all documents: a value of zero is information, too."""
        return np.ones(features.n_docs, bool)

    def term(self, number: int) -> str:
        return f"column {number}"

    def spans(self, text: str) -> list[Span]:
        raise XmtcError("The model was trained on features, not on texts; explanations need a model of texts.")

    def check(self) -> None:
        if not 0 <= self.n_columns < 2**31:
            raise ValueError(f"its number of features, {self.n_columns}, is out of range")


@dataclass(frozen=True, kw_only=True)
class OccurringColumns(FittedColumns):
    """Columns of a wide corpus that occur in the training documents, so that the model has only these.

    Other columns have no weights, but contribute to the length of a document."""

    columns: np.ndarray = array(np.int32)  # (size,); ascending

    @property
    def n_inputs(self) -> int:
        return self.n_columns

    @property
    def size(self) -> int:
        return len(self.columns)

    def scale(self, X: csr_array) -> Bag:
        X = super().scale(X).matrix
        places = np.searchsorted(self.columns[:-1], X.indices)  # without the last, so that places are in range
        return Bag(select_entries(X, self.columns[places] == X.indices, self.size, places))

    def term(self, number: int) -> str:
        return f"column {self.columns[number]}"

    def check(self) -> None:
        super().check()
        is_valid = self.size > 0 and self.columns[0] >= 0 and is_ascending(self.columns, strict=True)
        if not is_valid or self.columns[-1] >= self.n_columns:
            raise ValueError(f"its columns are not ascending numbers below {self.n_columns}")


def select_entries(X: csr_array, kept: np.ndarray, n_columns: int, columns: np.ndarray | None = None) -> csr_array:
    """Return a matrix with some of the entries of X, renumbered if `columns` has new column numbers."""
    ends = np.concatenate([[0], np.cumsum(kept)])[X.indptr]
    columns = X.indices if columns is None else columns
    return csr_array((X.data[kept], columns[kept].astype(np.int32), narrow_indptr(ends)), shape=(X.shape[0], n_columns))


def build_matrix(rows: Iterable[SparseRow], n_columns: int = 0) -> csr_array:
    """Build a matrix with ascending columns and at least n_columns columns."""
    indices, data, ends = [], [], [0]
    for columns, values in rows:
        order = np.argsort(columns, kind="stable")
        indices.append(columns[order])
        data.append(values[order])
        ends.append(ends[-1] + len(columns))
    columns = np.concatenate([np.zeros(0, np.int32), *indices])
    width = max(n_columns, int(columns.max(initial=-1)) + 1)
    values = np.concatenate([np.zeros(0, np.float32), *data])
    return csr_array((values, columns, narrow_indptr(np.array(ends))), shape=(len(ends) - 1, width))

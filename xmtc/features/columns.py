"""Features that come with the corpus (the XMC repository's files, svmlight, npz) instead of being made from text."""

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

SparseRow = tuple[np.ndarray, np.ndarray]  # column numbers int32, values float32
MIN_WIDE_COLUMNS = 2**20  # columns, from which on those that do not occur are left out, where they are the most


@dataclass(frozen=True)
class Columns(View):
    """How features that a corpus brings along are used."""

    title: ClassVar[str] = "Features that a corpus brings along"
    input_kind: ClassVar[str] = FEATURES
    replaced_view: ClassVar[str] = "tfidf"

    unit_length: bool = param(True, "scale each document's features to length 1")
    n_columns: int = param(0, "columns that there are at least; a corpus may say it itself", low=0, high=2**31 - 1)

    def fit(self, contents: Iterable[SparseRow], run: Run = Run()) -> tuple[FittedColumns, Bag]:
        X = build_matrix(contents, self.n_columns)
        size = {"n_columns": X.shape[1], "unit_length": self.unit_length}
        fitted = FittedColumns(**size)
        if X.shape[1] > MIN_WIDE_COLUMNS:
            columns = np.unique(np.append(X.indices, 0)).astype(np.int32)  # one at least, where there are no values
            if 2 * len(columns) < X.shape[1]:
                fitted = OccurringColumns(**size, columns=columns)
        return fitted, fitted.scale(X)


@dataclass(frozen=True, kw_only=True)
class FittedColumns(FittedView):
    input_kind: ClassVar[str] = FEATURES

    n_columns: int
    unit_length: bool

    @property
    def size(self) -> int:
        return self.n_columns

    def transform(self, contents: Iterable[SparseRow], run: Run = Run()) -> Bag:
        """Columns beyond those of the training documents carry no weight and are dropped."""
        X = build_matrix(contents, self.n_columns)
        return self.scale(
            X if X.shape[1] == self.n_columns else select_entries(X, X.indices < self.n_columns, self.n_columns)
        )

    def scale(self, X: csr_array) -> Bag:
        return Bag(normalise_rows(X) if self.unit_length else X)

    def mark_known_documents(self, features: Bag | Tokens) -> np.ndarray:
        """Return True for all documents: a value of zero is information, too."""
        return np.ones(features.n_docs, bool)

    def term(self, number: int) -> str:
        return f"column {number}"

    def spans(self, text: str) -> list[Span]:
        raise XmtcError("This model was trained on features without words, so it has none to explain with.")

    def check(self) -> None:
        if not 0 <= self.n_columns < 2**31:
            raise ValueError(f"it cannot have {self.n_columns} features")


@dataclass(frozen=True, kw_only=True)
class OccurringColumns(FittedColumns):
    """Of very many columns, those that occur in the training documents: what is trained is as wide as these. The others
    carry no weight, and only count in the length of a document, as they do elsewhere."""

    columns: np.ndarray = array(np.int32)  # (size,), ascending

    @property
    def n_inputs(self) -> int:
        return self.n_columns

    @property
    def size(self) -> int:
        return len(self.columns)

    def scale(self, X: csr_array) -> Bag:
        X = super().scale(X).matrix
        places = np.searchsorted(self.columns[:-1], X.indices)  # of one beyond the last, the last
        return Bag(select_entries(X, self.columns[places] == X.indices, self.size, places))

    def term(self, number: int) -> str:
        return f"column {self.columns[number]}"

    def check(self) -> None:
        super().check()
        rise = self.size > 0 and self.columns[0] >= 0 and is_ascending(self.columns, strict=True)
        if not rise or self.columns[-1] >= self.n_columns:
            raise ValueError(f"its columns do not rise from 0 to {self.n_columns}")


def select_entries(X: csr_array, kept: np.ndarray, n_columns: int, columns: np.ndarray | None = None) -> csr_array:
    """Some of the entries of a matrix of so many columns, with other column numbers where these are given."""
    ends = np.concatenate([[0], np.cumsum(kept)])[X.indptr]
    columns = X.indices if columns is None else columns
    return csr_array((X.data[kept], columns[kept].astype(np.int32), narrow_indptr(ends)), shape=(X.shape[0], n_columns))


def build_matrix(rows: Iterable[SparseRow], n_columns: int = 0) -> csr_array:
    """Rows as a matrix, columns ascending; n_columns of them, or more if more occur."""
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

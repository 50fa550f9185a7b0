"""Features that come with the corpus (the XMC repository's files, svmlight, npz) instead of being made from text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from scipy.sparse import csr_array

from xmtc.base.params import Recipe, param
from xmtc.data.collect import feature_matrix
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.sparse import with_unit_rows


@dataclass(frozen=True)
class Given(Recipe):
    """How features that a corpus brings along are used."""

    unit_length: bool = param(True, "scale each document's features to length 1")

    def fit_transform(
        self, documents: Iterable[Document], n_features: int | None = None
    ) -> tuple[GivenFeatures, csr_array]:
        """n_features is the width that the corpus declares, for the last columns may be empty in these documents."""
        X = feature_matrix(documents, n_features)
        features = GivenFeatures(X.shape[1], self.unit_length)
        return features, features.scaled(X)


@dataclass(frozen=True)
class GivenFeatures:
    n_features: int
    unit_length: bool
    n_words: ClassVar[int] = 0

    def transform(self, documents: Iterable[Document]) -> csr_array:
        """Features beyond those seen in training carry no weight and are dropped."""
        X = feature_matrix(documents, self.n_features)
        return self.scaled(X if X.shape[1] == self.n_features else X[:, : self.n_features])

    def check(self) -> None:
        if not 0 <= self.n_features < 2**31:
            raise ValueError(f"it cannot have {self.n_features} features")

    def scaled(self, X: csr_array) -> csr_array:
        return with_unit_rows(X) if self.unit_length else X


def needs_text(document: Document) -> XmtcError:
    return XmtcError(f"Document {document.id!r} holds features, but this model reads text; give it a corpus of texts.")


def needs_features(document: Document) -> XmtcError:
    return XmtcError(f"Document {document.id!r} holds text, but this model reads features; give it such a corpus.")

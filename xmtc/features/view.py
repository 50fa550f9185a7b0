"""Base classes of views, the feature representations of documents.

A View holds hyper-parameters; its `fit` learns from a corpus and returns a FittedView, which transforms new documents
and is saved with the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xmtc.core.dataset import Bag, Tokens
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.storage.form import Form
from xmtc.text.analyzers import AUTO
from xmtc.text.word_spans import Span

ANALYZER_PARAM: Any = param(
    AUTO,
    "Text analyzer: words, words:1-2, snowball:LANGUAGE, simplemma:LANGUAGE, chars, words+chars, or auto (selects).",
)
TEXTS, FEATURES = "texts", "features"  # kinds of content of a corpus, and inputs of a view
UNKNOWN_ID = 0  # id of words that are not in the vocabulary


@dataclass(frozen=True)
class View(ParameterSet, ABC):
    """Recipe of a feature representation. A subclass is a frozen dataclass with param() fields."""

    title: ClassVar[str]  # name in reports and help
    unit: ClassVar[str] = "features"  # unit of `FittedView.size`
    input_kind: ClassVar[str] = TEXTS  # or FEATURES: pairs of column numbers and values
    replaced_view: ClassVar[str] = ""  # view that this one replaces if the corpus has this one's input kind
    has_batch_support: ClassVar[bool] = False  # `fit` reads contents with `batch_texts`, so that Texts are accepted
    uses_workdir: ClassVar[bool] = False  # `fit` writes large arrays to the run's working directory
    is_fitted_on_label_names: ClassVar[bool] = False  # `fit` takes `names`, the label names, and learns from them

    @abstractmethod
    def fit(self, contents: Iterable[Any], run: Run = Run()) -> tuple[FittedView, Bag | Tokens]:
        """Learn from the contents of documents, which may be a stream, and return them transformed."""


class FittedView(Form, ABC):
    """View learnt from a corpus. A subclass is a frozen dataclass and a Form."""

    input_kind: ClassVar[str] = TEXTS  # that of the View

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of columns of the Bags, or of distinct ids of the Tokens."""

    @property
    def n_inputs(self) -> int:
        """Number of columns of the input, for a view of features."""
        return self.size

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of a document; None for bags or without a limit."""
        return None

    @abstractmethod
    def transform(self, contents: Iterable[Any], run: Run = Run()) -> Bag | Tokens:
        """Return new documents in this view."""

    def mark_known_documents(self, features: Bag | Tokens) -> np.ndarray:
        """Return, for each transformed document, whether it has a known word, shape (n_docs,)."""
        if isinstance(features, Bag):
            return features.matrix.indptr[1:] > features.matrix.indptr[:-1]
        if features.vocabulary is None:  # no id stands for unknown words
            return np.ones(features.n_docs, bool)
        return mark_documents_with(features, features.ids != UNKNOWN_ID)

    @abstractmethod
    def term(self, number: int) -> str:
        """Return the term of a column or id."""

    @abstractmethod
    def spans(self, text: str) -> list[Span]:
        """Return the words of a text with their positions and their tokens or terms in this view."""


def mark_documents_with(tokens: Tokens, is_wanted: np.ndarray) -> np.ndarray:
    """Return which documents contain a wanted token, shape (n_docs,)."""
    n_before = np.concatenate([[0], np.cumsum(is_wanted)])
    return np.diff(n_before[tokens.offsets]) > 0


def empty_corpus_error(n_docs: int) -> XmtcError:
    return XmtcError(f"None of the {n_docs} documents holds a word; check the text field.")

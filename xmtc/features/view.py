"""The contract of views. A View is a recipe: how documents are looked at. A FittedView is what a corpus has taught it,
saved with the model: it makes of new documents what it made of the training documents."""

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
    AUTO, "terms: words, snowball:LANGUAGE, simplemma:LANGUAGE, grams, words+grams; auto finds out what suits"
)
TEXTS, FEATURES = "texts", "features"  # what a corpus holds, and a view is made from
UNKNOWN_ID = 0  # the id of a word that is not in a vocabulary


@dataclass(frozen=True)
class View(ParameterSet, ABC):
    """One way to look at documents. A subclass is a frozen dataclass with param() fields."""

    title: ClassVar[str]  # what people call it
    unit: ClassVar[str] = "features"  # what its size counts
    input_kind: ClassVar[str] = TEXTS  # or COLUMNS: pairs of column numbers and values
    has_analyzer_callback: ClassVar[bool] = (
        False  # its `fit` takes a function `choose`, to ask for what it was not told
    )
    replaced_view: ClassVar[str] = ""  # the view that it replaces in a corpus that holds what it is made from
    has_batch_support: ClassVar[bool] = False  # its `fit` reads contents by `batches`, so that they may come as Texts
    uses_workdir: ClassVar[bool] = False  # of a run: what it makes is written there, and mapped
    is_fitted_on_label_names: ClassVar[bool] = (
        False  # from those of labels, which its `fit` then takes, not from documents
    )

    @abstractmethod
    def fit(self, contents: Iterable[Any], run: Run = Run()) -> tuple[FittedView, Bag | Tokens]:
        """Learn from the texts of documents, and show the same documents. Texts may be a stream."""


class FittedView(Form, ABC):
    """A view after training. A subclass is a frozen dataclass and a Form."""

    input_kind: ClassVar[str] = TEXTS  # as its View is
    has_word_terms: ClassVar[bool] = True  # an id stands for a word or a term; else for a part of one

    @property
    @abstractmethod
    def size(self) -> int:
        """Columns of its Bags, or ids of its Tokens."""

    @property
    def n_inputs(self) -> int:
        """Columns of the matrices that it takes, where it is made from such."""
        return self.size

    @property
    def max_length(self) -> int | None:
        """Tokens of a document at most; None for bags, and where there is no limit."""
        return None

    @abstractmethod
    def transform(self, contents: Iterable[Any], run: Run = Run()) -> Bag | Tokens:
        """New documents as this view shows them."""

    def mark_known_documents(self, shown: Bag | Tokens) -> np.ndarray:
        """(n_docs,) bool: which documents, as `transform` has shown them, hold anything that this view knows."""
        if isinstance(shown, Bag):
            return shown.matrix.indptr[1:] > shown.matrix.indptr[:-1]
        if shown.vocabulary is None:  # of which nobody has said what an unknown token is
            return np.ones(shown.n_docs, bool)
        return mark_documents_with(shown, shown.ids != UNKNOWN_ID)

    @abstractmethod
    def term(self, number: int) -> str:
        """What an id stands for."""

    @abstractmethod
    def spans(self, text: str) -> list[Span]:
        """The words of a text, where they stand in it, and which tokens or terms of the view they belong to."""


def mark_documents_with(tokens: Tokens, is_wanted: np.ndarray) -> np.ndarray:
    """(n_docs,) bool: which documents hold a wanted token, given for each token whether it is."""
    n_before = np.concatenate([[0], np.cumsum(is_wanted)])
    return np.diff(n_before[tokens.offsets]) > 0


def empty_corpus_error(n_docs: int) -> XmtcError:
    return XmtcError(
        f"None of the {n_docs} documents holds a word, so there is nothing to learn from; check the text field."
    )

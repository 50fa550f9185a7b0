"""The contract. A Method is a recipe: a frozen dataclass of hyper-parameters whose `fit` trains. A Model is what
training leaves behind: a dataclass of arrays that predicts. Neither knows words or label names; a Tagger does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xmtc.base.dataset import Dataset
from xmtc.base.form import Form
from xmtc.base.params import Recipe
from xmtc.base.predictions import Predictions
from xmtc.base.run import Run


@dataclass(frozen=True)
class Explanation:
    """Why a model gives a document a label: what each of its terms adds to (or takes from) the label's score."""

    view: str  # whose ids these are
    ids: np.ndarray  # (n,) int32, columns of a Bag or ids of Tokens, each once
    weights: np.ndarray  # (n,) float32, largest first
    per_token: np.ndarray | None = None  # (n_tokens,) float32, the weight of each token of the document

    @classmethod
    def summed(cls, view: str, ids: np.ndarray, weights: np.ndarray, per_token: bool = False) -> Explanation:
        """From weights of ids that may occur several times; with per_token, they are those of the document's tokens."""
        distinct, which = np.unique(ids, return_inverse=True)
        total = np.bincount(which, weights, len(distinct)).astype(np.float32)
        order = np.argsort(-total, kind="stable")
        tokens = weights.astype(np.float32) if per_token else None
        return cls(view, distinct[order].astype(np.int32), total[order], tokens)


@dataclass(frozen=True, kw_only=True)
class Model(Form, ABC):
    """What training leaves behind. A subclass is a dataclass and a Form: its fields are its file format."""

    n_labels: int
    views: dict[str, int]  # the views that it reads, and the size of each

    @abstractmethod
    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        """The k best labels of every document."""

    @abstractmethod
    def explain(self, document: Dataset, label: int) -> Explanation:
        """What speaks for the label in a Dataset of one document."""

    def max_lengths(self) -> dict[str, int]:
        """Of views that hold sequences: how many tokens of a document it can read, where that is limited."""
        return {}


@dataclass(frozen=True)
class Method(Recipe, ABC):
    """A recipe for training. A subclass is a frozen dataclass with param() fields, named as its paper names it."""

    # The views of a document that it is trained on; a property where that depends on parameters.
    reads: ClassVar[tuple[str, ...]] = ("tfidf",)
    # Parameters that make it train in a second on a few hundred documents, for tests and for compiling ahead.
    tiny: ClassVar[dict[str, Any]] = {}
    # Whether batches and threads change no digit. Networks add up in another order.
    is_exact: ClassVar[bool] = True

    @abstractmethod
    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> Model:
        """Train on data; valid, where there is one, only ever decides when to stop, or what scores mean."""

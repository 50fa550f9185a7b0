"""The contract. A Method is a recipe: a frozen dataclass of hyper-parameters whose `fit` trains. A Model is what
training leaves behind: a dataclass of arrays that predicts. Neither knows words or label names; a Tagger does."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xmtc.base.dataset import Dataset
from xmtc.base.params import Recipe
from xmtc.base.predictions import Predictions
from xmtc.base.run import Run


@dataclass(frozen=True)
class Explanation:
    """Why a model gives a document a label: what each of its features adds to (or takes from) the label's score."""

    features: np.ndarray  # (n,) int32, columns of X; of a model that reads words alone, their numbers in its Tokens
    weights: np.ndarray  # (n,) float32, largest first
    places: np.ndarray | None = None  # (n_tokens,) float32, each word's weight in its place, where their order was read


class Model:
    """What training leaves behind. A subclass is a dataclass whose fields are its file format: arrays, numbers,
    strings, and tuples of further dataclasses of these. Its sizes are those of the Datasets it reads; one that does not
    read X has no n_features, and one that does not read tokens or subwords no n_words or n_subwords."""

    n_labels: int
    n_features: int
    n_words: int
    n_subwords: int

    @abstractmethod
    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        """The k best labels of every document."""

    @abstractmethod
    def explain(self, document: Dataset, label: int) -> Explanation:
        """What speaks for the label in a Dataset of one document."""

    def check(self) -> None:
        """Raise ValueError, with a phrase, at numbers that would lead `predict` astray. Called once on a model from a
        folder, before its first use; it may read every array."""


@dataclass(frozen=True)
class Method(Recipe):
    """A recipe for training. A subclass is a frozen dataclass with param() fields, named as its paper names it."""

    # Parts of a Dataset; methods that read words have "tokens" in it, those that read what a pretrained encoder reads
    # "subwords", those that start from word vectors of X's columns "vectors". Where that depends on parameters, each
    # instance has its own, and the class none.
    reads: ClassVar[tuple[str, ...]] = ("X", "Y")

    @abstractmethod
    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> Model:
        """Train on data; valid, where given, only ever decides when to stop, or what scores mean."""

"""The trained form of ensembles and consensuses: a Model that holds Models, and how their answers become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.base.dataset import Dataset
from xmtc.base.method import Explanation, Model
from xmtc.base.predictions import Predictions
from xmtc.base.run import Run
from xmtc.linear.search import rank

MEAN, NOISY_OR = RULES = ("mean", "noisy-or")
SIZES = {"n_features": "X", "n_words": "tokens", "n_subwords": "subwords"}  # of what is read, and what that is
DEPTH = 100  # labels that each model is asked for, if not for more; AttentionXML's authors keep as many


@dataclass(frozen=True)
class Combination(Model):
    """P(label) from the P_i(label) of several models, each of which names its best labels; what it does not name has
    P_i = 0. Either their mean, or 1 − Π (1 − P_i), the probability that at least one is right if each errs alone."""

    n_labels: int
    n_features: int  # 0 if none of the models reads X
    n_words: int  # 0 if none of the models reads tokens
    rule: str  # one of RULES
    models: tuple[Model, ...]

    @property
    def n_subwords(self) -> int:  # type: ignore[override]  # 0 if none of the models reads subwords
        return max((getattr(model, "n_subwords", 0) for model in self.models), default=0)

    @property
    def longest(self) -> int | None:
        """Subwords of a text that all of the models can read; None where there is no limit."""
        limits = [getattr(model, "longest", None) for model in self.models]
        return min((limit for limit in limits if limit is not None), default=None)

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        found = [model.predict(read_by(model, data), max(k, DEPTH), run) for model in self.models]
        return merged(found, self.rule, self.n_labels, min(k, self.n_labels))

    def explain(self, document: Dataset, label: int) -> Explanation:
        """The mean of the models' explanations. Weights of features, of words in order and of subwords are not alike:
        where models of several kinds are combined, those of the first kind explain."""
        kinds = ([model for model in self.models if size in sizes_of(model)] for size in SIZES)
        explaining = next((found for found in kinds if found), list(self.models))
        parts = [model.explain(read_by(model, document), label) for model in explaining]
        features, which = np.unique(np.concatenate([part.features for part in parts]), return_inverse=True)
        weights = np.bincount(which, np.concatenate([part.weights for part in parts]), len(features)) / len(parts)
        order = np.argsort(-weights, kind="stable")
        in_place = [part.places for part in parts if part.places is not None]
        places = np.array(in_place).mean(axis=0) if len(in_place) == len(parts) else None
        return Explanation(features[order].astype(np.int32), weights[order].astype(np.float32), places)

    def check(self) -> None:
        if self.rule not in RULES or not self.models:
            raise ValueError("it does not say how its models are combined")
        for model in self.models:
            known = sizes_of(model).items() <= sizes_of(self).items()
            if not known or model.n_labels != self.n_labels:
                raise ValueError("its models are not for the same labels, features and words")
            model.check()


def merged(found: list[Predictions], rule: str, n_labels: int, k: int) -> Predictions:
    """The k best labels of each document by all models together; equal ones rank by label number."""
    labels, scores = np.hstack([part.labels for part in found]), np.hstack([part.scores for part in found])
    with np.errstate(divide="ignore"):  # log 0 and log ∞ are what they should be
        if rule == MEAN:
            return Predictions(*rank(labels, np.log(scores), n_labels, k, len(found)))
        # adds up where 1 − P is multiplied, and tells labels apart whose P is nearly 1
        evidence = -np.log1p(-np.minimum(scores, 1))
        best, total = rank(labels, np.log(evidence), n_labels, k, 1)
    return Predictions(best, -np.expm1(-total))


def read_by(model: Model, data: Dataset) -> Dataset:
    """What a model reads of data that holds what all of them read."""
    return only(data, [SIZES[size] for size in sizes_of(model)])


def only(data: Dataset, reads: Iterable[str]) -> Dataset:
    """Data without what is not read."""
    changes: dict[str, Any] = {part: None for part in ("tokens", "subwords") if part not in reads}
    if "X" not in reads:
        changes |= {"X": csr_array((data.n_docs, 0), dtype=np.float32), "vectors": None}
    return replace(data, **changes)


def sizes_of(model: Model) -> dict[str, int]:
    """Of what a model reads."""
    found = {size: getattr(model, size, 0) for size in SIZES}
    return {size: n for size, n in found.items() if n}

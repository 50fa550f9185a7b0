"""The trained form of ensembles and consensuses: a Model that holds Models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.features import sort_views
from xmtc.methods.ensemble.combination_rules import RULES, combine_predictions
from xmtc.storage.form import array

MIN_MEMBER_LABELS = 100  # labels that each model is asked for, if not for more; AttentionXML's authors keep as many


@dataclass(frozen=True, kw_only=True)
class CombinedModel(Model):
    """P(label) from the P_i(label) of several models, each of which names its best labels; what it does not name has
    P_i = 0. Either their mean, or 1 − Π (1 − P_i), the probability that at least one is right if each errs alone."""

    rule: str  # one of RULES
    models: tuple[Model, ...]

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        found = [model.predict(data.keep_views(model.views), max(k, MIN_MEMBER_LABELS), run) for model in self.models]
        return combine_predictions(found, self.rule, self.n_labels, min(k, self.n_labels))

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """The mean of the models' explanations. Weights in one view are not like those in another: where models explain
        by several, those by the first view count in which anything speaks."""
        every = [model.explain(document.keep_views(model.views), label) for model in self.models]
        parts = [part for part in every if part.weights.any()] or every
        (view, *_) = sort_views(part.view for part in parts)
        return average_explanations([part for part in parts if part.view == view])

    def to_exhaustive(self) -> CombinedModel:
        wider = tuple(model.to_exhaustive() for model in self.models)
        are_same = all(one is other for one, other in zip(wider, self.models, strict=True))
        return self if are_same else replace(self, models=wider)

    def max_lengths(self) -> dict[str, int]:
        """What all of the models can read."""
        limits: dict[str, int] = {}
        for model in self.models:
            for view, most in model.max_lengths().items():
                limits[view] = min(most, limits.get(view, most))
        return limits

    def check(self) -> None:
        if self.rule not in RULES or not self.models:
            raise ValueError("it does not say how its models are combined")
        for model in self.models:
            if not model.views.items() <= self.views.items() or model.n_labels != self.n_labels:
                raise ValueError("its models are not for the same labels and views")
            model.check()


@dataclass(frozen=True, kw_only=True)
class RemappedModel(Model):
    """A model that was trained apart from others, beside which it now stands: its views have other names there, and its
    labels other numbers."""

    model: Model
    names: dict[str, str]  # of its views: what they are called here
    numbers: np.ndarray = array(np.int32)  # (its labels,) the number of each here

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        found = self.model.predict(self._select_views(data), k, run)
        found = found.pad(min(k, self.n_labels))
        return Predictions.from_valid_arrays(np.append(self.numbers, np.int32(NO_LABEL))[found.labels], found.scores)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Nothing speaks for a label that the model does not have."""
        inner = self._select_views(document)
        (number, *_) = [*np.flatnonzero(self.numbers == label), NO_LABEL]
        if number == NO_LABEL:
            return Explanation(sort_views(self.views)[0], np.zeros(0, np.int32), np.zeros(0, np.float32))
        explained = self.model.explain(inner, int(number))
        return replace(explained, view=self.names[explained.view])

    def _select_views(self, data: Dataset) -> Dataset:
        return Dataset({name: data.views[here] for name, here in self.names.items()})

    def to_exhaustive(self) -> RemappedModel:
        wider = self.model.to_exhaustive()
        return self if wider is self.model else replace(self, model=wider)

    def max_lengths(self) -> dict[str, int]:
        return {self.names[view]: most for view, most in self.model.max_lengths().items()}

    def check(self) -> None:
        if self.names.keys() != self.model.views.keys():
            raise ValueError("its views are not those of its model")
        if {self.names[name]: size for name, size in self.model.views.items()} != self.views:
            raise ValueError("its views are not as large as those of its model")
        if len(self.numbers) != self.model.n_labels or len(np.unique(self.numbers)) != len(self.numbers):
            raise ValueError("its labels are not those of its model")
        if self.numbers.min() < 0 or self.numbers.max() >= self.n_labels:
            raise ValueError("its model has labels that are not there")
        self.model.check()


def remap_labels(model: Model, numbers: np.ndarray, n_labels: int) -> Model:
    """A model whose labels are some of more."""
    same_views = {view: view for view in model.views}
    return RemappedModel(n_labels=n_labels, views=model.views, model=model, names=same_views, numbers=numbers)


def average_explanations(parts: list[Explanation]) -> Explanation:
    """Of explanations by the same view."""
    ids, which = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
    weights = np.bincount(which, np.concatenate([part.weights for part in parts]), len(ids)) / len(parts)
    order = np.argsort(-weights, kind="stable")
    of_tokens = [part.per_token for part in parts if part.per_token is not None]
    per_token = np.array(of_tokens).mean(axis=0) if len(of_tokens) == len(parts) else None
    return Explanation(parts[0].view, ids[order].astype(np.int32), weights[order].astype(np.float32), per_token)

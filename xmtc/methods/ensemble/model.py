"""Models that contain other models: combinations, and models with renumbered labels and renamed views."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.ranking_steps import list_steps, rank_in_steps
from xmtc.core.run import Run
from xmtc.features import sort_views
from xmtc.methods.ensemble.combination_rules import RULES, combine_predictions
from xmtc.storage.form import array

MIN_MEMBER_LABELS = 100  # predictions per member up to k=100, as in the authors' code of AttentionXML


@dataclass(frozen=True, kw_only=True)
class CombinedModel(Model):
    """Combination of the probabilities P_i of several models.

    The rule is their mean, or noisy-or 1 − Π (1 − P_i), the probability that at least one model is correct if their
    errors are independent. P_i is 0 for labels that a model does not predict.
    """

    rule: str  # one of RULES
    models: tuple[Model, ...]

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        k = min(k, self.n_labels)
        steps = list_steps(k, MIN_MEMBER_LABELS)
        predictions = [model.predict(data.keep_views(model.views), steps[-1], run) for model in self.models]

        def rank(step: int, n: int) -> Predictions:
            return combine_predictions([part.keep_best(step) for part in predictions], self.rule, self.n_labels, n)

        return rank_in_steps(rank, steps, k)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the mean of the models' explanations in one view.

        Weights of different views are not comparable, so only explanations in the first view with a non-zero weight
        count.
        """
        explanations = [model.explain(document.keep_views(model.views), label) for model in self.models]
        candidates = [part for part in explanations if part.weights.any()] or explanations
        (view, *_) = sort_views(part.view for part in candidates)
        return average_explanations([part for part in candidates if part.view == view])

    def to_exhaustive(self) -> CombinedModel:
        exhaustive = tuple(model.to_exhaustive() for model in self.models)
        is_same = all(after is before for after, before in zip(exhaustive, self.models, strict=True))
        return self if is_same else replace(self, models=exhaustive)

    def max_lengths(self) -> dict[str, int]:
        """Return the smallest limit of any model for each view."""
        limits: dict[str, int] = {}
        for model in self.models:
            for view, limit in model.max_lengths().items():
                limits[view] = min(limit, limits.get(view, limit))
        return limits

    def check(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule is {self.rule!r}; expected one of {', '.join(RULES)}")
        if not self.models:
            raise ValueError("models is empty; expected at least one")
        for number, model in enumerate(self.models):
            if not model.views.items() <= self.views.items() or model.n_labels != self.n_labels:
                raise ValueError(f"n_labels or views of models.{number} differ from those of the combination")
            model.check()


@dataclass(frozen=True, kw_only=True)
class RemappedModel(Model):
    """Model that was trained separately, with its views renamed and its labels renumbered to fit a combination."""

    model: Model
    names: dict[str, str]  # name in the combination of each view of the model
    numbers: np.ndarray = array(np.int32)  # (model.n_labels,), number in the combination of each label of the model

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        inner = self.model.predict(self._select_views(data), k, run).pad(min(k, self.n_labels))
        return Predictions.from_valid_arrays(np.append(self.numbers, np.int32(NO_LABEL))[inner.labels], inner.scores)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the model's explanation, which is empty for a label that the model does not have."""
        (inner_labels,) = np.nonzero(self.numbers == label)
        if not len(inner_labels):
            return Explanation(sort_views(self.views)[0], np.zeros(0, np.int32), np.zeros(0, np.float32))
        explanation = self.model.explain(self._select_views(document), int(inner_labels[0]))
        return replace(explanation, view=self.names[explanation.view])

    def _select_views(self, data: Dataset) -> Dataset:
        return Dataset({inner_name: data.views[name] for inner_name, name in self.names.items()})

    def to_exhaustive(self) -> RemappedModel:
        exhaustive = self.model.to_exhaustive()
        return self if exhaustive is self.model else replace(self, model=exhaustive)

    def max_lengths(self) -> dict[str, int]:
        return {self.names[view]: limit for view, limit in self.model.max_lengths().items()}

    def check(self) -> None:
        if self.names.keys() != self.model.views.keys():
            raise ValueError("names does not have the views of the model inside")
        if {self.names[name]: size for name, size in self.model.views.items()} != self.views:
            raise ValueError("views do not have the sizes of the views of the model inside")
        if len(self.numbers) != self.model.n_labels or len(np.unique(self.numbers)) != len(self.numbers):
            raise ValueError("numbers does not have one distinct number per label of the model inside")
        if self.numbers.min() < 0 or self.numbers.max() >= self.n_labels:
            raise ValueError(f"numbers is out of range; expected numbers below {self.n_labels}")
        self.model.check()


def remap_labels(model: Model, numbers: np.ndarray, n_labels: int) -> Model:
    """Return the model with its labels renumbered to `numbers`, which are some of `n_labels` labels."""
    same_views = {view: view for view in model.views}
    return RemappedModel(n_labels=n_labels, views=model.views, model=model, names=same_views, numbers=numbers)


def average_explanations(parts: list[Explanation]) -> Explanation:
    """Return the mean of explanations in the same view."""
    ids, inverse = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
    weights = np.bincount(inverse, np.concatenate([part.weights for part in parts]), len(ids)) / len(parts)
    order = np.argsort(-weights, kind="stable")
    token_weights = [part.per_token for part in parts if part.per_token is not None]
    per_token = np.array(token_weights).mean(axis=0) if len(token_weights) == len(parts) else None
    return Explanation(parts[0].view, ids[order].astype(np.int32), weights[order].astype(np.float32), per_token)

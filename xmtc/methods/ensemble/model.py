"""Models that contain other models: combinations, and models with renumbered labels and renamed views."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, MemberExplanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.ranking_steps import list_steps, rank_in_steps
from xmtc.core.run import Run
from xmtc.features import sort_views
from xmtc.methods.ensemble.combination_rules import FLOAT32_EPSNEG, MEAN, RULES, combine_predictions
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
        """Return the explanations by the members that predict the label, each with its share of the combined score."""
        scores = [self._score_label(model, document, label) for model in self.models]
        shares = compute_member_shares(np.array(scores), self.rule)
        members = tuple(
            MemberExplanation(number, float(share), model.explain(document.keep_views(model.views), label))
            for number, (model, share) in enumerate(zip(self.models, shares, strict=True))
            if share > 0
        )
        return combine_explanations(members)

    def _score_label(self, model: Model, document: Dataset, label: int) -> float:
        """Return a member's score of the label, or 0 if the member does not predict it."""
        best = model.predict(document.keep_views(model.views), MIN_MEMBER_LABELS, Run(threads=1))
        return float(best.scores[0][best.labels[0] == label].sum())

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
    """Model that was trained separately, with its views renamed and its labels renumbered to fit a combination.

    Its data may have further views, which the model does not read."""

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
        return explanation.rename_views(self.names)

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
        if not {self.names[name]: size for name, size in self.model.views.items()}.items() <= self.views.items():
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


def compute_member_shares(scores: np.ndarray, rule: str) -> np.ndarray:
    """Return each member's part of the combined score: P_i / Σ P for the mean, log(1 − P_i) / Σ log(1 − P) for
    noisy-or. Members have equal shares if none predicts the label."""
    evidence = scores if rule == MEAN else -np.log1p(-np.minimum(scores, 1 - FLOAT32_EPSNEG))
    total = evidence.sum()
    return evidence / total if total > 0 else np.full(len(scores), 1 / len(scores))


def combine_explanations(members: tuple[MemberExplanation, ...]) -> Explanation:
    """Return the explanation of a combination. Its weights are those of the view with the largest share; the absolute
    weights of each member sum to its share, because members may have weights of different scales."""
    share_by_view: dict[str, float] = {}
    for member in members:
        if member.explanation.weights.any():
            view = member.explanation.view
            share_by_view[view] = share_by_view.get(view, 0.0) + member.share
    views = sort_views(share_by_view or [member.explanation.view for member in members])
    view = max(views, key=lambda name: share_by_view.get(name, 0.0))
    parts = [member for member in members if member.explanation.view == view]
    factors = [part.share / (float(np.abs(part.explanation.weights).sum()) or 1.0) for part in parts]
    ids = np.concatenate([part.explanation.ids for part in parts])
    weights = np.concatenate([part.explanation.weights * factor for part, factor in zip(parts, factors, strict=True)])
    return replace(Explanation.from_occurrences(view, ids, weights), members=members)

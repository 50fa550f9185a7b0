"""The trained form of ensembles and consensuses: a Model that holds Models, and how their answers become one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmtc.base.dataset import Dataset
from xmtc.base.method import Explanation, Model
from xmtc.base.predictions import Predictions
from xmtc.base.run import Run
from xmtc.features import in_order
from xmtc.linear.search import rank

MEAN, NOISY_OR = RULES = ("mean", "noisy-or")
DEPTH = 100  # labels that each model is asked for, if not for more; AttentionXML's authors keep as many


@dataclass(frozen=True, kw_only=True)
class Combination(Model):
    """P(label) from the P_i(label) of several models, each of which names its best labels; what it does not name has
    P_i = 0. Either their mean, or 1 − Π (1 − P_i), the probability that at least one is right if each errs alone."""

    rule: str  # one of RULES
    models: tuple[Model, ...]

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        found = [model.predict(data.only(model.views), max(k, DEPTH), run) for model in self.models]
        return merged(found, self.rule, self.n_labels, min(k, self.n_labels))

    def explain(self, document: Dataset, label: int) -> Explanation:
        """The mean of the models' explanations. Weights in one view are not like those in another: where models explain
        by several, those by the first view count."""
        parts = [model.explain(document.only(model.views), label) for model in self.models]
        (view, *_) = in_order(part.view for part in parts)
        return mean_explanation([part for part in parts if part.view == view])

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


def mean_explanation(parts: list[Explanation]) -> Explanation:
    """Of explanations by the same view."""
    ids, which = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
    weights = np.bincount(which, np.concatenate([part.weights for part in parts]), len(ids)) / len(parts)
    order = np.argsort(-weights, kind="stable")
    of_tokens = [part.per_token for part in parts if part.per_token is not None]
    per_token = np.array(of_tokens).mean(axis=0) if len(of_tokens) == len(parts) else None
    return Explanation(parts[0].view, ids[order].astype(np.int32), weights[order].astype(np.float32), per_token)


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

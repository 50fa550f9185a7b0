"""The trained form of ensembles and consensuses: a Model that holds Models, and how their answers become one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from xmtc.data.dataset import Dataset
from xmtc.method import Explanation, Model
from xmtc.methods.label_tree.search import rank
from xmtc.predictions import Predictions
from xmtc.run import Run

MEAN, NOISY_OR = RULES = ("mean", "noisy-or")
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

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        found = [model.predict(read_by(model, data), max(k, DEPTH), run) for model in self.models]
        return merged(found, self.rule, self.n_labels, min(k, self.n_labels))

    def explain(self, document: Dataset, label: int) -> Explanation:
        """The mean of the models' explanations. Attention to words and weights of features are not alike: where models
        of both kinds are combined, those that read X explain."""
        explaining = [model for model in self.models if n_features_of(model)] or list(self.models)
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
            known = n_features_of(model) in (0, self.n_features) and n_words_of(model) in (0, self.n_words)
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
    return only(data, bool(n_features_of(model)), bool(n_words_of(model)))


def only(data: Dataset, X: bool, tokens: bool) -> Dataset:
    """Data without what is not read."""
    none = csr_array((data.n_docs, 0), dtype=np.float32)
    vectors = data.vectors if X else None
    return replace(data, X=data.X if X else none, tokens=data.tokens if tokens else None, vectors=vectors)


def n_features_of(model: Model) -> int:
    return getattr(model, "n_features", 0)


def n_words_of(model: Model) -> int:
    return getattr(model, "n_words", 0)

"""Estimates of how much a model can learn from a review of a document: uncertainty, disagreement, rare labels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from xmtc.core.dataset import Bag, Dataset
from xmtc.core.method import Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.tagger import Tagger

RULE_VERSION = 2  # estimates of other rules are computed anew
N_LABELS = 10  # best labels whose scores count
N_BEST_LABELS = 5  # best labels whose mean score counts
N_MEMBER_LABELS = 5  # best labels of the members that are compared


class ReviewEstimate(NamedTuple):
    """Value of a review of one document; each is larger where a review teaches more."""

    uncertainty: float  # number of known words, multiplied by 1 − mean score of the five best labels
    disagreement: float | None  # 1 − mean Jaccard index of the best labels of two members; None without members
    rare: float  # expected number of correct labels, each weighted by 1 / √(documents of the label)


def estimate_values(tagger: Tagger, texts: Sequence[str], run: Run) -> list[ReviewEstimate]:
    """Return the estimates of texts."""
    data = tagger.transform(texts, run)
    predictions = tagger.predict(data, min(N_LABELS, len(tagger.labels)), run)
    weights = np.append(1 / np.sqrt(np.maximum(tagger.frequencies, 1)), 0.0)  # the last one is for NO_LABEL
    scores = np.where(predictions.labels == NO_LABEL, 0.0, np.clip(predictions.scores, 0.0, 1.0))
    uncertainty = count_terms(data) * (1 - scores[:, :N_BEST_LABELS].mean(axis=1))
    rare = (scores * weights[predictions.labels]).sum(axis=1)
    members = predict_members(tagger.model, data, run)
    return [
        ReviewEstimate(float(uncertainty[row]), compute_disagreement(members, row), float(rare[row]))
        for row in range(len(texts))
    ]


def count_terms(data: Dataset) -> np.ndarray:
    """Return the number of known terms of each text, in the first view."""
    view = next(iter(data.views.values()))
    return np.diff(view.matrix.indptr) if isinstance(view, Bag) else (view.to_count_matrix() > 0).sum(axis=1)


def predict_members(model: Model, data: Dataset, run: Run) -> list[Predictions]:
    """Return the best labels of each member of a combination; none for a single model."""
    while not (members := getattr(model, "models", ())):
        inner = getattr(model, "model", None)
        if not isinstance(inner, Model):
            return []
        model = inner
    k = min(N_MEMBER_LABELS, model.n_labels)
    return [member.predict(data.keep_views(member.views), k, run) for member in members]


def compute_disagreement(members: Sequence[Predictions], row: int) -> float | None:
    """Return 1 − the mean Jaccard index of the best labels of two members for a document."""
    sets = [set(member.labels[row].tolist()) - {NO_LABEL} for member in members]
    values = [len(one & other) / max(1, len(one | other)) for one, other in combinations(sets, 2)]
    return 1 - sum(values) / len(values) if values else None

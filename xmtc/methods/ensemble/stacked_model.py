"""Combination whose ranker has learnt what the scores of the members mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.predictions import Predictions
from xmtc.core.ranking_steps import list_steps, rank_in_steps
from xmtc.core.run import Run
from xmtc.methods.ensemble.boosted_trees import BoostedTrees
from xmtc.methods.ensemble.candidates import CANDIDATE_LABELS, build_features, collect_candidates, rank_candidates
from xmtc.methods.ensemble.model import CombinedModel
from xmtc.storage.form import array


@dataclass(frozen=True, kw_only=True)
class StackedModel(CombinedModel):
    """Boosted trees over the scores of several models. The rule of the base class divides explanations only."""

    ranker: BoostedTrees
    frequencies: np.ndarray = array(np.float64)  # (n_labels,), rounded logarithm of the label frequency

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        k = min(k, self.n_labels)
        steps = list_steps(k, CANDIDATE_LABELS)
        predictions = [model.predict(data.keep_views(model.views), steps[-1], run) for model in self.models]

        def rank(step: int, n: int) -> Predictions:
            candidates = collect_candidates([part.keep_best(step) for part in predictions], self.n_labels)
            X = build_features(candidates, self.frequencies[candidates.labels])
            return rank_candidates(candidates, self.ranker.predict_proba(X, run), data.n_docs, n)

        return rank_in_steps(rank, steps, k)

    def check(self) -> None:
        super().check()
        if self.frequencies.shape != (self.n_labels,):
            raise ValueError(f"frequencies are not those of {self.n_labels} labels")
        if self.ranker.n_features != 2 * len(self.models) + 3:
            raise ValueError(f"the ranker does not have the features of {len(self.models)} models")
        self.ranker.check()

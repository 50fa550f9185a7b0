"""A model whose scores are calibrated: what it gives 0.7 is right in 7 of 10 cases. Zadrozny, Elkan: Transforming
Classifier Scores into Accurate Multiclass Probability Estimates (KDD 2002).

Learnt from documents that it was not trained on, by isotonic regression: the curve that fits best among those that
never fall, so that the order of labels stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.base.dataset import Dataset
from xmtc.base.form import array
from xmtc.base.method import Explanation, Model
from xmtc.base.predictions import NO_LABEL, Predictions
from xmtc.base.run import Run
from xmtc.evaluation import Judged

CERTAIN = 0.9999  # never quite, so that others can still add to it
OWN = 1e-3  # the share of the score itself: where the curve is level, it tells labels apart, unless very close


@dataclass(frozen=True, kw_only=True)
class Calibrated(Model):
    """The labels of a model, with the probabilities that its scores have turned out to mean."""

    model: Model
    scores: np.ndarray = array(np.float64)  # where the curve bends, ascending
    probabilities: np.ndarray = array(np.float64)  # and how high it is there

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        return on_curve(self.model.predict(data, k, run), self.scores, self.probabilities)

    def explain(self, document: Dataset, label: int) -> Explanation:
        return self.model.explain(document, label)

    def max_lengths(self) -> dict[str, int]:
        return self.model.max_lengths()

    def check(self) -> None:
        curve = np.array([self.scores, self.probabilities])
        if not curve.size or not np.isfinite(curve).all() or (np.diff(curve) < 0).any() or curve[1, 0] < 0:
            raise ValueError("its calibration is no curve that rises")
        if self.model.n_labels != self.n_labels or self.model.views != self.views:
            raise ValueError("its model is not for the same labels and views")
        self.model.check()


def calibrated(model: Model, held_out: Dataset, depth: int, run: Run = Run()) -> Calibrated:
    """By what the model says of documents that it has not learnt from."""
    assert held_out.Y is not None
    found = model.predict(held_out.only(model.views), min(depth, model.n_labels), run)
    scores, probabilities = curve(found, held_out.Y)
    return Calibrated(
        n_labels=model.n_labels,
        views=model.views,
        model=model,
        scores=scores,
        probabilities=probabilities,
    )


def curve(found: Predictions, Y: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """How often scores are right: where the curve bends, and how high it is there."""
    from sklearn.isotonic import IsotonicRegression  # not needed where a model is only used

    right, answered = Judged(found, Y).hits, (found.labels != NO_LABEL) & np.isfinite(found.scores)
    if not answered.any():
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])  # nothing is known: scores stay what they are
    fitted = IsotonicRegression(y_min=0, y_max=CERTAIN, out_of_bounds="clip").fit(
        found.scores[answered], right[answered]
    )
    return fitted.X_thresholds_.astype(np.float64), fitted.y_thresholds_.astype(np.float64)


def on_curve(found: Predictions, scores: np.ndarray, probabilities: np.ndarray) -> Predictions:
    height = (1 - OWN) * np.interp(found.scores, scores, probabilities) + OWN * np.clip(found.scores, 0, 1)
    return Predictions.trusted(found.labels, np.where(found.labels == NO_LABEL, 0, height).astype(np.float32))

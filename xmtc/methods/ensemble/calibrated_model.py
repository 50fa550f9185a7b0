"""A model whose scores are calibrated: what it gives 0.7 is right in 7 of 10 cases. Zadrozny, Elkan: Transforming
Classifier Scores into Accurate Multiclass Probability Estimates (KDD 2002).

Learnt from documents that it was not trained on, by isotonic regression: the curve that fits best among those that
never fall, so that the order of labels stays. Of several models it is the score of all together that is calibrated:
each may be right about itself, and eq. 9 still says 0.9 where 0.6 are right, because they do not err alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.evaluation import RankedResults, parse_metric
from xmtc.methods.ensemble.combination_rules import combine_predictions
from xmtc.methods.ensemble.model import MIN_MEMBER_LABELS, CombinedModel
from xmtc.storage.form import array

MAX_PROBABILITY = 0.9999  # never quite, so that others can still add to it
SELECTION_METRIC = parse_metric("nDCG@5")
RAW_SCORE_WEIGHT = (
    1e-3  # the share of the score itself: where the curve is level, it tells labels apart, unless very close
)


@dataclass(frozen=True, kw_only=True)
class CalibratedModel(Model):
    """The labels of a model, with the probabilities that its scores have turned out to mean."""

    model: Model
    scores: np.ndarray = array(np.float64)  # where the curve bends, ascending
    probabilities: np.ndarray = array(np.float64)  # and how high it is there

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        return apply_isotonic_curve(self.model.predict(data, k, run), self.scores, self.probabilities)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        return self.model.explain(document, label)

    def to_exhaustive(self) -> CalibratedModel:
        wider = self.model.to_exhaustive()
        return self if wider is self.model else replace(self, model=wider)

    def max_lengths(self) -> dict[str, int]:
        return self.model.max_lengths()

    def check(self) -> None:
        curve = np.array([self.scores, self.probabilities])
        if not curve.size or not np.isfinite(curve).all() or (np.diff(curve) < 0).any() or curve[1, 0] < 0:
            raise ValueError("its calibration is no curve that rises")
        if self.model.n_labels != self.n_labels or self.model.views != self.views:
            raise ValueError("its model is not for the same labels and views")
        self.model.check()


def strip_calibration(model: Model) -> Model:
    """A model with the scores that its method gives, without a curve, if it has one."""
    return model.model if isinstance(model, CalibratedModel) else model


def calibrate_model(model: Model, held_out: Dataset, depth: int, run: Run = Run()) -> CalibratedModel:
    """By what the model says of documents that it has not learnt from."""
    assert held_out.Y is not None
    return calibrate_on_predictions(
        model, model.predict(held_out.keep_views(model.views), min(depth, model.n_labels), run), held_out.Y
    )


def calibrate_combination(combination: CombinedModel, held_out: Dataset, run: Run = Run()) -> CalibratedModel:
    """A combination whose score is calibrated; of calibrated models, if these rank better together."""
    Y, depth = held_out.Y, min(MIN_MEMBER_LABELS, combination.n_labels)
    assert Y is not None
    found = [model.predict(held_out.keep_views(model.views), depth, run) for model in combination.models]
    if should_calibrate_members(found, Y, combination.rule):
        pairs = zip(combination.models, found, strict=True)
        combination = replace(
            combination, models=tuple(calibrate_on_predictions(model, answers, Y) for model, answers in pairs)
        )
        found = [apply_isotonic_curve(answers, *fit_isotonic_curve(answers, Y)) for answers in found]
    return calibrate_on_predictions(
        combination, combine_predictions(found, combination.rule, combination.n_labels, depth), Y
    )


def should_calibrate_members(found: list[Predictions], Y: csr_array, rule: str) -> bool:
    """Whether models rank better together by what their scores mean, by more than two standard errors. Each half of
    the documents is judged with curves that the other half has drawn."""
    half = np.arange(Y.shape[0]) % 2 == 0
    gains = [measure_calibration_gains(found, Y, rule, learnt) for learnt in (half, ~half)] if len(half) > 1 else []
    gain = np.concatenate([*gains, np.zeros(1)])
    return bool(gain.mean() > 2 * gain.std() / np.sqrt(len(gain)))


def measure_calibration_gains(
    found: list[Predictions], Y: csr_array, rule: str, is_training_row: np.ndarray
) -> np.ndarray:
    """(documents not learnt from,) how much better calibrated models rank each of them together."""
    curves = [
        fit_isotonic_curve(select_prediction_rows(answers, is_training_row), Y[is_training_row]) for answers in found
    ]
    plain = [select_prediction_rows(answers, ~is_training_row) for answers in found]
    level = [apply_isotonic_curve(answers, *its_curve) for answers, its_curve in zip(plain, curves, strict=True)]
    before, after = (
        combine_predictions(answers, rule, Y.shape[1], SELECTION_METRIC.n_predictions) for answers in (plain, level)
    )
    return np.subtract(
        *(
            SELECTION_METRIC.compute_per_document(RankedResults(answers, Y[~is_training_row]))
            for answers in (after, before)
        )
    )


def select_prediction_rows(found: Predictions, which: np.ndarray) -> Predictions:
    return Predictions.from_valid_arrays(found.labels[which], found.scores[which])


def calibrate_on_predictions(model: Model, found: Predictions, Y: csr_array) -> CalibratedModel:
    """A model with the curve of its answers to held-out documents."""
    return build_calibrated_model(model, *fit_isotonic_curve(found, Y))


def build_calibrated_model(model: Model, scores: np.ndarray, probabilities: np.ndarray) -> CalibratedModel:
    return CalibratedModel(
        n_labels=model.n_labels,
        views=model.views,
        model=model,
        scores=scores,
        probabilities=probabilities,
    )


def fit_isotonic_curve(
    found: Predictions, Y: csr_array, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """How often scores are right: where the curve bends, and how high it is there. `weights` are of the documents."""
    from sklearn.isotonic import IsotonicRegression  # not needed where a model is only used

    right, answered = RankedResults(found, Y).hits, (found.labels != NO_LABEL) & np.isfinite(found.scores)
    if not answered.any():
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])  # nothing is known: scores stay what they are
    each = None if weights is None else np.broadcast_to(weights[:, None], answered.shape)[answered]
    fitted = IsotonicRegression(y_min=0, y_max=MAX_PROBABILITY, out_of_bounds="clip").fit(
        found.scores[answered], right[answered], each
    )
    return fitted.X_thresholds_.astype(np.float64), fitted.y_thresholds_.astype(np.float64)


def apply_isotonic_curve(found: Predictions, scores: np.ndarray, probabilities: np.ndarray) -> Predictions:
    height = (1 - RAW_SCORE_WEIGHT) * np.interp(found.scores, scores, probabilities) + RAW_SCORE_WEIGHT * np.clip(
        found.scores, 0, 1
    )
    return Predictions.from_valid_arrays(found.labels, np.where(found.labels == NO_LABEL, 0, height).astype(np.float32))

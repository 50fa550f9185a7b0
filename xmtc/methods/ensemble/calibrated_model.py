"""Model with calibrated scores: of the labels with a score of 0.7, 70% are correct.

Paper: Zadrozny, Elkan: Transforming Classifier Scores into Accurate Multiclass Probability Estimates (KDD 2002).

The calibration is an isotonic regression on held-out documents. Its curve never decreases, so the order of labels does
not change. In a combination of models the combined score is calibrated. Calibrated members are not enough: equation 9
gives 0.9 where 60% are correct, because the errors of the members are not independent.
"""

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
from xmtc.methods.ensemble.model import MIN_MEMBER_LABELS, CombinedModel, RemappedModel, remap_labels
from xmtc.storage.form import array

MAX_PROBABILITY = 0.9999  # less than 1, so that other models can still change a combined score
SELECTION_METRIC = parse_metric("nDCG@5")
TOP_PSEUDO_LABELS = (
    10  # labels at the share below that the top of a curve is averaged with (docs/results/calibration.md)
)
RAW_SCORE_WEIGHT = 1e-3  # weight of the uncalibrated score, which breaks ties where the curve is flat


@dataclass(frozen=True, kw_only=True)
class CalibratedModel(Model):
    """Model with an isotonic curve that maps its scores to probabilities."""

    model: Model
    scores: np.ndarray = array(np.float64)  # knots of the curve, ascending
    probabilities: np.ndarray = array(np.float64)  # values at the knots
    description: str = ""  # of a model that a method selected and calibrated itself

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        return apply_isotonic_curve(self.model.predict(data, k, run), self.scores, self.probabilities)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        return self.model.explain(document, label)

    def to_exhaustive(self) -> CalibratedModel:
        exhaustive = self.model.to_exhaustive()
        return self if exhaustive is self.model else replace(self, model=exhaustive)

    def max_lengths(self) -> dict[str, int]:
        return self.model.max_lengths()

    def check(self) -> None:
        curve = np.array([self.scores, self.probabilities])
        if not curve.size or not np.isfinite(curve).all() or (np.diff(curve) < 0).any() or curve[1, 0] < 0:
            raise ValueError("scores and probabilities of the calibration do not ascend from at least 0")
        if self.model.n_labels != self.n_labels or self.model.views != self.views:
            raise ValueError("n_labels or views differ from those of the calibrated model inside")
        self.model.check()


def strip_calibration(model: Model) -> Model:
    """Return the model without its calibration, if it has one."""
    return model.model if isinstance(model, CalibratedModel) else model


def widen_views(model: Model, sizes: dict[str, int]) -> Model:
    """Return the model with all views of its training documents, also those that a selected member does not read."""
    if model.views == sizes:
        return model
    if isinstance(model, CalibratedModel):
        return replace(model, model=widen_views(model.model, sizes), views=sizes)
    if not isinstance(model, RemappedModel):
        model = remap_labels(model, np.arange(model.n_labels, dtype=np.int32), model.n_labels)
    return replace(model, views=sizes)


def calibrate_model(model: Model, held_out: Dataset, depth: int, run: Run = Run()) -> CalibratedModel:
    """Return the model calibrated on its `depth` best predictions for held-out documents."""
    assert held_out.Y is not None
    predictions = model.predict(held_out.keep_views(model.views), min(depth, model.n_labels), run)
    return calibrate_on_predictions(model, predictions, held_out.Y)


def calibrate_combination(combination: CombinedModel, held_out: Dataset, run: Run = Run()) -> CalibratedModel:
    """Return the combination calibrated on held-out documents.

    Its members are calibrated too if that improves the combined ranking.
    """
    Y, depth = held_out.Y, min(MIN_MEMBER_LABELS, combination.n_labels)
    assert Y is not None
    predictions = [model.predict(held_out.keep_views(model.views), depth, run) for model in combination.models]
    if should_calibrate_members(predictions, Y, combination.rule):
        pairs = zip(combination.models, predictions, strict=True)
        members = tuple(calibrate_on_predictions(model, predicted, Y) for model, predicted in pairs)
        combination = replace(combination, models=members)
        predictions = [
            apply_isotonic_curve(predicted, member.scores, member.probabilities)
            for predicted, member in zip(predictions, members, strict=True)
        ]
    combined = combine_predictions(predictions, combination.rule, combination.n_labels, depth)
    return calibrate_on_predictions(combination, combined, Y)


def should_calibrate_members(predictions: list[Predictions], Y: csr_array, rule: str) -> bool:
    """Return True if calibrated members have a higher combined nDCG@5, by more than two standard errors.

    Two-fold cross-validation: the curves of one half of the documents are evaluated on the other half.
    """
    is_even = np.arange(Y.shape[0]) % 2 == 0
    gains = [np.zeros(1)]
    if len(is_even) > 1:
        halves = (is_even, ~is_even)
        gains = [*(measure_calibration_gains(predictions, Y, rule, half) for half in halves), *gains]
    gain = np.concatenate(gains)
    return bool(gain.mean() > 2 * gain.std() / np.sqrt(len(gain)))


def measure_calibration_gains(
    predictions: list[Predictions], Y: csr_array, rule: str, is_training_row: np.ndarray
) -> np.ndarray:
    """Return the gain in nDCG@5 by calibrating the members, for each document outside of the training rows."""
    curves = [
        fit_isotonic_curve(select_prediction_rows(predicted, is_training_row), Y[is_training_row])
        for predicted in predictions
    ]
    raw = [select_prediction_rows(predicted, ~is_training_row) for predicted in predictions]
    calibrated = [apply_isotonic_curve(predicted, *curve) for predicted, curve in zip(raw, curves, strict=True)]

    def measure(members: list[Predictions]) -> np.ndarray:
        combined = combine_predictions(members, rule, Y.shape[1], SELECTION_METRIC.n_predictions)
        return SELECTION_METRIC.compute_per_document(RankedResults(combined, Y[~is_training_row]))

    return measure(calibrated) - measure(raw)


def select_prediction_rows(predictions: Predictions, rows: np.ndarray) -> Predictions:
    return Predictions.from_valid_arrays(predictions.labels[rows], predictions.scores[rows])


def calibrate_on_predictions(model: Model, predictions: Predictions, Y: csr_array) -> CalibratedModel:
    """Return the model calibrated on its predictions for held-out documents with labels Y."""
    return build_calibrated_model(model, *fit_isotonic_curve(predictions, Y))


def build_calibrated_model(model: Model, scores: np.ndarray, probabilities: np.ndarray) -> CalibratedModel:
    return CalibratedModel(
        n_labels=model.n_labels,
        views=model.views,
        model=model,
        scores=scores,
        probabilities=probabilities,
    )


def fit_isotonic_curve(
    predictions: Predictions, Y: csr_array, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the knots (scores) and values (probabilities) of an isotonic regression of hits on scores.

    `shrink_top` lowers the highest value to the share of correct labels that the data support. `weights` are weights
    of the documents. Without any prediction the curve is the identity.
    """
    from scipy.optimize import isotonic_regression  # imported here, because prediction does not need it

    document_weights = np.ones(len(predictions.labels)) if weights is None else weights
    is_predicted = (predictions.labels != NO_LABEL) & np.isfinite(predictions.scores) & (document_weights > 0)[:, None]
    if not is_predicted.any():
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    hits = RankedResults(predictions, Y).hits
    hit_weights = np.broadcast_to(document_weights[:, None], hits.shape)[is_predicted]
    scores, numbers = np.unique(predictions.scores[is_predicted].astype(np.float64), return_inverse=True)
    weight_sums = np.bincount(numbers, hit_weights)
    shares = np.bincount(numbers, hit_weights * hits[is_predicted]) / weight_sums
    regression = isotonic_regression(shares, weights=weight_sums)
    ends = np.unique(np.concatenate([regression.blocks[:-1], regression.blocks[1:] - 1]))  # of runs of equal values
    knots, values = scores[ends], regression.x[ends]
    is_top = values == values[-1]
    top_weights = hit_weights[predictions.scores[is_predicted] >= knots[is_top][0]]
    values[is_top] = shrink_top(values, top_weights)
    return knots, np.clip(values, 0, MAX_PROBABILITY)


def shrink_top(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the highest value of a curve, averaged with the value below it as if that had TOP_PSEUDO_LABELS labels.

    Isotonic regression ends with the labels of the longest run of hits, whose share is too high, the more so the fewer
    they are. `weights` are those of the labels with the highest value; their effective number counts.
    """
    below = values[values < values[-1]]
    if not len(below):
        return float(values[-1])
    n_labels = weights.sum() ** 2 / np.square(weights).sum()
    return float((n_labels * values[-1] + TOP_PSEUDO_LABELS * below[-1]) / (n_labels + TOP_PSEUDO_LABELS))


def apply_isotonic_curve(predictions: Predictions, scores: np.ndarray, probabilities: np.ndarray) -> Predictions:
    """Return the predictions with calibrated scores."""
    labels, raw = predictions.labels, predictions.scores
    curve = np.interp(raw, scores, probabilities)
    calibrated = (1 - RAW_SCORE_WEIGHT) * curve + RAW_SCORE_WEIGHT * np.clip(raw, 0, 1)
    return Predictions.from_valid_arrays(labels, np.where(labels == NO_LABEL, 0, calibrated).astype(np.float32))

"""Drift: differences between new texts and the documents on which the scores of a model were calibrated.

A model keeps the best predictions for up to 2,000 held-out documents as a reference. New texts are compared with it in
the share of unknown words, the predicted labels, the score of the first label, and the accuracy that the scores lead
to expect. No true labels are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.scores.quality import to_logit
from xmtc.storage.form import Form, array

REFERENCE_DEPTH = 5  # predictions per document
MAX_REFERENCE_DOCUMENTS = 2000
MIN_DRIFT_DOCUMENTS = 20  # fewer new texts are not compared
N_PERMUTATIONS = 200
N_RESAMPLES = 200
N_NEWTON_STEPS = 8
PRIOR_PRECISION = 1.0  # of slope and bias; keeps them finite where all labels of the reference are correct
SIGNIFICANCE = 0.01  # chance of a warning without drift, for each comparison
MAX_LISTED_LABELS = 10
DRIFT_KINDS = "unknown words", "scores", "labels"


@dataclass(frozen=True)
class DriftReference(Form):
    """Best predictions for documents that the model was not trained on, and shares of unknown words."""

    labels: np.ndarray = array(np.int32, ndim=2)  # (n_docs, REFERENCE_DEPTH)
    scores: np.ndarray = array(np.float32, ndim=2)
    hits: np.ndarray = array(np.bool_, ndim=2)  # whether the label is correct
    unknown: np.ndarray = array(np.float32)  # share of unknown words of each document; empty if not measured

    @classmethod
    def from_predictions(
        cls, predictions: Predictions, Y: csr_array, unknown: np.ndarray | None = None
    ) -> DriftReference:
        """Return the reference of calibrated predictions for held-out documents with labels Y."""
        rows = select_evenly(predictions.n_docs)
        best = predictions.keep_best(REFERENCE_DEPTH).pad(REFERENCE_DEPTH)
        hits = RankedResults(best, Y).hits
        unknown = np.zeros(0) if unknown is None else unknown[select_evenly(len(unknown))]
        return cls(best.labels[rows], best.scores[rows], hits[rows], unknown.astype(np.float32))

    @property
    def n_docs(self) -> int:
        return len(self.labels)

    def check(self) -> None:
        """Raise ValueError if the arrays do not describe the same documents."""
        if not self.n_docs or self.labels.shape[1] != REFERENCE_DEPTH:
            raise ValueError("its reference has no documents")
        if not self.labels.shape == self.scores.shape == self.hits.shape:
            raise ValueError("its reference has arrays of different sizes")
        if self.labels.min() < NO_LABEL or not np.isfinite(self.scores).all() or not np.isfinite(self.unknown).all():
            raise ValueError("its reference has invalid labels or numbers")

    def with_labels(self, targets: np.ndarray) -> DriftReference:
        """Return a copy in which label i has the number targets[i], or is left out."""
        return replace(self, labels=np.append(targets, NO_LABEL).astype(np.int32)[self.labels])

    def with_newer(self, newer: DriftReference) -> DriftReference:
        """Return a copy with newer documents, which replace the oldest ones beyond MAX_REFERENCE_DOCUMENTS."""
        pairs = ((getattr(self, f.name), getattr(newer, f.name)) for f in fields(self))
        return DriftReference(*(np.concatenate(pair)[-MAX_REFERENCE_DOCUMENTS:] for pair in pairs))


def select_evenly(n_docs: int) -> np.ndarray:
    """Return the rows of at most MAX_REFERENCE_DOCUMENTS documents, at equal distances."""
    return np.linspace(0, n_docs - 1, min(n_docs, MAX_REFERENCE_DOCUMENTS)).astype(int)


class Observations(NamedTuple):
    """Best predictions for new texts, and their shares of unknown words."""

    labels: np.ndarray  # (n_docs, REFERENCE_DEPTH)
    scores: np.ndarray
    unknown: np.ndarray  # empty if not measured

    @classmethod
    def from_predictions(cls, predictions: Predictions, unknown: np.ndarray | None) -> Observations:
        best = predictions.keep_best(REFERENCE_DEPTH).pad(REFERENCE_DEPTH)
        return cls(best.labels, best.scores, np.zeros(0) if unknown is None else unknown)

    def to_reference(self, Y: csr_array) -> DriftReference:
        """Return the reference of these documents, whose labels are Y."""
        return DriftReference.from_predictions(Predictions(self.labels, self.scores), Y, self.unknown)


class DriftComparison(NamedTuple):
    """Value of the reference, value of new texts, and the probability of such a difference without drift."""

    reference: float
    new: float
    p_value: float

    @property
    def is_significant(self) -> bool:
        return self.p_value < SIGNIFICANCE


class LabelShift(NamedTuple):
    """Share of the predicted labels that a label has, expected by the scores."""

    label: int
    reference: float
    new: float


class AccuracyEstimate(NamedTuple):
    """Precision at k of the reference, and of new texts as expected from their scores, with a 95 % interval."""

    reference: float
    new: float
    low: float
    high: float


@dataclass(frozen=True)
class DriftReport:
    """Comparison of new texts with the reference of a model."""

    n_docs: int
    n_reference: int
    unknown_words: DriftComparison | None  # mean shares; None if the model has no words
    scores: DriftComparison  # mean score of the first label; Kolmogorov-Smirnov test of its distribution
    label_distance: DriftComparison  # total variation distance, beside the one expected without drift; permutation test
    accuracy: dict[str, AccuracyEstimate]  # by metric
    shifted_labels: tuple[LabelShift, ...]

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Names of the comparisons that show drift."""
        named = zip(DRIFT_KINDS, (self.unknown_words, self.scores, self.label_distance), strict=True)
        return tuple(name for name, value in named if value is not None and value.is_significant)


def compare_with_reference(reference: DriftReference, new: Observations, seed: int = 0) -> DriftReport:
    """Compare new texts with the reference of a model."""
    rng = np.random.default_rng(seed)
    return DriftReport(
        n_docs=len(new.labels),
        n_reference=reference.n_docs,
        unknown_words=compare_unknown_words(reference.unknown, new.unknown),
        scores=compare_scores(reference.scores[:, 0], new.scores[:, 0]),
        label_distance=compare_labels(reference, new, rng),
        accuracy={f"P@{k}": estimate_accuracy(reference, new, k, rng) for k in (1, REFERENCE_DEPTH)},
        shifted_labels=find_shifted_labels(reference, new),
    )


def compare_unknown_words(reference: np.ndarray, new: np.ndarray) -> DriftComparison | None:
    """Compare the mean shares of unknown words by Welch's test."""
    from scipy.stats import ttest_ind

    if not (len(reference) and len(new)):
        return None
    if np.ptp(reference) == 0 and np.ptp(new) == 0:
        p_value = float(np.isclose(reference.mean(), new.mean()))  # of numbers of different precision
    else:
        p_value = float(ttest_ind(reference, new, equal_var=False).pvalue)
    return DriftComparison(float(reference.mean()), float(new.mean()), p_value)


def compare_scores(reference: np.ndarray, new: np.ndarray) -> DriftComparison:
    from scipy.stats import ks_2samp

    # The model of the reference was trained on a few documents less, which changes scores by less than a point.
    p_value = float(ks_2samp(reference.round(2), new.round(2), method="asymp").pvalue)
    return DriftComparison(float(reference.mean()), float(new.mean()), p_value)


def compare_labels(reference: DriftReference, new: Observations, rng: np.random.Generator) -> DriftComparison:
    """Compare the distributions of predicted labels by a permutation test of documents."""
    labels, scores = np.vstack([reference.labels, new.labels]), np.vstack([reference.scores, new.scores])
    is_new = np.arange(len(labels)) >= reference.n_docs
    _, numbers = np.unique(labels, return_inverse=True)
    numbers = numbers.reshape(labels.shape)
    weights = np.where(labels == NO_LABEL, 0.0, np.clip(scores, 0, 1))

    def measure(rows: np.ndarray) -> float:
        return compute_label_distance(numbers, weights, rows)

    distance = measure(is_new)
    by_chance = np.array([measure(rng.permutation(is_new)) for _ in range(N_PERMUTATIONS)])
    p_value = float((1 + (by_chance >= distance).sum()) / (1 + N_PERMUTATIONS))
    return DriftComparison(float(by_chance.mean()), distance, p_value)


def compute_label_distance(numbers: np.ndarray, weights: np.ndarray, is_new: np.ndarray) -> float:
    """Return the total variation distance between the labels of two groups of documents, weighted by score."""
    shares = []
    for rows in (is_new, ~is_new):
        totals = np.bincount(numbers[rows].ravel(), weights[rows].ravel(), minlength=int(numbers.max(initial=0)) + 1)
        shares.append(totals / max(totals.sum(), 1e-12))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def find_shifted_labels(reference: DriftReference, new: Observations) -> tuple[LabelShift, ...]:
    """Return the labels whose shares differ most, the largest difference first."""
    size = int(max(reference.labels.max(initial=0), new.labels.max(initial=0))) + 1
    shares = []
    for labels, scores in ((reference.labels, reference.scores), (new.labels, new.scores)):
        is_label = labels != NO_LABEL
        totals = np.bincount(labels[is_label], np.clip(scores[is_label], 0, 1), minlength=size)
        shares.append(totals / max(totals.sum(), 1e-12))
    order = np.argsort(-np.abs(shares[1] - shares[0]), kind="stable")[:MAX_LISTED_LABELS]
    shifts = (LabelShift(int(i), float(shares[0][i]), float(shares[1][i])) for i in order)
    return tuple(shift for shift in shifts if shift.reference != shift.new)


def estimate_accuracy(
    reference: DriftReference, new: Observations, k: int, rng: np.random.Generator
) -> AccuracyEstimate:
    """Estimate the precision at k of new texts from the scores and hits of the reference."""
    scores, hits = reference.scores[:, :k], reference.hits[:, :k]
    new_scores, new_labels = new.scores[:, :k], new.labels[:, :k]
    estimate, resampled = predict_precision(scores, hits, new_scores, new_labels), []
    for _ in range(N_RESAMPLES):
        rows, new_rows = rng.integers(0, len(hits), len(hits)), rng.integers(0, len(new_labels), len(new_labels))
        resampled.append(predict_precision(scores[rows], hits[rows], new_scores[new_rows], new_labels[new_rows]))
    low, high = np.quantile(resampled, (0.025, 0.975))
    return AccuracyEstimate(float(hits.mean()), estimate, float(low), float(high))


def predict_precision(scores: np.ndarray, hits: np.ndarray, new_scores: np.ndarray, new_labels: np.ndarray) -> float:
    """Return the estimated precision of new labels.

    The estimate by probability is right if scores mean the same for new texts, but too high for texts of later years.
    The one by a threshold follows a fall of the scores more strongly; where it is lower, the estimate is the mean of
    both (docs/results/calibration.md)."""
    by_probability = predict_by_probability(scores, hits, new_scores, new_labels)
    by_threshold = predict_by_threshold(scores, hits, new_scores, new_labels)
    return (by_probability + min(by_probability, by_threshold)) / 2


def predict_by_threshold(scores: np.ndarray, hits: np.ndarray, new_scores: np.ndarray, new_labels: np.ndarray) -> float:
    """Return the share of new scores above the threshold above which the reference has as many scores as hits.

    Average thresholded confidence (Garg et al.: Leveraging Unlabeled Data to Predict Out-of-Distribution Performance,
    ICLR 2022). Scores equal to the threshold count in part, because calibrated scores have few distinct values."""
    accuracy = hits.mean()
    threshold = np.quantile(scores, 1 - accuracy, method="lower")
    part = (accuracy - (scores > threshold).mean()) / (scores == threshold).mean()
    shares = np.where(new_scores > threshold, 1.0, np.where(new_scores == threshold, part, 0.0))
    return float(np.where(new_labels == NO_LABEL, 0, shares).mean())


def predict_by_probability(
    scores: np.ndarray, hits: np.ndarray, new_scores: np.ndarray, new_labels: np.ndarray
) -> float:
    """Return the mean probability that labels with new scores are correct.

    A logistic regression of the hits of the reference on the logits of its scores corrects the calibration, which is
    for labels of all ranks, for these ranks.
    """
    slope, bias = fit_logistic(to_logit(np.clip(scores, 0, 1)).ravel(), hits.ravel().astype(float))
    margins = slope * to_logit(np.clip(new_scores, 0, 1)) + bias
    return float(np.where(new_labels == NO_LABEL, 0, 1 / (1 + np.exp(-np.clip(margins, -50, 50)))).mean())


def fit_logistic(inputs: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """Return slope and bias of a logistic regression, with a weak prior of slope 1 and bias 0, by Newton's method."""
    design, weights = np.column_stack([inputs, np.ones(len(inputs))]), np.array([1.0, 0.0])
    for _ in range(N_NEWTON_STEPS):
        probabilities = 1 / (1 + np.exp(-np.clip(design @ weights, -50, 50)))
        gradient = design.T @ (targets - probabilities) - PRIOR_PRECISION * (weights - [1.0, 0.0])
        curvature = (design * (probabilities * (1 - probabilities))[:, None]).T @ design + PRIOR_PRECISION * np.eye(2)
        weights = weights + np.linalg.solve(curvature, gradient)
    return float(weights[0]), float(weights[1])

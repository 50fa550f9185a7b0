"""Tuning of thresholds on documents that the model was not trained on, for a goal such as micro-f1 or precision=0.9.

A threshold per label overfits labels with few documents. Each label is therefore smoothed with further true documents
of the average label, on which the model errs as on all labels. For macro-F1 every label counts equally in this average,
because an average over assignments is dominated by frequent labels, whose threshold is too high for the others. For the
F1 of documents and the micro-F1, a correct label is weighed against F1 / 2 per assigned label, which is the optimal
threshold (Lipton, Elkan, Naryanaswamy: Optimal Thresholding of Classifiers to Maximize F1 Measure, 2014). Lin and Lin
(On the Thresholding Strategy for Infrequent Labels in Multi-label Classification, CIKM 2023) smooth F by constants, or
by the micro-F of the labels before.

The number of added documents and, unless given, the scope of the thresholds are selected by two-fold validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.evaluation.assignment_metrics import compute_assignment_metrics, f1
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.scores.thresholds import (
    NUMERIC_GOALS,
    SCOPE_ALL,
    SCOPE_DOCUMENT,
    SCOPE_LABEL,
    THRESHOLD_SCOPES,
    LabelSelector,
    ThresholdGoal,
    select_by_expected_f1,
)

SMOOTHING_COUNTS = (3.0, 10.0, 30.0, 100.0, 1000.0)  # true documents of the average label added to each label's own
MAX_CANDIDATE_THRESHOLDS = 200  # thresholds at which an F1 that is not a running sum is computed
CANDIDATE_SCALES = np.logspace(-1.5, 1.5, 31)  # contains 1
FALLBACK_THRESHOLD = 0.5  # if no prediction is correct


@dataclass(frozen=True)
class TunedThresholds:
    """Tuned label selector and the validation scores of the scopes that were tried."""

    decision: LabelSelector
    half_split_scores: dict[str, float]  # goal by scope, in two-fold validation; empty if only one was tried


class ThresholdTrial(NamedTuple):
    """Scope and smoothing of thresholds to try."""

    by: str
    smoothing: float = 0.0


class ThresholdCounts(NamedTuple):
    """Number of assigned and of correct labels at each threshold, from the highest."""

    thresholds: np.ndarray  # (n,) descending
    n_correct: np.ndarray
    n_assigned: np.ndarray
    negated_thresholds: np.ndarray  # (n,) ascending, for searchsorted


def tune_thresholds(
    results: RankedResults,
    goal: ThresholdGoal,
    n_labels: int,
    by: str | None = None,
    smoothing_counts: Sequence[float] = SMOOTHING_COUNTS,
) -> TunedThresholds:
    """Tune the thresholds for a goal on these documents.

    `by` is one of THRESHOLD_SCOPES; None selects the best scope by two-fold validation.
    """
    scopes = list_scopes(goal, by)
    trials = [
        ThresholdTrial(scope, smoothing)
        for scope in scopes
        for smoothing in (smoothing_counts if scope == SCOPE_LABEL else (0.0,))
    ]
    if len(trials) == 1 or results.n_docs < 2:
        return TunedThresholds(fit_label_selectors(results, goal, n_labels, trials[:1])[0], {})
    scores = score_on_halves(results, goal, n_labels, trials)
    best_trial = trials[int(np.argmax(scores))]  # the simplest of equal ones
    scope_scores = {
        scope: max(score for score, trial in zip(scores, trials, strict=True) if trial.by == scope) for scope in scopes
    }
    return TunedThresholds(fit_label_selectors(results, goal, n_labels, [best_trial])[0], scope_scores)


def list_scopes(goal: ThresholdGoal, by: str | None) -> tuple[str, ...]:
    """Return the scopes that are possible for a goal, the simplest first; only `by` if it is given.

    Raise XmtcError if `by` is not one of them.
    """
    if goal.name == "f1":
        scopes: tuple[str, ...] = (SCOPE_ALL, SCOPE_DOCUMENT, SCOPE_LABEL)
    elif goal.name in NUMERIC_GOALS:
        scopes = (SCOPE_ALL,)
    else:
        scopes = (SCOPE_ALL, SCOPE_LABEL)
    if by is None:
        return scopes
    if by not in scopes:
        problem = (
            f"Thresholds by {by} are not possible for {goal}"
            if by in THRESHOLD_SCOPES
            else f"{by!r} is not a scope of thresholds"
        )
        raise XmtcError(f"{problem}; expected {' or '.join(scopes)}.")
    return (by,)


def score_on_halves(
    results: RankedResults, goal: ThresholdGoal, n_labels: int, trials: Sequence[ThresholdTrial]
) -> list[float]:
    """Return the goal of each trial in two-fold validation: tuned on one half, computed on the other, averaged."""
    is_even = np.arange(results.n_docs) % 2 == 0
    totals = np.zeros(len(trials))
    for is_tuning in (is_even, ~is_even):
        selectors = fit_label_selectors(select_documents(results, is_tuning), goal, n_labels, trials)
        held_out = select_documents(results, ~is_tuning)
        totals += [compute_goal(goal, selector, held_out) for selector in selectors]
    return list(map(float, totals / 2))


def select_documents(results: RankedResults, rows: np.ndarray) -> RankedResults:
    labels, scores = results.predictions.labels[rows], results.predictions.scores[rows]
    return RankedResults(Predictions.from_valid_arrays(labels, scores), results.Y[rows])


def compute_goal(goal: ThresholdGoal, selector: LabelSelector, results: RankedResults) -> float:
    """Return the F1 that is the goal, of the selected labels."""
    metrics = compute_assignment_metrics(RankedResults(selector(results.predictions), results.Y))
    return {"f1": metrics.by_document, "micro-f1": metrics.micro, "macro-f1": metrics.macro}[goal.name][2]


def fit_label_selectors(
    results: RankedResults, goal: ThresholdGoal, n_labels: int, trials: Sequence[ThresholdTrial]
) -> list[LabelSelector]:
    """Tune the label selector of each trial on all these documents."""
    shared = fit_shared_threshold(results, goal)
    smoothings = [trial.smoothing for trial in trials if trial.by == SCOPE_LABEL]
    rows = fit_label_thresholds(results, goal, n_labels, shared, smoothings) if smoothings else ()
    thresholds_by_smoothing = dict(zip(smoothings, rows, strict=True))
    selectors, depth = [], max(1, results.predictions.k)
    for trial in trials:
        thresholds, scale = np.array([shared], np.float32), 1.0
        if trial.by == SCOPE_DOCUMENT:
            thresholds, scale = np.zeros(0, np.float32), fit_scale(results)
        elif trial.by == SCOPE_LABEL:
            thresholds = thresholds_by_smoothing[trial.smoothing]
        selectors.append(LabelSelector(str(goal), trial.by, thresholds, scale, depth))
    return selectors


# One threshold for all labels


def fit_shared_threshold(results: RankedResults, goal: ThresholdGoal) -> float:
    """Return the best threshold for a goal, the highest of equal ones."""
    _, scores, is_correct = sort_predictions(results)
    if not is_correct.any():
        return FALLBACK_THRESHOLD
    counts, n_true, value = count_at_thresholds(scores, is_correct), int(results.n_true.sum()), goal.value or 0.0
    thresholds = counts.thresholds
    if goal.name == "micro-f1":
        return float(thresholds[np.argmax(2 * counts.n_correct / (counts.n_assigned + n_true))])
    if goal.name == "precision":  # the lowest threshold that reaches it, else the highest
        reached = np.flatnonzero(counts.n_correct / counts.n_assigned >= value)
        return float(thresholds[reached[-1]]) if len(reached) else float(thresholds[0])
    if goal.name == "recall":  # the highest threshold that reaches it, else the lowest
        reached = np.flatnonzero(counts.n_correct / n_true >= value)
        return float(thresholds[reached[0]]) if len(reached) else float(thresholds[-1])
    if goal.name == "tags":
        return float(thresholds[np.abs(counts.n_assigned - value * results.n_docs).argmin()])
    positions = np.linspace(0, len(thresholds) - 1, MAX_CANDIDATE_THRESHOLDS).astype(int)
    candidates = np.unique(thresholds[positions])[::-1]
    return float(candidates[int(np.argmax([compute_mean_f1(goal, results, value) for value in candidates]))])


def sort_predictions(results: RankedResults) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, scores and correctness of all predictions, highest score first."""
    is_predicted = results.predictions.labels != NO_LABEL
    labels, scores = results.predictions.labels[is_predicted], results.predictions.scores[is_predicted]
    order = np.argsort(-scores, kind="stable")
    return labels[order], scores[order], results.hits[is_predicted][order]


def count_at_thresholds(
    scores: np.ndarray, is_correct: np.ndarray, weights: np.ndarray | None = None
) -> ThresholdCounts:
    """Return the (weighted) counts at each distinct score; scores are descending."""
    weights = np.ones(len(scores)) if weights is None else weights
    is_last = np.append(scores[1:] != scores[:-1], True) if len(scores) else np.zeros(0, bool)
    n_correct, n_assigned = np.cumsum(is_correct * weights)[is_last], np.cumsum(weights)[is_last]
    return ThresholdCounts(scores[is_last], n_correct, n_assigned, -scores[is_last])


def compute_mean_f1(goal: ThresholdGoal, results: RankedResults, threshold: float) -> float:
    """Return the mean F1 over documents, or over the labels that are assigned or true."""
    is_assigned = (results.predictions.scores >= threshold) & (results.predictions.labels != NO_LABEL)
    is_correct = is_assigned & results.hits
    if goal.name == "f1":
        return float(f1(is_correct.sum(axis=1), is_assigned.sum(axis=1), results.n_true).mean())
    labels = results.predictions.labels
    n_correct, n_assigned = (
        np.bincount(labels[mask], minlength=results.n_labels) for mask in (is_correct, is_assigned)
    )
    is_present = n_assigned + results.frequencies > 0
    return float(f1(n_correct, n_assigned, results.frequencies)[is_present].mean())


# Number of labels by expected F1


def fit_scale(results: RankedResults) -> float:
    """Return the factor of the scores with which selection by expected F1 gives the largest F1 of documents.

    It differs from 1 if scores are too low or too high for probabilities, or if labels depend on each other, which the
    expected F1 does not model.
    """
    values = []
    for scale in CANDIDATE_SCALES:
        is_selected = select_by_expected_f1(results.predictions, scale)
        n_correct = (is_selected & results.hits).sum(axis=1)
        values.append(f1(n_correct, is_selected.sum(axis=1), results.n_true).mean())
    return float(CANDIDATE_SCALES[int(np.argmax(values))])


# One threshold per label


def fit_label_thresholds(
    results: RankedResults, goal: ThresholdGoal, n_labels: int, shared: float, smoothing_counts: Sequence[float]
) -> np.ndarray:
    """Return the best threshold of each label, shape (len(smoothing_counts), n_labels), if so many true documents of
    the average label are added. A label without predictions gets the shared threshold."""
    labels, scores, is_correct = sort_predictions(results)
    thresholds = np.full((len(smoothing_counts), n_labels), shared, np.float32)
    if not len(labels):
        return thresholds
    average = compute_average_label(results, goal, labels, scores, is_correct)
    rate = 0.0 if goal.name == "macro-f1" else compute_half_f1(results, scores, is_correct, shared)
    order = np.argsort(labels, kind="stable")  # scores stay descending within each label
    ends = np.append(np.flatnonzero(np.diff(labels[order])) + 1, len(labels))
    added = np.asarray(smoothing_counts)[:, None]
    for begin, end in zip(np.append(0, ends[:-1]), ends, strict=True):
        rows, label = order[begin:end], labels[order[begin]]
        candidates = np.append(scores[rows], np.float32(shared))
        own_correct, own_assigned = look_up_counts(count_at_thresholds(scores[rows], is_correct[rows]), candidates)
        average_correct, average_assigned = look_up_counts(average, candidates)
        n_correct, n_assigned = own_correct + added * average_correct, own_assigned + added * average_assigned
        n_true = results.frequencies[label] + added
        gain = n_correct - rate * n_assigned if rate else 2 * n_correct / (n_assigned + n_true)
        thresholds[:, label] = candidates[np.argmax(gain, axis=1)]
    return thresholds


def compute_average_label(
    results: RankedResults, goal: ThresholdGoal, labels: np.ndarray, scores: np.ndarray, is_correct: np.ndarray
) -> ThresholdCounts:
    """Return the counts per true document of the average label: over all assignments, or for macro-F1 with equal weight
    for every label."""
    weights = 1 / np.maximum(results.frequencies, 1) if goal.name == "macro-f1" else np.ones(results.n_labels)
    counts = count_at_thresholds(scores, is_correct, weights[labels])
    n_true = max(1e-9, float(weights @ results.frequencies))
    return counts._replace(n_correct=counts.n_correct / n_true, n_assigned=counts.n_assigned / n_true)


def compute_half_f1(results: RankedResults, scores: np.ndarray, is_correct: np.ndarray, threshold: float) -> float:
    """Return half of the micro-F1 at a threshold."""
    n_assigned = int(np.searchsorted(-scores, -np.float32(threshold), side="right"))
    return float(is_correct[:n_assigned].sum() / max(1, n_assigned + results.n_true.sum()))


def look_up_counts(counts: ThresholdCounts, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of correct and of assigned labels at these thresholds."""
    n = np.searchsorted(counts.negated_thresholds, -thresholds, side="right")
    return np.where(n, counts.n_correct[n - 1], 0), np.where(n, counts.n_assigned[n - 1], 0)

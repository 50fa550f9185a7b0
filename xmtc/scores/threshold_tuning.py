"""Decisions learnt from documents that the model was not trained on, for what is wanted: micro-f1, precision=0.9.

A threshold of its own overfits a label that these documents have a few times. So each label is judged as if it had
some more true documents, about which the model errs as it does about the average label. For macro-F1 all labels count
alike in this average: that of all assignments is a frequent label, whose threshold is too high for the others. For the
F1 of documents and of all assignments, what is right is weighed against half of that F1 for each label that is given,
which is where the best threshold of all lies (Lipton, Elkan, Naryanaswamy: Optimal Thresholding of Classifiers to
Maximize F1 Measure, 2014). Lin and Lin (On the Thresholding Strategy for Infrequent Labels in Multi-label
Classification, CIKM 2023) smooth F by constants, or by the micro-F of the labels before.

How many documents are added, and by what a decision is made if nobody says it, is tried on halves: what one half of the
documents teaches is judged on the other."""

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

SMOOTHING_COUNTS = (
    3.0,
    10.0,
    30.0,
    100.0,
    1000.0,
)  # true documents of the average label, by which each label's own are smoothed
MAX_CANDIDATE_THRESHOLDS = 200  # thresholds that are tried where a goal must be computed at each
CANDIDATE_SCALES = np.logspace(-1.5, 1.5, 31)  # that are tried; 1 is one of them


@dataclass(frozen=True)
class TunedThresholds:
    decision: LabelSelector
    half_split_scores: dict[
        str, float
    ]  # by what it could be made: the goal that each half reaches by what the other taught


class ThresholdTrial(NamedTuple):
    by: str
    smoothing: float = 0.0


class ThresholdCounts(NamedTuple):
    """What happens at each threshold, from the highest on: labels given, and how many of them are right."""

    thresholds: np.ndarray  # (n,) falling
    n_correct: np.ndarray
    n_assigned: np.ndarray
    negated_thresholds: np.ndarray  # (n,) rising, the thresholds with a turned sign, to be searched


def tune_thresholds(
    judged: RankedResults,
    goal: ThresholdGoal,
    n_labels: int,
    by: str | None = None,
    smoothing_counts: Sequence[float] = SMOOTHING_COUNTS,
) -> TunedThresholds:
    """The decision that serves the goal best on these documents; by what, is tried if it is not said."""
    kinds = list_scopes(goal, by)
    tried = [
        ThresholdTrial(kind, each) for kind in kinds for each in (smoothing_counts if kind == SCOPE_LABEL else (0.0,))
    ]
    if len(tried) == 1 or judged.n_docs < 2:
        return TunedThresholds(fit_label_selectors(judged, goal, n_labels, tried[:1])[0], {})
    values = score_on_halves(judged, goal, n_labels, tried)
    best = tried[int(np.argmax(values))]  # of equal ones the simplest
    reached = {kind: max(v for v, trial in zip(values, tried, strict=True) if trial.by == kind) for kind in kinds}
    return TunedThresholds(fit_label_selectors(judged, goal, n_labels, [best])[0], reached)


def list_scopes(goal: ThresholdGoal, by: str | None) -> tuple[str, ...]:
    """By what a decision for a goal can be made, the simplest first."""
    able = (
        (SCOPE_ALL, SCOPE_DOCUMENT, SCOPE_LABEL)
        if goal.name == "f1"
        else (SCOPE_ALL,)
        if goal.name in NUMERIC_GOALS
        else (SCOPE_ALL, SCOPE_LABEL)
    )
    if by is not None and by not in able:
        found = (
            f"A decision by {by} is not for {goal}"
            if by in THRESHOLD_SCOPES
            else f"A decision cannot be made by {by!r}"
        )
        raise XmtcError(f"{found}; expected {' or '.join(able)}.")
    return able if by is None else (by,)


def score_on_halves(
    judged: RankedResults, goal: ThresholdGoal, n_labels: int, tried: Sequence[ThresholdTrial]
) -> list[float]:
    """The goal that each trial reaches on one half of the documents, learnt from the other; the mean of both ways."""
    even = np.arange(judged.n_docs) % 2 == 0
    sums = np.zeros(len(tried))
    for learnt in (even, ~even):
        other = select_documents(judged, ~learnt)
        decisions = fit_label_selectors(select_documents(judged, learnt), goal, n_labels, tried)
        sums += [compute_goal(goal, decision, other) for decision in decisions]
    return list(map(float, sums / 2))


def select_documents(judged: RankedResults, which: np.ndarray) -> RankedResults:
    found = judged.predictions
    return RankedResults(Predictions.from_valid_arrays(found.labels[which], found.scores[which]), judged.Y[which])


def compute_goal(goal: ThresholdGoal, decision: LabelSelector, judged: RankedResults) -> float:
    """The F1 that is the goal."""
    reached = compute_assignment_metrics(RankedResults(decision(judged.predictions), judged.Y))
    return {"f1": reached.by_document, "micro-f1": reached.micro, "macro-f1": reached.macro}[goal.name][2]


def fit_label_selectors(
    judged: RankedResults, goal: ThresholdGoal, n_labels: int, tried: Sequence[ThresholdTrial]
) -> list[LabelSelector]:
    """The decision of each trial, learnt from all these documents."""
    shared = fit_shared_threshold(judged, goal)
    more = [trial.smoothing for trial in tried if trial.by == SCOPE_LABEL]
    of_labels = dict(zip(more, fit_label_thresholds(judged, goal, n_labels, shared, more), strict=True)) if more else {}
    found = []
    for trial in tried:
        thresholds = {SCOPE_ALL: np.array([shared]), SCOPE_DOCUMENT: np.zeros(0)}.get(
            trial.by, of_labels.get(trial.smoothing)
        )
        scale = fit_scale(judged) if trial.by == SCOPE_DOCUMENT else 1.0
        found.append(
            LabelSelector(str(goal), trial.by, np.asarray(thresholds, np.float32), scale, max(1, judged.predictions.k))
        )
    return found


# One threshold for all labels


def fit_shared_threshold(judged: RankedResults, goal: ThresholdGoal) -> float:
    """Where several serve the goal alike, the highest."""
    _, scores, right = sort_predictions(judged)
    if not right.any():
        return 0.5
    at, n_true, wanted = count_at_thresholds(scores, right), int(judged.n_true.sum()), goal.value or 0.0
    if goal.name == "micro-f1":
        return float(at.thresholds[np.argmax(2 * at.n_correct / (at.n_assigned + n_true))])
    if goal.name == "precision":  # as many tags as keep to it
        enough = np.flatnonzero(at.n_correct / at.n_assigned >= wanted)
        return float(at.thresholds[enough[-1]]) if len(enough) else float(at.thresholds[0])
    if goal.name == "recall":  # as few tags as reach it
        enough = np.flatnonzero(at.n_correct / n_true >= wanted)
        return float(at.thresholds[enough[0]]) if len(enough) else float(at.thresholds[-1])
    if goal.name == "tags":
        return float(at.thresholds[np.abs(at.n_assigned - wanted * judged.n_docs).argmin()])
    tried = np.unique(at.thresholds[np.linspace(0, len(at.thresholds) - 1, MAX_CANDIDATE_THRESHOLDS).astype(int)])[::-1]
    reached = [compute_mean_f1(goal, judged, threshold) for threshold in tried]
    return float(tried[int(np.argmax(reached))])


def sort_predictions(judged: RankedResults) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, scores and whether they are right, of all predictions, highest score first."""
    answered = judged.predictions.labels != NO_LABEL
    labels, scores = judged.predictions.labels[answered], judged.predictions.scores[answered]
    order = np.argsort(-scores, kind="stable")
    return labels[order], scores[order], judged.hits[answered][order]


def count_at_thresholds(scores: np.ndarray, right: np.ndarray, weights: np.ndarray | None = None) -> ThresholdCounts:
    """At each score that occurs; equal ones are given together. Each counts 1, or as much as its weight."""
    weights = np.ones(len(scores)) if weights is None else weights
    last = np.append(scores[1:] != scores[:-1], True) if len(scores) else np.zeros(0, bool)
    return ThresholdCounts(scores[last], np.cumsum(right * weights)[last], np.cumsum(weights)[last], -scores[last])


def compute_mean_f1(goal: ThresholdGoal, judged: RankedResults, threshold: float) -> float:
    """The mean of F1 over documents, or over labels that documents have or get."""
    given = (judged.predictions.scores >= threshold) & (judged.predictions.labels != NO_LABEL)
    right = given & judged.hits
    if goal.name == "f1":
        return float(f1(right.sum(axis=1), given.sum(axis=1), judged.n_true).mean())
    size, labels = judged.n_labels, judged.predictions.labels
    n_right, n_given = np.bincount(labels[right], minlength=size), np.bincount(labels[given], minlength=size)
    present = n_given + judged.frequencies > 0
    return float(f1(n_right, n_given, judged.frequencies)[present].mean())


# As many labels as promise the largest F1


def fit_scale(judged: RankedResults) -> float:
    """By which scores are to be multiplied, so that expected F1 gives documents the largest. Scores that are told too
    low or too high have one that is not 1, and so have labels that come together, which expected F1 takes for
    independent."""
    reached = []
    for scale in CANDIDATE_SCALES:
        given = select_by_expected_f1(judged.predictions, scale)
        right = (given & judged.hits).sum(axis=1)
        reached.append(f1(right, given.sum(axis=1), judged.n_true).mean())
    return float(CANDIDATE_SCALES[int(np.argmax(reached))])


# A threshold for each label


def fit_label_thresholds(
    judged: RankedResults, goal: ThresholdGoal, n_labels: int, shared: float, smoothing_counts: Sequence[float]
) -> np.ndarray:
    """(len(more), n_labels) the best ones, if so many true documents of the average label are added to a label's own.
    A label that is in no answer keeps the threshold of all."""
    labels, scores, right = sort_predictions(judged)
    found = np.full((len(smoothing_counts), n_labels), shared, np.float32)
    if not len(labels):
        return found
    average = compute_average_label(judged, goal, labels, scores, right)
    rate = 0.0 if goal.name == "macro-f1" else compute_half_f1(judged, scores, right, shared)
    order = np.argsort(labels, kind="stable")  # scores stay falling within each label
    ends = np.append(np.flatnonzero(np.diff(labels[order])) + 1, len(labels))
    added = np.asarray(smoothing_counts)[:, None]
    for begin, end in zip(np.append(0, ends[:-1]), ends, strict=True):
        own, label = order[begin:end], labels[order[begin]]
        tried = np.append(scores[own], np.float32(shared))
        own_right, own_given = look_up_counts(count_at_thresholds(scores[own], right[own]), tried)
        all_right, all_given = look_up_counts(average, tried)
        n_right, n_given = own_right + added * all_right, own_given + added * all_given
        gain = n_right - rate * n_given if rate else 2 * n_right / (n_given + judged.frequencies[label] + added)
        found[:, label] = tried[np.argmax(gain, axis=1)]
    return found


def compute_average_label(
    judged: RankedResults, goal: ThresholdGoal, labels: np.ndarray, scores: np.ndarray, right: np.ndarray
) -> ThresholdCounts:
    """What happens for each true document of the average label: over all assignments, or, for macro-F1, with all
    labels alike, however often they are true."""
    weights = 1 / np.maximum(judged.frequencies, 1) if goal.name == "macro-f1" else np.ones(judged.n_labels)
    at = count_at_thresholds(scores, right, weights[labels])
    n_true = max(1e-9, float(weights @ judged.frequencies))
    return at._replace(n_correct=at.n_correct / n_true, n_assigned=at.n_assigned / n_true)


def compute_half_f1(judged: RankedResults, scores: np.ndarray, right: np.ndarray, threshold: float) -> float:
    """Half of the F1 over all assignments, at a threshold."""
    n_given = int(np.searchsorted(-scores, -np.float32(threshold), side="right"))
    return float(right[:n_given].sum() / max(1, n_given + judged.n_true.sum()))


def look_up_counts(at: ThresholdCounts, tried: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many labels are right, and given, at these thresholds."""
    n = np.searchsorted(at.negated_thresholds, -tried, side="right")
    return np.where(n, at.n_correct[n - 1], 0), np.where(n, at.n_assigned[n - 1], 0)

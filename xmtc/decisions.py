"""From scores to tags: which of the ranked labels a document gets.

One threshold for all labels, one for each label, or as many tags as give the largest F1 that can be expected. They are
learnt from documents that the model was not trained on, for what is wanted: a goal such as micro-f1 or precision=0.9.

A threshold of its own overfits a label that the documents have a few times. Here each label is judged as if it had some
more true documents, about which the model errs as it does on average over all labels; Lin and Lin (On the Thresholding
Strategy for Infrequent Labels in Multi-label Classification, CIKM 2023) smooth F by constants instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmtc.base.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.evaluation.judged import Judged

MORE = 10.0  # true documents of the average label, by which each label's own are smoothed
STEPS = 200  # thresholds that are tried where a goal must be computed at each
GOALS = ("f1", "micro-f1", "macro-f1", "precision", "recall", "tags")
WITH_A_NUMBER = ("precision", "recall", "tags")


class Goal(NamedTuple):
    """What a decision is made for."""

    name: str
    value: float | None = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value:g}"


def parse_goal(text: str) -> Goal:
    """micro-f1, or precision=0.9."""
    name, sign, number = text.strip().lower().partition("=")
    expected = "expected f1, micro-f1, macro-f1, or a number such as precision=0.9, recall=0.8 or tags=5"
    if name not in GOALS or bool(sign) != (name in WITH_A_NUMBER):
        raise XmtcError(f"{text!r} is no goal of a decision; {expected}.")
    if not sign:
        return Goal(name)
    try:
        value = float(number)
    except ValueError:
        value = np.nan
    if not 0 < value <= (np.inf if name == "tags" else 1) or value == np.inf:
        raise XmtcError(f"{text!r} is no goal of a decision; {expected}.")
    return Goal(name, value)


@dataclass(frozen=True)
class Decision:
    """Which labels are given: those that reach their threshold, or as many as promise the largest F1."""

    goal: Goal
    thresholds: np.ndarray  # (1,) float32 for all labels, or (n_labels,); of no length: by expected F1

    def __call__(self, found: Predictions) -> Predictions:
        """Only the labels that are given, best first."""
        if not len(self.thresholds):
            return kept(found, by_expected_f1(found))
        labels = np.maximum(found.labels, 0)
        least = self.thresholds[labels] if len(self.thresholds) > 1 else self.thresholds[0]
        return kept(found, (found.scores >= least) & (found.labels != NO_LABEL))


def kept(found: Predictions, given: np.ndarray) -> Predictions:
    """The labels that are given, (n_docs, k) bool, moved to the front in their order."""
    order = np.argsort(~given, axis=1, kind="stable")
    given = np.take_along_axis(given, order, axis=1)
    labels = np.where(given, np.take_along_axis(found.labels, order, axis=1), NO_LABEL)
    scores = np.where(given, np.take_along_axis(found.scores, order, axis=1), 0)
    return Predictions.trusted(labels.astype(np.int32), scores.astype(np.float32))


def by_expected_f1(found: Predictions) -> np.ndarray:
    """(n_docs, k) bool: the first labels of each document, as many as make 2 Σ p of these / (their number + Σ p of all)
    largest, in which scores are taken for probabilities."""
    p = np.where(found.labels == NO_LABEL, 0, np.clip(found.scores, 0, 1)).astype(np.float64)
    places = np.arange(1, p.shape[1] + 1)
    promised = 2 * np.cumsum(p, axis=1) / (places + p.sum(axis=1, keepdims=True))
    best = promised.argmax(axis=1) if p.shape[1] else np.zeros(len(p), int)
    return (places <= best[:, None] + 1) & (p > 0)


# What is learnt from documents with their true labels


class Counts(NamedTuple):
    """What happens at each threshold, from the highest on: labels given, and how many of them are right."""

    thresholds: np.ndarray  # (n,) falling
    right: np.ndarray
    given: np.ndarray


def learn(judged: Judged, goal: Goal, n_labels: int, per_label: bool = False, more: float = MORE) -> Decision:
    """The decision that serves the goal best on these documents."""
    if per_label and goal.name in WITH_A_NUMBER:
        raise XmtcError(f"A threshold for each label is for f1, micro-f1 and macro-f1, not for {goal}.")
    shared = one_threshold(judged, goal)
    if not per_label:
        return Decision(goal, np.array([shared], np.float32))
    return Decision(goal, label_thresholds(judged, n_labels, shared, more))


def decisions(judged: Judged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, scores and whether they are right, of all predictions, highest score first."""
    answered = judged.predictions.labels != NO_LABEL
    labels, scores = judged.predictions.labels[answered], judged.predictions.scores[answered]
    order = np.argsort(-scores, kind="stable")
    return labels[order], scores[order], judged.hits[answered][order]


def counts(scores: np.ndarray, right: np.ndarray) -> Counts:
    """At each score that occurs; equal ones are given together."""
    last = np.append(scores[1:] != scores[:-1], True) if len(scores) else np.zeros(0, bool)
    return Counts(scores[last], np.cumsum(right)[last], np.flatnonzero(last) + 1)


def one_threshold(judged: Judged, goal: Goal) -> float:
    """For all labels. Where several serve the goal alike, the highest."""
    _, scores, right = decisions(judged)
    if not right.any():
        return 0.5
    at, n_true, wanted = counts(scores, right), int(judged.n_true.sum()), goal.value or 0.0
    if goal.name == "micro-f1":
        return float(at.thresholds[np.argmax(2 * at.right / (at.given + n_true))])
    if goal.name == "precision":  # as many tags as keep to it
        enough = np.flatnonzero(at.right / at.given >= wanted)
        return float(at.thresholds[enough[-1]]) if len(enough) else float(at.thresholds[0])
    if goal.name == "recall":  # as few tags as reach it
        enough = np.flatnonzero(at.right / n_true >= wanted)
        return float(at.thresholds[enough[0]]) if len(enough) else float(at.thresholds[-1])
    if goal.name == "tags":
        return float(at.thresholds[np.abs(at.given - wanted * judged.n_docs).argmin()])
    tried = np.unique(at.thresholds[np.linspace(0, len(at.thresholds) - 1, STEPS).astype(int)])[::-1]
    reached = [f1_by(goal, judged, threshold) for threshold in tried]
    return float(tried[int(np.argmax(reached))])


def f1_by(goal: Goal, judged: Judged, threshold: float) -> float:
    """The mean of F1 over documents, or over labels that documents have or get."""
    given = (judged.predictions.scores >= threshold) & (judged.predictions.labels != NO_LABEL)
    right = given & judged.hits
    if goal.name == "f1":
        return float(f1(right.sum(axis=1), given.sum(axis=1), judged.n_true, empty=1.0).mean())
    size, labels = judged.n_labels, judged.predictions.labels
    n_right, n_given = np.bincount(labels[right], minlength=size), np.bincount(labels[given], minlength=size)
    present = n_given + judged.frequencies > 0
    return float(f1(n_right, n_given, judged.frequencies)[present].mean())


def f1(right: np.ndarray, given: np.ndarray, true: np.ndarray, empty: float = 0.0) -> np.ndarray:
    """2 right / (given + true); `empty` where nothing is true and nothing given."""
    total = given + true
    return np.where(total > 0, 2 * right / np.maximum(total, 1), empty)


def label_thresholds(judged: Judged, n_labels: int, shared: float, more: float) -> np.ndarray:
    """(n_labels,) where each label's F1 is largest, smoothed: `more` true documents of the average label are added to
    its own. A label that is in no answer keeps the threshold of all."""
    labels, scores, right = decisions(judged)
    n_true = max(1, int(judged.n_true.sum()))
    average = counts(scores, right)
    share = more / n_true  # of all decisions, so many are added to each label's
    found = np.full(n_labels, shared, np.float32)
    order = np.argsort(labels, kind="stable")  # scores stay falling within each label
    ends = np.append(np.flatnonzero(np.diff(labels[order])) + 1, len(labels)) if len(labels) else np.zeros(0, int)
    frequencies = judged.frequencies
    for begin, end in zip(np.append(0, ends[:-1]), ends, strict=True):
        own, label = order[begin:end], labels[order[begin]]
        if label < n_labels:
            at = counts(scores[own], right[own])
            found[label] = smoothed_best(at, float(frequencies[label]), average, share, more, shared)
    return found


def smoothed_best(at: Counts, n_true: float, average: Counts, share: float, more: float, shared: float) -> float:
    """The threshold with the largest smoothed F1: at the label's own scores, or the one of all labels."""
    tried = np.append(at.thresholds, np.float32(shared))
    (own_right, own_given), (all_right, all_given) = reached(at, tried), reached(average, tried)
    smoothed = 2 * (own_right + share * all_right) / (own_given + share * all_given + n_true + more)
    return float(tried[int(np.argmax(smoothed))])


def reached(at: Counts, tried: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many labels are right, and given, at these thresholds."""
    n = np.searchsorted(-at.thresholds, -tried, side="right")
    return np.append(0, at.right)[n], np.append(0, at.given)[n]

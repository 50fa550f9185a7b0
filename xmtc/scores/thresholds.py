"""Which of the ranked labels a document gets: those that reach a threshold, one for all labels or one for each; or as
many as give the document the largest F1 that can be expected."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.evaluation import EVALUATION_DEPTH
from xmtc.storage.folder import encode_value
from xmtc.storage.form import Form, array

GOAL_NAMES = ("f1", "micro-f1", "macro-f1", "precision", "recall", "tags")
NUMERIC_GOALS = ("precision", "recall", "tags")
THRESHOLD_SCOPES = SCOPE_ALL, SCOPE_LABEL, SCOPE_DOCUMENT = (
    "all",
    "label",
    "document",
)  # a threshold for all, one for each label, a number of tags
MAX_DECISION_DEPTH = 1000  # labels of a document that a decision looks at, at most
FINGERPRINT_VALUES = 4096  # numbers
GOAL_FORMATS = "f1, micro-f1, macro-f1, or a number such as precision=0.9, recall=0.8 or tags=5"


class ThresholdGoal(NamedTuple):
    """What a decision is made for."""

    name: str
    value: float | None = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value:g}"


def parse_goal(text: str) -> ThresholdGoal:
    """micro-f1, or precision=0.9."""
    name, sign, number = text.strip().lower().partition("=")
    if name not in GOAL_NAMES or bool(sign) != (name in NUMERIC_GOALS):
        raise XmtcError(f"{text!r} is no goal of a decision; expected {GOAL_FORMATS}.")
    if not sign:
        return ThresholdGoal(name)
    try:
        value = float(number)
    except ValueError:
        value = np.nan
    if not 0 < value <= (MAX_DECISION_DEPTH if name == "tags" else 1):
        raise XmtcError(f"{text!r} is no goal of a decision; expected {GOAL_FORMATS}.")
    return ThresholdGoal(name, value)


@dataclass(frozen=True)
class LabelSelector(Form):
    """Learnt from the scores of one model, and of use for these alone."""

    goal: str  # micro-f1, precision=0.9
    by: str  # one of BY
    thresholds: np.ndarray = array(np.float32)  # (1,) for all labels, (n_labels,), or none: by expected F1
    scale: float = 1.0  # by which scores are multiplied before expected F1 takes them for probabilities
    depth: int = EVALUATION_DEPTH  # labels of a document that it looks at, the best first
    most: int = 1  # labels that a document got, of those that it was learnt from
    scores: str = ""  # whose scores it was learnt on: `scores_of` that model

    def __call__(self, found: Predictions) -> Predictions:
        """Only the labels that are given, best first."""
        found = found.keep_best(self.depth)
        if self.by == SCOPE_DOCUMENT:
            return select_labels(found, select_by_expected_f1(found, self.scale))
        labels = np.maximum(found.labels, 0)
        least = self.thresholds[labels] if self.by == SCOPE_LABEL else self.thresholds[0]
        return select_labels(found, (found.scores >= least) & (found.labels != NO_LABEL))

    def check(self) -> None:
        if self.goal.partition("=")[0] not in GOAL_NAMES or not (
            np.isfinite(self.thresholds).all() and np.isfinite(self.scale)
        ):
            raise ValueError("its decision is for something unknown, or has thresholds that are no numbers")

    def is_compatible_with(self, n_labels: int) -> bool:
        """Whether it can be for a model of so many labels; only sizes are looked at."""
        sizes = {SCOPE_ALL: 1, SCOPE_LABEL: n_labels, SCOPE_DOCUMENT: 0}
        return len(self.thresholds) == sizes.get(self.by) and 1 <= self.depth <= MAX_DECISION_DEPTH and self.scale > 0

    def __str__(self) -> str:
        if self.by == SCOPE_DOCUMENT:
            return "as many labels as promise a document the largest F1"
        if self.by == SCOPE_ALL:
            return f"labels that score at least {self.thresholds[0]:.3g}"
        low, middle, high = np.quantile(self.thresholds, (0.1, 0.5, 0.9))
        return f"a threshold for each label, {middle:.3g} in the middle, 8 of 10 from {low:.3g} to {high:.3g}"

    def describe(self) -> dict[str, Any]:
        """What is said of it in about.json."""
        return {"for": self.goal, "by": self.by, "gives": str(self)}


def fingerprint_model(model: Form) -> str:
    """A mark by which a model is known whose scores have changed, because it was calibrated, say. Of large arrays it
    looks at both ends alone, so that it takes no time."""
    arrays: dict[str, np.ndarray] = {}
    encode_value(model, "model", arrays)
    mark = sha256()
    for name, values in sorted(arrays.items()):
        flat = values.reshape(-1)
        mark.update(
            f"{name} {values.dtype} {values.shape}".encode()
            + flat[:FINGERPRINT_VALUES].tobytes()
            + flat[-FINGERPRINT_VALUES:].tobytes()
        )
    return mark.hexdigest()[:16]


def select_labels(found: Predictions, given: np.ndarray) -> Predictions:
    """The labels that are given, (n_docs, k) bool, moved to the front in their order."""
    order = np.argsort(~given, axis=1, kind="stable")
    given = np.take_along_axis(given, order, axis=1)
    labels = np.where(given, np.take_along_axis(found.labels, order, axis=1), NO_LABEL)
    scores = np.where(given, np.take_along_axis(found.scores, order, axis=1), 0)
    return Predictions.from_valid_arrays(labels.astype(np.int32), scores.astype(np.float32))


def select_by_expected_f1(found: Predictions, scale: float = 1.0) -> np.ndarray:
    """(n_docs, k) bool: the first labels of each document, as many as make 2 Σ p of these / (their number + Σ p of all)
    largest, in which scores, times the scale, are taken for probabilities."""
    p = np.where(found.labels == NO_LABEL, 0, np.clip(found.scores * scale, 0, 1)).astype(np.float64)
    places = np.arange(1, p.shape[1] + 1)
    promised = 2 * np.cumsum(p, axis=1) / (places + p.sum(axis=1, keepdims=True))
    best = promised.argmax(axis=1) if p.shape[1] else np.zeros(len(p), int)
    return (places <= best[:, None] + 1) & (p > 0)

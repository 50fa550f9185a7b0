"""Selection of labels from a ranking by tuned thresholds (`threshold="tuned"`).

A `LabelSelector` selects the labels that reach a threshold, one for all labels or one per label; or as many labels as
maximise the expected F1 of the document. `threshold_tuning.py` tunes one on labelled documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.evaluation import EVALUATION_DEPTH
from xmtc.scores.quality import QualityGate
from xmtc.storage.folder import encode_value
from xmtc.storage.form import Form, array

GOAL_NAMES = ("f1", "micro-f1", "macro-f1", "precision", "recall", "tags")
NUMERIC_GOALS = ("precision", "recall", "tags")
GOAL_FORMATS = "f1, micro-f1, macro-f1, or a number such as precision=0.9, recall=0.8 or tags=5"
SCOPE_ALL = "all"  # one threshold for all labels
SCOPE_LABEL = "label"  # one threshold per label
SCOPE_DOCUMENT = "document"  # number of labels with the largest expected F1 of the document
THRESHOLD_SCOPES = SCOPE_ALL, SCOPE_LABEL, SCOPE_DOCUMENT
MAX_DECISION_DEPTH = 1000  # maximum labels per document from which labels are selected
FINGERPRINT_VALUES = 4096  # values hashed at each end of an array


class ThresholdGoal(NamedTuple):
    """Metric that thresholds are tuned for, such as micro-f1 or precision=0.9."""

    name: str
    value: float | None = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value:g}"


def parse_goal(text: str) -> ThresholdGoal:
    """Parse a goal such as "micro-f1" or "precision=0.9"; raise XmtcError if it is not valid."""
    name, sign, number = text.strip().lower().partition("=")
    value = None
    if sign:
        try:
            value = float(number)
        except ValueError:
            value = np.nan
    max_value = MAX_DECISION_DEPTH if name == "tags" else 1
    is_valid = name in GOAL_NAMES and (value is not None) == (name in NUMERIC_GOALS)
    if not is_valid or not (value is None or 0 < value <= max_value):
        raise XmtcError(f"{text!r} is not a goal for thresholds; expected {GOAL_FORMATS}.")
    return ThresholdGoal(name, value)


@dataclass(frozen=True)
class LabelSelector(Form):
    """Tuned rule that selects labels from a ranking; valid only for the scores of the model it was tuned on."""

    goal: str  # such as micro-f1 or precision=0.9
    by: str  # one of THRESHOLD_SCOPES
    thresholds: np.ndarray = array(np.float32)  # (1,) for all labels, (n_labels,) per label, or (0,) by expected F1
    scale: float = 1.0  # factor that turns scores into probabilities for the expected F1
    depth: int = EVALUATION_DEPTH  # labels per document from which labels are selected, best first
    most: int = 1  # most labels selected for a document in tuning
    scores: str = ""  # fingerprint of the model it was tuned on
    gate: tuple[QualityGate, ...] = ()  # none, or one for the selected labels

    def __call__(self, predictions: Predictions) -> Predictions:
        """Return only the selected labels, best first."""
        predictions = predictions.keep_best(self.depth)
        if self.by == SCOPE_DOCUMENT:
            return select_labels(predictions, select_by_expected_f1(predictions, self.scale))
        labels = np.maximum(predictions.labels, 0)
        thresholds = self.thresholds[labels] if self.by == SCOPE_LABEL else self.thresholds[0]
        return select_labels(predictions, (predictions.scores >= thresholds) & (predictions.labels != NO_LABEL))

    def check(self) -> None:
        """Raise ValueError if the goal is unknown or a number is not finite."""
        if self.goal.partition("=")[0] not in GOAL_NAMES:
            raise ValueError(f"its decision has the unknown goal {self.goal!r}")
        if not (np.isfinite(self.thresholds).all() and np.isfinite(self.scale)):
            raise ValueError("its decision has thresholds that are not finite")
        for gate in self.gate:
            gate.check()

    def is_compatible_with(self, n_labels: int) -> bool:
        """Return True if the sizes are valid for a model with n_labels."""
        sizes = {SCOPE_ALL: 1, SCOPE_LABEL: n_labels, SCOPE_DOCUMENT: 0}
        is_in_range = 1 <= self.depth <= MAX_DECISION_DEPTH and self.scale > 0 and len(self.gate) <= 1
        return len(self.thresholds) == sizes.get(self.by) and is_in_range

    def __str__(self) -> str:
        if self.by == SCOPE_DOCUMENT:
            return "as many labels as maximise the expected F1 of the document"
        if self.by == SCOPE_ALL:
            return f"labels that score at least {self.thresholds[0]:.3g}"
        low, middle, high = np.quantile(self.thresholds, (0.1, 0.5, 0.9))
        return f"one threshold per label, with median {middle:.3g} and 10 % to 90 % quantiles {low:.3g} to {high:.3g}"

    def describe(self) -> dict[str, Any]:
        """Return the entry of about.json."""
        gate = {"gate": self.gate[0].describe()} if self.gate else {}
        return {"for": self.goal, "by": self.by, "gives": str(self), **gate}


def fingerprint_model(model: Form) -> str:
    """Return a hash that changes with the model's scores, for example after calibration. Only both ends of large arrays
    are hashed, so that it is fast."""
    arrays: dict[str, np.ndarray] = {}
    encode_value(model, "model", arrays)
    digest = sha256()
    for name, values in sorted(arrays.items()):
        flat = values.reshape(-1)
        digest.update(
            f"{name} {values.dtype} {values.shape}".encode()
            + flat[:FINGERPRINT_VALUES].tobytes()
            + flat[-FINGERPRINT_VALUES:].tobytes()
        )
    return digest.hexdigest()[:16]


def select_labels(predictions: Predictions, is_selected: np.ndarray) -> Predictions:
    """Return only the selected labels (bool of shape (n_docs, k)), moved to the front in their order."""
    order = np.argsort(~is_selected, axis=1, kind="stable")
    is_selected = np.take_along_axis(is_selected, order, axis=1)
    labels = np.where(is_selected, np.take_along_axis(predictions.labels, order, axis=1), NO_LABEL)
    scores = np.where(is_selected, np.take_along_axis(predictions.scores, order, axis=1), 0)
    return Predictions.from_valid_arrays(labels.astype(np.int32), scores.astype(np.float32))


def select_by_expected_f1(predictions: Predictions, scale: float = 1.0) -> np.ndarray:
    """Select the first n labels of each document, with the n that maximises the expected F1, bool of shape (n_docs, k).

    With probabilities p (scores times the scale), the expected F1 of n labels is 2 Σ p of these / (n + Σ p of all).
    """
    p = np.where(predictions.labels == NO_LABEL, 0, np.clip(predictions.scores * scale, 0, 1)).astype(np.float64)
    n_labels = np.arange(1, p.shape[1] + 1)
    expected_f1 = 2 * np.cumsum(p, axis=1) / (n_labels + p.sum(axis=1, keepdims=True))
    best = expected_f1.argmax(axis=1) if p.shape[1] else np.zeros(len(p), int)
    return (n_labels <= best[:, None] + 1) & (p > 0)

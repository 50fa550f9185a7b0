"""Names of metrics, `P@5` or `macro-F1@0.5`: how they are parsed, and what is said about one that is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import DECISION, METRIC_FAMILIES, MetricFamily, find_metric_family

RANKING_METRICS = ("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5")
DEFAULT_METRICS = (*RANKING_METRICS, "PSP@1", "PSP@3", "PSP@5")
DECISION_METRICS = tuple(
    f"{over}-{what}@{DECISION}" for over in ("micro", "macro", "example") for what in ("P", "R", "F1")
)


@dataclass(frozen=True)
class Metric:
    """A parsed name: a measure, and the k, score threshold or group of labels that follows its @."""

    family: MetricFamily
    parameter_value: Any

    @property
    def name(self) -> str:
        at = f"{self.parameter_value:g}" if isinstance(self.parameter_value, float) else self.parameter_value
        return f"{self.family.name}@{at}"

    @property
    def n_predictions(self) -> int:
        """How many predictions per document it needs."""
        return self.family.parameter.n_predictions(self.parameter_value)

    def compute(self, judged: RankedResults) -> float:
        """A fraction from 0 to 1, but for rawPSP; nan for a frequency group without labels."""
        return float(np.mean(self.family.compute(judged, self.parameter_value)))

    def goodness(self, value: float) -> float:
        """The larger, the better: the value itself, or what an error leaves of 1."""
        return 1 - value if self.family.is_error else value

    def compute_per_document(self, judged: RankedResults) -> np.ndarray:
        """(n_docs,) values, whose mean is the metric's value."""
        if not self.family.is_per_document:
            able = ", ".join(measure.name for measure in METRIC_FAMILIES.values() if measure.is_per_document)
            raise XmtcError(f"{self.name} has no value for a single document; only {able} have one.")

        return np.asarray(self.family.compute(judged, self.parameter_value))


def parse_metric(name: str) -> Metric:
    """A metric by its name, in upper or lower case."""
    kind, _, text = name.strip().partition("@")
    measure = find_metric_family(kind)
    metric = make_metric(measure, text) if measure else None

    if metric is None:
        raise XmtcError(f"{name!r} is not a metric{suggest_metric(kind, text)}; the metrics are {list_metrics()}.")
    return metric


def parse_metrics(names: str | Iterable[str]) -> list[Metric]:
    """Metrics by their names; one may stand alone."""
    return [parse_metric(name) for name in ([names] if isinstance(names, str) else names)]


def make_metric(measure: MetricFamily, text: str) -> Metric | None:
    """A measure with the value that is written after the @; None if the value does not fit."""
    at = measure.parameter.parse(text)
    return None if at is None else Metric(measure, at)


def suggest_metric(kind: str, text: str) -> str:
    """The metric that was probably meant, or nothing."""
    near = get_close_matches(kind.lower(), [name.lower() for name in METRIC_FAMILIES], n=1, cutoff=0.4)
    measure = find_metric_family(near[0]) if near else None
    if measure is None:
        return ""

    meant = make_metric(measure, text) or make_metric(measure, measure.parameter.example)
    return f" (did you mean {meant.name}?)" if meant and meant.name != f"{kind}@{text}" else ""


def list_metrics() -> str:
    """All metrics, those with the same kind of value after the @ together."""
    kinds = dict.fromkeys(measure.parameter for measure in METRIC_FAMILIES.values())
    return "; ".join(
        ", ".join(m.usage for m in METRIC_FAMILIES.values() if m.parameter is at) + at.note for at in kinds
    )


def has_hierarchical_metric(metrics: str | Iterable[str]) -> bool:
    """Whether one of the metrics asks what stands above a label."""
    return any(metric.family.is_hierarchical for metric in parse_metrics(metrics))


def has_decision_metric(metrics: str | Iterable[str]) -> bool:
    """Whether one of the metrics asks which labels the model has decided to give."""
    return any(metric.parameter_value == DECISION for metric in parse_metrics(metrics))


def max_k(metrics: str | Iterable[str]) -> int:
    """How many predictions per document the metrics need."""
    return max((metric.n_predictions for metric in parse_metrics(metrics)), default=1)

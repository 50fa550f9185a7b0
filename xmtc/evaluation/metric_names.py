"""Names of metrics, `P@5` or `macro-F1@0.5`: how they are parsed, and what is said about one that is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.ranked_results import Judged
from xmtc.evaluation.registry import DECISION, MEASURES, Measure, find_measure

RANKING = ("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5")
DEFAULT = (*RANKING, "PSP@1", "PSP@3", "PSP@5")
AT_DECISION = tuple(f"{over}-{what}@{DECISION}" for over in ("micro", "macro", "example") for what in ("P", "R", "F1"))


@dataclass(frozen=True)
class Metric:
    """A parsed name: a measure, and the k, score threshold or group of labels that follows its @."""

    measure: Measure
    at: Any

    @property
    def name(self) -> str:
        at = f"{self.at:g}" if isinstance(self.at, float) else self.at
        return f"{self.measure.name}@{at}"

    @property
    def n_predictions(self) -> int:
        """How many predictions per document it needs."""
        return self.measure.at.n_predictions(self.at)

    def value(self, judged: Judged) -> float:
        """A fraction from 0 to 1, but for rawPSP; nan for a frequency group without labels."""
        return float(np.mean(self.measure.compute(judged, self.at)))

    def goodness(self, value: float) -> float:
        """The larger, the better: the value itself, or what an error leaves of 1."""
        return 1 - value if self.measure.is_error else value

    def per_document(self, judged: Judged) -> np.ndarray:
        """(n_docs,) values, whose mean is the metric's value."""
        if not self.measure.per_document:
            able = ", ".join(measure.name for measure in MEASURES.values() if measure.per_document)
            raise XmtcError(f"{self.name} has no value for a single document; only {able} have one.")

        return np.asarray(self.measure.compute(judged, self.at))


def parse_metric(name: str) -> Metric:
    """A metric by its name, in upper or lower case."""
    kind, _, text = name.strip().partition("@")
    measure = find_measure(kind)
    metric = metric_at(measure, text) if measure else None

    if metric is None:
        raise XmtcError(f"{name!r} is not a metric{hint(kind, text)}; the metrics are {listing()}.")
    return metric


def parse_metrics(names: str | Iterable[str]) -> list[Metric]:
    """Metrics by their names; one may stand alone."""
    return [parse_metric(name) for name in ([names] if isinstance(names, str) else names)]


def metric_at(measure: Measure, text: str) -> Metric | None:
    """A measure with the value that is written after the @; None if the value does not fit."""
    at = measure.at.parse(text)
    return None if at is None else Metric(measure, at)


def hint(kind: str, text: str) -> str:
    """The metric that was probably meant, or nothing."""
    near = get_close_matches(kind.lower(), [name.lower() for name in MEASURES], n=1, cutoff=0.4)
    measure = find_measure(near[0]) if near else None
    if measure is None:
        return ""

    meant = metric_at(measure, text) or metric_at(measure, measure.at.example)
    return f" (did you mean {meant.name}?)" if meant and meant.name != f"{kind}@{text}" else ""


def listing() -> str:
    """All metrics, those with the same kind of value after the @ together."""
    kinds = dict.fromkeys(measure.at for measure in MEASURES.values())
    return "; ".join(", ".join(m.usage for m in MEASURES.values() if m.at is at) + at.note for at in kinds)


def are_hierarchical(metrics: str | Iterable[str]) -> bool:
    """Whether one of the metrics asks what stands above a label."""
    return any(metric.measure.hierarchical for metric in parse_metrics(metrics))


def are_at_decision(metrics: str | Iterable[str]) -> bool:
    """Whether one of the metrics asks which labels the model has decided to give."""
    return any(metric.at == DECISION for metric in parse_metrics(metrics))


def max_k(metrics: str | Iterable[str]) -> int:
    """How many predictions per document the metrics need."""
    return max((metric.n_predictions for metric in parse_metrics(metrics)), default=1)

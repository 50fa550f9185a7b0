"""The table of measures. A measure is one decorated function; everything else is derived from its declaration: how
names are parsed, what an error message lists, how many predictions are needed, the table in the documentation.

    @measure("RR", at=K, per_document=True)
    def reciprocal_rank(judged: Judged, k: int) -> np.ndarray:
        \"\"\"One over the rank of the first right prediction, 0 if none of the first k is right.\"\"\"
        hits = judged.hits[:, :k]
        return hits.any(axis=1) / (1 + hits.argmax(axis=1))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import getdoc
from math import isfinite
from typing import Any, TypeVar

import numpy as np

from xmtc.errors import XmtcError
from xmtc.evaluation.ranked_results import RankedResults

DECISION = "decision"  # in the place of a score: where the model itself decides
EVALUATION_DEPTH = 100  # predictions per document that thresholds and curves see; AttentionXML's authors keep as many

Compute = TypeVar("Compute", bound=Callable[[RankedResults, Any], Any])


@dataclass(frozen=True)
class MetricParameter:
    """What follows the @ in the name of a metric."""

    symbol: str  # as it is listed: the k of P@k
    example: str  # for hints: did you mean P@5?
    parse: Callable[[str], Any]  # its value from the text after the @, None if the text is something else
    n_predictions: Callable[[Any], int] = lambda value: EVALUATION_DEPTH  # per document, for a value
    note: str = ""  # which values there are, if the symbol does not say it


def parse_positive_integer(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) > 0 else None


def parse_finite_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None

    return number if isfinite(number) else None


def parse_score_or_decision(text: str) -> float | str | None:
    return DECISION if text.lower() == DECISION else parse_finite_number(text)


K_PARAMETER = MetricParameter("k", example="5", parse=parse_positive_integer, n_predictions=int, note=" with k from 1")
SCORE_PARAMETER = MetricParameter(
    "score",
    example="0.5",
    parse=parse_score_or_decision,
    n_predictions=lambda value: (
        1 if value == DECISION else EVALUATION_DEPTH
    ),  # a decision looks as far as it was learnt to
    note=" with a score, or the word decision",
)


@dataclass(frozen=True)
class MetricFamily:
    """A declared measure, such as P; together with a value for its @ it is a metric, such as P@5."""

    name: str  # as published
    parameter: MetricParameter
    is_per_document: bool  # whether `compute` gives (n_docs,) values, whose mean is the metric, or one number
    compute: Callable[[RankedResults, Any], np.ndarray | float]
    is_hierarchical: bool = False  # whether it asks what stands above a label
    is_error: bool = False  # whether less is better

    @property
    def usage(self) -> str:
        """The name as it is listed, such as `P@k`."""
        return f"{self.name}@{self.parameter.symbol}"

    @property
    def description(self) -> str:
        """What the measure says, in one line: the first of its function's docstring."""
        return (getdoc(self.compute) or "").partition("\n")[0]


METRIC_FAMILIES: dict[str, MetricFamily] = {}


def register_metric(
    name: str,
    parameter: MetricParameter,
    is_per_document: bool = False,
    is_hierarchical: bool = False,
    is_error: bool = False,
) -> Callable[[Compute], Compute]:
    """Declare a measure: a function of `Judged` and the value after the @, whose docstring describes it."""

    def declare(compute: Compute) -> Compute:
        known = find_metric_family(name)
        if known and known.compute.__module__ != compute.__module__:  # a notebook's cell may run twice
            raise XmtcError(f"{known.name} is a measure already; choose another name.")

        METRIC_FAMILIES[name] = MetricFamily(name, parameter, is_per_document, compute, is_hierarchical, is_error)
        return compute

    return declare


def find_metric_family(name: str) -> MetricFamily | None:
    """A measure by its name, in upper or lower case."""
    spelling = {known.lower(): known for known in METRIC_FAMILIES}
    return METRIC_FAMILIES.get(spelling.get(name.lower(), ""))


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

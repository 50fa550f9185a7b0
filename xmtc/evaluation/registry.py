"""Registry of metrics.

A metric family is one decorated function; the parsing of names, the lists in error messages, the number of predictions
needed and the table in the documentation are derived from it. Its docstring is the description of the metric:

    @register_metric("RR", parameter=K_PARAMETER, is_per_document=True)
    def reciprocal_rank(results: RankedResults, k: int) -> np.ndarray:
        \"\"\"One over the rank of the first correct prediction, 0 if none of the first k is correct.\"\"\"
        hits = results.hits[:, :k]
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

DECISION = "decision"  # in place of a score: the model's tuned thresholds
EVALUATION_DEPTH = 100  # predictions per document for thresholds and curves, as in AttentionXML's code

Compute = TypeVar("Compute", bound=Callable[[RankedResults, Any], Any])


@dataclass(frozen=True)
class MetricParameter:
    """Parameter of a metric, the part of its name after the @."""

    symbol: str  # in lists: the k of P@k
    example: str  # in suggestions: "did you mean P@5?"
    parse: Callable[[str], Any]  # value from the text after the @; None if the text is not valid
    n_predictions: Callable[[Any], int] = lambda value: EVALUATION_DEPTH  # predictions per document, by value
    note: str = ""  # description of the values in error messages


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
    n_predictions=lambda value: 1 if value == DECISION else EVALUATION_DEPTH,  # tuned thresholds have their own depth
    note=" with a score, or the word decision",
)


@dataclass(frozen=True)
class MetricFamily:
    """Registered metric without the value of its parameter, such as P; P@5 is a `Metric`."""

    name: str  # as published
    parameter: MetricParameter
    is_per_document: bool  # True if `compute` returns (n_docs,) values, whose mean is the metric; else one number
    compute: Callable[[RankedResults, Any], np.ndarray | float]
    is_hierarchical: bool = False  # True if it needs the ancestors of labels
    is_error: bool = False  # True if lower is better

    @property
    def usage(self) -> str:
        """Name with the symbol of its parameter, such as `P@k`."""
        return f"{self.name}@{self.parameter.symbol}"

    @property
    def description(self) -> str:
        """First line of the docstring of `compute`."""
        return (getdoc(self.compute) or "").partition("\n")[0]


METRIC_FAMILIES: dict[str, MetricFamily] = {}


def register_metric(
    name: str,
    parameter: MetricParameter,
    is_per_document: bool = False,
    is_hierarchical: bool = False,
    is_error: bool = False,
) -> Callable[[Compute], Compute]:
    """Return a decorator that registers a function of RankedResults and the value after the @ as a metric.

    Parameters
    ----------
    name : str
        Published name, without the @.
    parameter : MetricParameter
        Parameter after the @, such as K_PARAMETER.
    is_per_document : bool
        True if the function returns one value per document.
    is_hierarchical : bool
        True if the metric needs the ancestors of labels.
    is_error : bool
        True if lower values are better.

    Raises
    ------
    XmtcError
        If another module has registered the name.
    """

    def register(compute: Compute) -> Compute:
        existing = find_metric_family(name)
        if existing and existing.compute.__module__ != compute.__module__:  # a notebook cell may run twice
            raise XmtcError(f"The metric {existing.name} is already registered; choose another name.")

        METRIC_FAMILIES[name] = MetricFamily(name, parameter, is_per_document, compute, is_hierarchical, is_error)
        return compute

    return register


def find_metric_family(name: str) -> MetricFamily | None:
    """Return the metric family with a name, in upper or lower case."""
    published_names = {published.lower(): published for published in METRIC_FAMILIES}
    return METRIC_FAMILIES.get(published_names.get(name.lower(), ""))


RANKING_METRICS = ("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5")
DEFAULT_METRICS = (*RANKING_METRICS, "PSP@1", "PSP@3", "PSP@5")
DECISION_METRICS = tuple(
    f"{average}-{metric}@{DECISION}" for average in ("micro", "macro", "example") for metric in ("P", "R", "F1")
)


@dataclass(frozen=True)
class Metric:
    """Parsed metric name: a family and the k, score threshold or label group after the @."""

    family: MetricFamily
    parameter_value: Any

    @property
    def name(self) -> str:
        value = f"{self.parameter_value:g}" if isinstance(self.parameter_value, float) else self.parameter_value
        return f"{self.family.name}@{value}"

    @property
    def n_predictions(self) -> int:
        """Number of predictions per document that the metric needs."""
        return self.family.parameter.n_predictions(self.parameter_value)

    def compute(self, results: RankedResults) -> float:
        """Return a fraction from 0 to 1 (rawPSP may be larger); nan for a frequency group without labels."""
        return float(np.mean(self.family.compute(self._limit_depth(results), self.parameter_value)))

    def _limit_depth(self, results: RankedResults) -> RankedResults:
        """Return the results with at most EVALUATION_DEPTH predictions for a metric without k, whatever other metrics
        need."""
        has_k = self.family.parameter is K_PARAMETER
        return results if has_k else results.keep_best(EVALUATION_DEPTH)

    def goodness(self, value: float) -> float:
        """Return the value, or 1 − value for an error, so that higher is better."""
        return 1 - value if self.family.is_error else value

    def compute_per_document(self, results: RankedResults) -> np.ndarray:
        """Return (n_docs,) values, whose mean is the value of the metric."""
        if not self.family.is_per_document:
            names = ", ".join(family.name for family in METRIC_FAMILIES.values() if family.is_per_document)
            raise XmtcError(f"{self.name} has no value for a single document; only {names} have one.")

        return np.asarray(self.family.compute(self._limit_depth(results), self.parameter_value))


def parse_metric(name: str) -> Metric:
    """Return a metric by its name, in upper or lower case; raise XmtcError if it is unknown."""
    family_name, _, text = name.strip().partition("@")
    family = find_metric_family(family_name)
    metric = make_metric(family, text) if family else None

    if metric is None:
        suggestion = suggest_metric(family_name, text)
        raise XmtcError(f"{name!r} is not a metric{suggestion}; the metrics are {list_metrics()}.")
    return metric


def parse_metrics(names: str | Iterable[str]) -> list[Metric]:
    """Return the metrics with these names, or with one name."""
    return [parse_metric(name) for name in ([names] if isinstance(names, str) else names)]


def make_metric(family: MetricFamily, text: str) -> Metric | None:
    """Return the metric with the value written after the @; None if the value is not valid."""
    value = family.parameter.parse(text)
    return None if value is None else Metric(family, value)


def suggest_metric(family_name: str, text: str) -> str:
    """Return " (did you mean …?)" for a misspelt metric, or an empty string."""
    names = [name.lower() for name in METRIC_FAMILIES]
    close_names = get_close_matches(family_name.lower(), names, n=1, cutoff=0.4)
    family = find_metric_family(close_names[0]) if close_names else None
    if family is None:
        return ""

    suggestion = make_metric(family, text) or make_metric(family, family.parameter.example)
    is_other = suggestion is not None and suggestion.name != f"{family_name}@{text}"
    return f" (did you mean {suggestion.name}?)" if suggestion is not None and is_other else ""


def list_metrics() -> str:
    """Return the usage of all metrics, grouped by parameter."""
    parameters = dict.fromkeys(family.parameter for family in METRIC_FAMILIES.values())
    return "; ".join(
        ", ".join(family.usage for family in METRIC_FAMILIES.values() if family.parameter is parameter) + parameter.note
        for parameter in parameters
    )


def has_hierarchical_metric(metrics: str | Iterable[str]) -> bool:
    """Return True if a metric needs the ancestors of labels."""
    return any(metric.family.is_hierarchical for metric in parse_metrics(metrics))


def has_decision_metric(metrics: str | Iterable[str]) -> bool:
    """Return True if a metric needs the labels selected by tuned thresholds."""
    return any(metric.parameter_value == DECISION for metric in parse_metrics(metrics))


def max_k(metrics: str | Iterable[str]) -> int:
    """Return the number of predictions per document that the metrics need."""
    return max((metric.n_predictions for metric in parse_metrics(metrics)), default=1)

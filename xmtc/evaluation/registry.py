"""The table of measures. A measure is one decorated function; everything else is derived from its declaration: how
names are parsed, what an error message lists, how many predictions are needed, the table in the documentation.

    @measure("RR", at=K, per_document=True)
    def reciprocal_rank(judged: Judged, k: int) -> np.ndarray:
        \"\"\"One over the rank of the first right prediction, 0 if none of the first k is right.\"\"\"
        hits = judged.hits[:, :k]
        return hits.any(axis=1) / (1 + hits.argmax(axis=1))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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

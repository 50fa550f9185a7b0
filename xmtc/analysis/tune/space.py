"""Search spaces: which hyper-parameters to search, and in which domain.

Methods mark parameters that are worth a search next to their defaults (`param(…, search=(low, high), log=True)`);
others can be named, as in `-s C=0.1:10:log`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import Field, dataclass
from typing import Any

from xmtc.core.hyperparameters import describe_expected, format_cli_value, is_multi_valued, is_valid_value, parse_value
from xmtc.errors import XmtcError
from xmtc.pipeline import Pipeline

SEARCH_SYNTAX = "name=low:high, name=low:high:log or name=a,b,c"


@dataclass(frozen=True)
class Range:
    """Numbers from low to high; integers if both are integers."""

    low: float
    high: float
    log: bool = False

    def __contains__(self, value: Any) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}{' (log)' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """List of values."""

    values: tuple

    def __contains__(self, value: Any) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return f"among {', '.join(map(format_cli_value, self.values))}"


Space = dict[str, Range | Choice]


def build_search_space(
    name: str, pipeline: Pipeline, search_options: Sequence[str] = (), fixed: Collection[str] = ()
) -> Space:
    """Return the search space of a pipeline.

    Parameters
    ----------
    name
        Name of the method, for error messages.
    pipeline
        Method and views whose parameters are searched.
    search_options
        Further domains, such as "C=0.1:10:log" or "min_df=1,2".
    fixed
        Names of parameters that are not searched.

    Returns
    -------
    dict
        Domain (`Range` or `Choice`) of each parameter.

    Raises
    ------
    XmtcError
        If an option cannot be parsed, nothing is left to search, or the method is `auto`.

    Examples
    --------
    >>> pipeline = Pipeline.from_parameters("parabel")
    >>> space = build_search_space("parabel", pipeline, ["min_df=1,2"], fixed=["max_leaf", "min_weight"])
    >>> for name, domain in space.items():
    ...     print(name, domain)
    C from 0.1 to 10 (log)
    min_df among 1, 2
    """
    pipeline.refuse_auto("tune")
    known = {parameter: field for parameter, (field, _) in pipeline.parameters.items()}
    requested = dict(parse_search_option(name, known, option) for option in search_options)
    for parameter in requested.keys() & set(fixed):
        raise XmtcError(f"{parameter} is both fixed (-p) and searched (-s); remove one of them.")
    marked = {key: domain for key, field in known.items() if (domain := get_default_domain(field)) and key not in fixed}
    if not marked | requested:
        raise XmtcError(
            f"{name} has nothing left to search; name parameters with -s {SEARCH_SYNTAX} (`xmtc methods {name}` lists "
            "them)."
        )
    return marked | requested


def get_default_domain(field: Field) -> Range | Choice | None:
    """Return the domain that a parameter declares, or None."""
    ends, kind = field.metadata["search"], type(field.default)
    if len(ends) == 2 and kind in (int, float):
        return Range(kind(ends[0]), kind(ends[1]), field.metadata["log"])
    return Choice(tuple(map(kind, ends))) if ends else None


def parse_search_option(name: str, known: dict[str, Field], option: str) -> tuple[str, Range | Choice]:
    parameter, equals, text = option.partition("=")
    if not equals:
        raise XmtcError(f"-s {option} has no domain; expected -s {SEARCH_SYNTAX}.")
    if parameter not in known:
        raise XmtcError(f"{name} has no parameter {parameter!r} to search; it has {', '.join(known)}.")
    field = known[parameter]
    is_number = type(field.default) in (int, float) and not field.metadata["choices"]
    return parameter, parse_range(name, field, text) if is_number and ":" in text else parse_choice(name, field, text)


def parse_range(name: str, field: Field, text: str) -> Range:
    low, high, *rest = text.split(":")
    if rest not in ([], ["log"]):
        raise XmtcError(f"-s {field.name}={text} is not a domain; expected -s {SEARCH_SYNTAX}.")
    domain = Range(parse_checked_value(name, field, low), parse_checked_value(name, field, high), bool(rest))
    if domain.low >= domain.high:
        raise XmtcError(f"-s {field.name}={text} is not a range; expected the lower number first.")
    if domain.log and domain.low <= 0:
        raise XmtcError(f"-s {field.name}={text} cannot have a logarithmic scale; expected numbers above 0.")
    return domain


def parse_choice(name: str, field: Field, text: str) -> Choice:
    """Parse values separated by commas, or by vertical bars if they contain commas (`layers=256|512,256`)."""
    separator = "|" if "|" in text or is_multi_valued(field) else ","
    values = tuple(parse_checked_value(name, field, value) for value in text.split(separator))
    if len(set(values)) < 2:
        raise XmtcError(f"-s {field.name}={text} has one value only; fix it with -p, or give -s {SEARCH_SYNTAX}.")
    return Choice(values)


def parse_checked_value(name: str, field: Field, text: str) -> Any:
    value = parse_value(name, field, text)
    if not is_valid_value(field, value):
        raise XmtcError(f"{name}: {field.name}={text} is invalid; expected {describe_expected(field)}.")
    return value

"""What is searched: which hyper-parameters, and where. Methods mark those that are worth it, each beside its default
(`param(…, search=(low, high), log=True)`); others can be named, as in `-s C=0.1:10:log`."""

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
    """All numbers from low to high, whole ones if these are whole."""

    low: float
    high: float
    log: bool = False

    def __contains__(self, value: Any) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}{' (log)' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """One of these."""

    values: tuple

    def __contains__(self, value: Any) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return f"among {', '.join(map(format_cli_value, self.values))}"


Space = dict[str, Range | Choice]


def build_search_space(
    name: str, pipeline: Pipeline, search_options: Sequence[str] = (), fixed: Collection[str] = ()
) -> Space:
    """What a method and its members mark, less what is fixed, and what is wished for (`C=0.1:10:log`)."""
    known = {parameter: field for parameter, (field, _) in pipeline.parameters.items()}
    wished = dict(parse_search_option(name, known, wish) for wish in search_options)
    for twice in wished.keys() & set(fixed):
        raise XmtcError(f"{twice} is both fixed (-p) and searched (-s); give one of them.")
    marked = {key: mark for key, field in known.items() if (mark := get_default_domain(field)) and key not in fixed}
    if not marked | wished:
        raise XmtcError(
            f"{name} has nothing left to search; name parameters with -s {SEARCH_SYNTAX} (`xmtc methods {name}` lists them)."
        )
    return marked | wished


def get_default_domain(field: Field) -> Range | Choice | None:
    """Where a parameter is worth searching by its own account."""
    found, kind = field.metadata["search"], type(field.default)
    if len(found) == 2 and kind in (int, float):
        return Range(kind(found[0]), kind(found[1]), field.metadata["log"])
    return Choice(tuple(map(kind, found))) if found else None


def parse_search_option(name: str, known: dict[str, Field], option: str) -> tuple[str, Range | Choice]:
    """A parameter and where to search it, from text."""
    parameter, equals, text = option.partition("=")
    if not equals:
        raise XmtcError(f"-s {option} does not say where to search; expected -s {SEARCH_SYNTAX}.")
    if parameter not in known:
        raise XmtcError(f"{name} has no parameter {parameter!r} to search; it has {', '.join(known)}.")
    field = known[parameter]
    is_number = type(field.default) in (int, float) and not field.metadata["choices"]
    return parameter, parse_range(name, field, text) if is_number and ":" in text else parse_choice(name, field, text)


def parse_range(name: str, field: Field, text: str) -> Range:
    low, high, *rest = text.split(":")
    if rest not in ([], ["log"]):
        raise XmtcError(f"-s {field.name}={text} does not fit; expected -s {SEARCH_SYNTAX}.")
    found = Range(parse_checked_value(name, field, low), parse_checked_value(name, field, high), bool(rest))
    if found.low >= found.high:
        raise XmtcError(f"-s {field.name}={text} is no range; expected the lower number first, then the higher.")
    if found.log and found.low <= 0:
        raise XmtcError(f"-s {field.name}={text} has no logarithmic scale; expected numbers above 0.")
    return found


def parse_choice(name: str, field: Field, text: str) -> Choice:
    """Values between commas, or between vertical bars where they hold commas themselves (`layers=256|512,256`)."""
    separator = "|" if "|" in text or is_multi_valued(field) else ","
    values = tuple(parse_checked_value(name, field, value) for value in text.split(separator))
    if len(set(values)) < 2:
        raise XmtcError(
            f"-s {field.name}={text} leaves nothing to search; fix it with -p, or expected -s {SEARCH_SYNTAX}."
        )
    return Choice(values)


def parse_checked_value(name: str, field: Field, text: str) -> Any:
    value = parse_value(name, field, text)
    if not is_valid_value(field, value):
        raise XmtcError(f"{name}: {field.name}={text} does not fit; expected {describe_expected(field)}.")
    return value

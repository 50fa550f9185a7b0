"""Hyper-parameters: a default and its help, written once for Python, command line, docs and model folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from functools import wraps
from math import isfinite
from typing import Any, ClassVar, TypeVar

import numpy as np

from xmtc.errors import XmtcError

Presets = dict[str, dict[str, Any]]
R = TypeVar("R", bound="Recipe")
LOWEST, HIGHEST = -(2**63), 2**63 - 1  # what compiled code takes for a whole number


def param(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple = (),
    search: tuple = (),
    log: bool = False,
) -> Any:
    """A field of a recipe. `search` says that it is worth searching, and where: from a lowest to a highest number, on a
    logarithmic scale with `log`; or among the values themselves, where they are no numbers or not two."""
    limits = {"low": low, "high": high, "choices": choices}
    return field(default=default, metadata={"help": help, **limits, "search": search, "log": log})


@dataclass(frozen=True)
class Recipe:
    """A frozen dataclass of param() fields, each checked when it is made and held in the type of its default: a numpy
    number or a whole float becomes what JSON and range() take."""

    presets: ClassVar[Presets] = {}  # values of several parameters under one name

    def __post_init__(self) -> None:
        for parameter in fields(self):
            kind: Any = type(parameter.default)
            value = getattr(self, parameter.name)
            if not is_valid(parameter, value):
                raise XmtcError(
                    f"{type(self).__name__}: {parameter.name}={value!r} does not fit; expected {expected(parameter)}."
                )
            object.__setattr__(self, parameter.name, kind(value))


def with_presets(presets: Presets) -> Callable[[type[R]], type[R]]:
    """For recipes that have a parameter `preset`: its values stand where none are given. What is given stands, even if
    it is the default: so this happens before there is an object, which could no longer tell."""

    def decorate(kind: type[R]) -> type[R]:
        plain = kind.__init__

        @wraps(plain)
        def init(self: R, *values: Any, **given: Any) -> None:
            given |= dict(zip((parameter.name for parameter in fields(kind)), values, strict=False))
            plain(self, **(presets.get(str(given.get("preset")), {}) | given))

        kind.__init__, kind.presets = init, presets  # type: ignore[assignment]
        return kind

    return decorate


def is_valid(parameter: Field, value: Any) -> bool:
    kind, (low, high, choices) = type(parameter.default), bounds(parameter)
    if kind in (int, float):
        fits = is_number(value, kind) and (low is None or value >= low) and (high is None or value <= high)
    else:
        fits = isinstance(value, (bool, np.bool_) if kind is bool else kind)
    return fits and (not choices or value in choices)


def is_number(value: Any, kind: type) -> bool:
    """Whether a value is a finite number; of kind int, a whole one that 64 bits hold."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    try:
        return isfinite(value) if kind is float else int(value) == value and LOWEST <= int(value) <= HIGHEST
    except (OverflowError, ValueError):  # a whole number that no float can hold; inf and nan, which have no whole one
        return False


def bounds(parameter: Field) -> tuple[float | None, float | None, tuple]:
    return parameter.metadata["low"], parameter.metadata["high"], parameter.metadata["choices"]


def expected(parameter: Field) -> str:
    """The values a hyper-parameter takes, in words."""
    low, high, choices = bounds(parameter)
    if choices:
        return "one of " + ", ".join(repr(choice) for choice in choices)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[type(parameter.default)]
    if low is not None and high is not None:
        return f"{words} from {low} to {high}"
    least, most = ("" if bound is None else f"{bound}" for bound in (low, high))
    return words + (least and f" of at least {least}") + (most and f" of at most {most}")


def parse_value(owner: str, parameter: Field, text: str) -> Any:
    """A hyper-parameter given as text (`-p n_trees=3`), in its own type."""
    kind: Any = type(parameter.default)
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        raise XmtcError(f"{owner}: {parameter.name}={text!r} does not fit; expected {expected(parameter)}.") from None

"""Hyper-parameters: a default and its help, written once for Python, command line, docs and model folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from inspect import cleandoc
from math import isfinite
from textwrap import indent
from typing import Any, ClassVar, Self

import numpy as np

from xmtc.errors import XmtcError

Presets = dict[str, dict[str, Any]]
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1  # what compiled code takes for a whole number
MAX_REPR_CHARACTERS = 200  # characters of a value that errors show
BOOLEAN_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def param(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] = (),
    search: tuple[Any, ...] = (),
    log: bool = False,
    kind: type | None = None,
) -> Any:
    """A field of a recipe. A tuple as default means several values; `kind` is the type of each where the default does
    not show it, and Recipe that of a nested recipe, which may be written as its name. `search` says that it is worth
    searching, and where: from a lowest to a highest number, on a logarithmic scale with `log`; or among the values
    themselves, where they are no numbers or not two."""
    limits = {"low": low, "high": high, "choices": choices}
    return field(default=default, metadata={"help": help, **limits, "search": search, "log": log, "kind": kind})


@dataclass(frozen=True)
class ParameterSet:
    """A frozen dataclass of param() fields, each checked when it is made and held in the type of its default: a numpy
    number or a whole float becomes what JSON and range() take, a list becomes a tuple.

    A recipe knows what it was given. A parameter that was left out and one that was given its default are different
    things: the values of a preset stand where none was given, and a copy with another preset begins from what was
    given."""

    # Of recipes with a parameter `preset`: the values of several under one name, those of views that it reads included.
    presets: ClassVar[Presets] = {}

    def __new__(cls, *values: Any, **named: Any) -> Self:
        """As the dataclass itself takes them; here, before there are defaults, it can be told what was given."""
        made = super().__new__(cls)
        positional = (parameter.name for parameter, _ in zip(fields(cls), values, strict=False))
        object.__setattr__(made, "_given", (*positional, *named))
        return made

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        describe_parameters(cls)

    def __post_init__(self) -> None:
        own = {parameter.name for parameter in fields(self)}
        for name, value in self.preset_values.items():
            if name in own and name not in self._explicit_names():
                object.__setattr__(self, name, value)
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            if not is_valid_value(parameter, value):
                raise XmtcError(
                    f"{type(self).__name__}: {parameter.name}={to_short_repr(value)} does not fit; "
                    f"expected {describe_expected(parameter)}."
                )
            object.__setattr__(self, parameter.name, convert_value(parameter, value))

    def _explicit_names(self) -> tuple[str, ...]:
        return vars(self)["_given"]

    @property
    def explicit_values(self) -> dict[str, Any]:
        """The parameters that were given, in their own types; not those that a preset or a default has set."""
        return {name: getattr(self, name) for name in self._explicit_names()}

    @property
    def preset_values(self) -> dict[str, Any]:
        """What its preset says, if it has one."""
        preset = getattr(self, "preset", "")
        return self.presets.get(preset, {}) if isinstance(preset, str) else {}

    def replace(self, **values: Any) -> Self:
        """The same with other values of some parameters. Unlike dataclasses.replace, it gives no more than was given:
        `recipe.but(preset="EUR-Lex")` has the preset's values."""
        return type(self)(**(self.explicit_values | values))

    def fill_unset(self, values: Mapping[str, Any]) -> Self:
        """The same with these values where none was given, as those of a preset are."""
        own = {parameter.name: values[parameter.name] for parameter in fields(self) if parameter.name in values}
        made = type(self)(**(own | self.explicit_values))
        object.__setattr__(made, "_given", self._explicit_names())
        return made


def get_value_type(parameter: Field) -> Any:
    """The type of a parameter's value, or of each of its values."""
    default: Any = parameter.default
    return parameter.metadata["kind"] or type(default[0] if is_multi_valued(parameter) else default)


def is_multi_valued(parameter: Field) -> bool:
    return isinstance(parameter.default, tuple)


def convert_value(parameter: Field, value: Any) -> Any:
    """A valid value as a recipe holds it."""
    kind = get_value_type(parameter)
    if kind is ParameterSet:
        return tuple(value) if is_multi_valued(parameter) else value
    return tuple(map(kind, value)) if is_multi_valued(parameter) else kind(value)


# What a parameter takes, as errors and help say it.
TYPE_DESCRIPTIONS: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    ParameterSet: "a method",
}
PLURAL_TYPE_DESCRIPTIONS: dict[type, str] = {
    int: "whole numbers",
    float: "numbers",
    bool: "truth values",
    str: "texts",
    ParameterSet: "methods",
}


def is_valid_value(parameter: Field, value: Any) -> bool:
    if not is_multi_valued(parameter):
        return is_valid_item(parameter, value)
    return isinstance(value, (tuple, list)) and all(is_valid_item(parameter, item) for item in value)


def is_valid_item(parameter: Field, value: Any) -> bool:
    kind = get_value_type(parameter)
    low, high, choices = get_bounds(parameter)

    if kind in (int, float):
        fits = is_number_of_type(value, kind) and (low is None or value >= low) and (high is None or value <= high)
    elif kind is ParameterSet:
        fits = isinstance(value, (ParameterSet, str))
    else:
        fits = isinstance(value, (bool, np.bool_) if kind is bool else kind)
    return fits and (not choices or value in choices)


def is_number_of_type(value: Any, kind: type) -> bool:
    """Whether a value is a finite number; of kind int, a whole one that 64 bits hold."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    try:
        return isfinite(value) if kind is float else int(value) == value and MIN_INT64 <= int(value) <= MAX_INT64
    except (OverflowError, ValueError):  # a whole number that no float can hold; inf and nan, which have no whole one
        return False


def get_bounds(parameter: Field) -> tuple[float | None, float | None, tuple]:
    return parameter.metadata["low"], parameter.metadata["high"], parameter.metadata["choices"]


def describe_expected(parameter: Field) -> str:
    """The values a hyper-parameter takes, in words."""
    low, high, choices = get_bounds(parameter)
    if choices:
        return "one of " + ", ".join(repr(choice) for choice in choices)

    words = (PLURAL_TYPE_DESCRIPTIONS if is_multi_valued(parameter) else TYPE_DESCRIPTIONS)[get_value_type(parameter)]
    if low is not None and high is not None:
        return f"{words} from {low} to {high}"
    least, most = ("" if bound is None else f"{bound}" for bound in (low, high))
    return words + (least and f" of at least {least}") + (most and f" of at most {most}")


def to_short_repr(value: Any) -> str:
    """A value as it is written in Python, of a long one the beginning."""
    try:
        written = repr(value)
    except ValueError:  # Python does not write numbers of more than 4,300 digits
        return "a number of thousands of digits"
    return written if len(written) <= MAX_REPR_CHARACTERS else f"{written[:MAX_REPR_CHARACTERS]}…"


def format_cli_value(value: Any) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(format_cli_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


class UnparsedValue(str):
    """The value of a hyper-parameter as it was typed on the command line, not yet in its own type."""


def resolve_value(owner: str, parameter: Field, value: Any) -> Any:
    """A value for a parameter, parsed if it was typed."""
    return parse_value(owner, parameter, value) if isinstance(value, UnparsedValue) else value


def parse_value(owner: str, parameter: Field, text: str) -> Any:
    """A hyper-parameter given as text (`-p n_trees=3`, `-p layers=512,256`), in its own type."""
    kind = get_value_type(parameter)
    try:
        if is_multi_valued(parameter):
            return tuple(parse_item(kind, item.strip()) for item in text.split(",") if item.strip())
        return parse_item(kind, text)
    except (ValueError, KeyError):
        found = f"{parameter.name}={to_short_repr(str(text))}"
        raise XmtcError(f"{owner}: {found} does not fit; expected {describe_expected(parameter)}.") from None


def parse_item(kind: Any, text: str) -> Any:
    if kind is bool:
        return BOOLEAN_WORDS[text.lower()]
    return str(text) if kind is ParameterSet else kind(text)


def describe_parameters(recipe: type) -> None:
    """Add the parameters to the docstring of a recipe, as numpydoc has them, and below them the docstring of its
    module, which has a method's paper. Called before `dataclass` is, so the fields are still found one by one."""
    if not recipe.__doc__:  # none was written, or Python runs with -OO
        return
    parts = [cleandoc(recipe.__doc__)]

    entries = [format_doc_entry(parameter, name) for name, parameter in collect_parameters(recipe).items()]
    if entries:
        parts.append("\n".join(["Parameters", "----------", *entries]))

    module = sys.modules.get(recipe.__module__)
    if module is not None and module.__doc__ and module.__name__ != "__main__":
        parts.append(f"Notes\n-----\n{cleandoc(module.__doc__)}")
    recipe.__doc__ = "\n\n".join(parts) + "\n"


def collect_parameters(recipe: type) -> dict[str, Field]:
    """The parameters by name, those of its bases first, as `dataclass` will order them."""
    found: dict[str, Field] = {}
    for kind in reversed(recipe.__mro__[1:]):
        found |= vars(kind).get("__dataclass_fields__", {})
    found |= {name: value for name, value in vars(recipe).items() if isinstance(value, Field)}
    return {name: parameter for name, parameter in found.items() if "help" in parameter.metadata}


def format_doc_entry(parameter: Field, name: str) -> str:
    default: Any = parameter.default
    return f"{name} : {format_type(parameter)}, default {default!r}\n" + indent(parameter.metadata["help"], "    ")


def format_type(parameter: Field) -> str:
    """The type of a parameter as numpydoc writes it: int, tuple of int, {'sum', 'mean'}."""
    if parameter.metadata["choices"]:
        return "{" + ", ".join(map(repr, parameter.metadata["choices"])) + "}"
    kind = get_value_type(parameter).__name__
    name = "Method or str" if kind == "ParameterSet" else kind
    return f"tuple of {name}" if is_multi_valued(parameter) else name

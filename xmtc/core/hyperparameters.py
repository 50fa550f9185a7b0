"""Hyper-parameters: each is declared once for Python, the command line, the docs and the model folder."""

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
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1  # integers that compiled kernels accept
MAX_REPR_CHARACTERS = 200  # of a value in an error message
# Parameters of other libraries, with what xmtc has instead.
EQUIVALENTS = {
    "n_jobs": "set the number of threads with fit(X, y, run=Run(threads=4)), or --threads on the command line",
    "random_state": "the random seed is the parameter seed",
    "device": 'set the device with fit(X, y, run=Run(device="cuda")), or --device on the command line',
    "class_weight": "give weights of documents with fit(X, y, sample_weight), or choose a method for rare labels, such "
    "as proxml or pfastrexml",
    "verbose": "show progress with fit(X, y, run=Run(progress=True))",
    "max_iter": "the limit is max_passes for linear methods, and epochs for networks",
    "tokenizer": "a model folder contains no code; set the parameter token_pattern, or tokenize the texts first",
    "tol": "the tolerance of linear methods is eps",
}
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
    """Declare a hyper-parameter as a dataclass field.

    Parameters
    ----------
    default : bool, int, float, str or tuple
        Default value, which determines the type; a tuple means several values.
    help : str
        Help text, a noun phrase.
    low, high : float, optional
        Inclusive bounds.
    choices : tuple, optional
        Allowed values.
    search : tuple, optional
        Search space for `xmtc tune`: the lowest and the highest number, or a list of values.
    log : bool, default=False
        Whether to search on a logarithmic scale.
    kind : type, optional
        Type of each value where the default does not show it; `ParameterSet` for a method, given by object or name.

    Returns
    -------
    dataclasses.Field
        The field, with these settings as its metadata.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Ridge(ParameterSet):
    ...     C: float = param(1.0, "Weight of the loss.", low=0)
    >>> Ridge(C=2)
    Ridge(C=2.0)
    """
    limits = {"low": low, "high": high, "choices": choices}
    return field(default=default, metadata={"help": help, **limits, "search": search, "log": log, "kind": kind})


@dataclass(frozen=True)
class ParameterSet:
    """Frozen dataclass of `param()` fields, validated and converted to the type of their default on construction.

    It records which parameters were passed explicitly: a preset sets the other ones only, and `replace` with another
    preset starts from the explicit ones."""

    # Values by preset name, for classes with a parameter `preset`; those of the views it reads are included.
    presets: ClassVar[Presets] = {}

    def __new__(cls, *values: Any, **named: Any) -> Self:
        """Record the names of the explicit parameters, which `__init__` of a dataclass cannot tell from defaults."""
        for name in named.keys() & EQUIVALENTS.keys() - {parameter.name for parameter in fields(cls)}:
            raise XmtcError(f"{cls.__name__} has no parameter {name!r}; {EQUIVALENTS[name]}.")
        instance = super().__new__(cls)
        positional = (parameter.name for parameter, _ in zip(fields(cls), values, strict=False))
        object.__setattr__(instance, "_explicit", (*positional, *named))
        return instance

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
                    f"{type(self).__name__}: {parameter.name}={to_short_repr(value)} is invalid; "
                    f"expected {describe_expected(parameter)}."
                )
            object.__setattr__(self, parameter.name, convert_value(parameter, value))

    def _explicit_names(self) -> tuple[str, ...]:
        return vars(self)["_explicit"]

    @property
    def explicit_values(self) -> dict[str, Any]:
        """Values of the parameters that were passed explicitly, not set by a preset or a default."""
        return {name: getattr(self, name) for name in self._explicit_names()}

    @property
    def preset_values(self) -> dict[str, Any]:
        """Values of the preset, empty without one."""
        preset = getattr(self, "preset", "")
        return self.presets.get(preset, {}) if isinstance(preset, str) else {}

    def replace(self, **values: Any) -> Self:
        """Return a copy with some parameters replaced.

        Unlike dataclasses.replace, it passes on explicit values only, so that `replace(preset=...)` has an effect.

        Parameters
        ----------
        **values
            New values by parameter name.

        Returns
        -------
        ParameterSet
            Copy of the same class.
        """
        return type(self)(**(self.explicit_values | values))

    def fill_unset(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with these values for the parameters that were not passed explicitly, as a preset does."""
        own = {parameter.name: values[parameter.name] for parameter in fields(self) if parameter.name in values}
        copy = type(self)(**(own | self.explicit_values))
        object.__setattr__(copy, "_explicit", self._explicit_names())
        return copy


def get_value_type(parameter: Field) -> Any:
    """Return the type of a parameter, or of each of its values if it has several."""
    default: Any = parameter.default
    return parameter.metadata["kind"] or type(default[0] if is_multi_valued(parameter) else default)


def is_multi_valued(parameter: Field) -> bool:
    return isinstance(parameter.default, tuple)


def convert_value(parameter: Field, value: Any) -> Any:
    """Return a valid value in the type of the parameter."""
    kind = get_value_type(parameter)
    if kind is ParameterSet:
        return tuple(value) if is_multi_valued(parameter) else value
    return tuple(map(kind, value)) if is_multi_valued(parameter) else kind(value)


# Types of values in errors and help texts.
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
    bool: "true or false values",
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
        is_valid = is_number_of_type(value, kind) and (low is None or value >= low) and (high is None or value <= high)
    elif kind is ParameterSet:
        is_valid = isinstance(value, (ParameterSet, str))
    else:
        is_valid = isinstance(value, (bool, np.bool_) if kind is bool else kind)
    return is_valid and (not choices or value in choices)


def is_number_of_type(value: Any, kind: type) -> bool:
    """Return True for a finite number; for kind int, an integer of 64 bits."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    try:
        return isfinite(value) if kind is float else int(value) == value and MIN_INT64 <= int(value) <= MAX_INT64
    except (OverflowError, ValueError):  # an integer beyond the range of float; int(inf) and int(nan)
        return False


def get_bounds(parameter: Field) -> tuple[float | None, float | None, tuple]:
    return parameter.metadata["low"], parameter.metadata["high"], parameter.metadata["choices"]


def describe_expected(parameter: Field) -> str:
    """Return the allowed values of a parameter in words."""
    low, high, choices = get_bounds(parameter)
    if choices:
        return "one of " + ", ".join(repr(choice) for choice in choices)

    words = (PLURAL_TYPE_DESCRIPTIONS if is_multi_valued(parameter) else TYPE_DESCRIPTIONS)[get_value_type(parameter)]
    if low is not None and high is not None:
        return f"{words} from {low} to {high}"
    minimum = "" if low is None else f" of at least {low}"
    maximum = "" if high is None else f" of at most {high}"
    return words + minimum + maximum


def to_short_repr(value: Any) -> str:
    """Return the repr of a value, truncated to MAX_REPR_CHARACTERS."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to convert integers of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= MAX_REPR_CHARACTERS else f"{text[:MAX_REPR_CHARACTERS]}…"


def format_cli_value(value: Any) -> str:
    """Return a value as it is typed on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(format_cli_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


class UnparsedValue(str):
    """Value of a hyper-parameter as typed on the command line, not yet parsed."""


def resolve_value(owner: str, parameter: Field, value: Any) -> Any:
    """Return a value, parsed if it is an UnparsedValue."""
    return parse_value(owner, parameter, value) if isinstance(value, UnparsedValue) else value


def parse_value(owner: str, parameter: Field, text: str) -> Any:
    """Parse a value given as text, as in `-p n_trees=3` or `-p layers=512,256`."""
    kind = get_value_type(parameter)
    try:
        if is_multi_valued(parameter):
            return tuple(parse_item(kind, item.strip()) for item in text.split(",") if item.strip())
        return parse_item(kind, text)
    except (ValueError, KeyError):
        raise XmtcError(
            f"{owner}: {parameter.name}={to_short_repr(str(text))} is invalid; expected {describe_expected(parameter)}."
        ) from None


def parse_item(kind: Any, text: str) -> Any:
    if kind is bool:
        return BOOLEAN_WORDS[text.lower()]
    return str(text) if kind is ParameterSet else kind(text)


def describe_parameters(cls: type) -> None:
    """Add a numpydoc section of the parameters, and the module docstring as notes, to the docstring of a class.

    Called by `__init_subclass__`, before the `dataclass` decorator has collected the fields."""
    if not cls.__doc__:  # also under python -OO
        return
    parts = [cleandoc(cls.__doc__)]

    entries = [format_doc_entry(parameter, name) for name, parameter in collect_parameters(cls).items()]
    if entries:
        parts.append("\n".join(["Parameters", "----------", *entries]))

    module = sys.modules.get(cls.__module__)
    if module is not None and module.__doc__ and module.__name__ != "__main__":
        parts.append(f"Notes\n-----\n{cleandoc(module.__doc__)}")
    cls.__doc__ = "\n\n".join(parts) + "\n"


def collect_parameters(cls: type) -> dict[str, Field]:
    """Return the parameters by name, those of base classes first, in the order of `dataclass`."""
    parameters: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        parameters |= vars(base).get("__dataclass_fields__", {})
    parameters |= {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
    return {name: parameter for name, parameter in parameters.items() if "help" in parameter.metadata}


def format_doc_entry(parameter: Field, name: str) -> str:
    default: Any = parameter.default
    return f"{name} : {format_type(parameter)}, default {default!r}\n" + indent(parameter.metadata["help"], "    ")


def format_type(parameter: Field) -> str:
    """Return the type of a parameter in numpydoc notation: int, tuple of int, {'sum', 'mean'}."""
    if parameter.metadata["choices"]:
        return "{" + ", ".join(map(repr, parameter.metadata["choices"])) + "}"
    kind = get_value_type(parameter).__name__
    name = "Method or str" if kind == "ParameterSet" else kind
    return f"tuple of {name}" if is_multi_valued(parameter) else name

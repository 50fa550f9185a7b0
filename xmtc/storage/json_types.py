"""Checks of parsed JSON against types: what a file may hold is declared once, as a TypedDict."""

from __future__ import annotations

import types
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from xmtc.core.hyperparameters import to_short_repr

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
JSON_TYPE_DESCRIPTIONS: dict[Any, str] = {
    str: "text",
    int: "a whole number of 64 bits",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def check_json(value: Any, wanted: Any, place: str) -> None:
    """Raise ValueError, with the place and the value, unless a value is of a type: a TypedDict, list[T], dict[str, T],
    a Literal, a union, str, int, float, bool or Any. Keys that a TypedDict does not name may have any value."""
    if not is_of_type(value, wanted):
        raise ValueError(f"its {place} is {to_short_repr(value)}, expected {describe_json_type(wanted)}")
    origin, arguments = get_origin(wanted), get_args(wanted)
    if is_typeddict(wanted):
        for name, kind in get_type_hints(wanted, include_extras=True).items():
            is_optional = get_origin(kind) is NotRequired
            if name in value:
                check_json(value[name], get_args(kind)[0] if is_optional else kind, f"{place}.{name}".lstrip("."))
            elif not is_optional:
                raise ValueError(f"its {f'{place}.{name}'.lstrip('.')} is missing")
    elif origin is list:
        for number, item in enumerate(value):
            check_json(item, arguments[0], f"{place}[{number}]")
    elif origin is dict:
        for key, item in value.items():
            check_json(item, arguments[1], f"{place}.{key:.80}")


def is_of_type(value: Any, wanted: Any) -> bool:
    """Return True if a value is of a type, without a look at what it holds."""
    origin = get_origin(wanted)
    if wanted is Any:
        return True
    if origin in (types.UnionType, Union):
        return any(is_of_type(value, choice) for choice in get_args(wanted))
    if origin is Literal:
        return type(value) is str and value in get_args(wanted)
    if wanted is int:
        return type(value) is int and MIN_INT64 <= value <= MAX_INT64
    if wanted is float:
        return type(value) in (int, float) and abs(value) < 1e300
    return type(value) is (dict if is_typeddict(wanted) else origin or wanted)


def describe_json_type(wanted: Any) -> str:
    origin = get_origin(wanted)
    if origin is Literal:
        return "one of " + ", ".join(get_args(wanted))
    if origin in (types.UnionType, Union):
        return " or ".join(map(describe_json_type, get_args(wanted)))
    return JSON_TYPE_DESCRIPTIONS[dict if is_typeddict(wanted) else origin or wanted]

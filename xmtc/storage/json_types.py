"""Strict parsing of untrusted JSON, and validation against a TypedDict."""

from __future__ import annotations

import json
import types
from collections import Counter
from collections.abc import Iterable
from math import isfinite
from typing import Any, Literal, NoReturn, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from xmtc.core.hyperparameters import MAX_INT64, MIN_INT64, to_short_repr

MAX_KEY_CHARACTERS = 80  # of a key in an error message
MAX_DEPTH = 100  # levels of nesting; a model of models of models has 30
JSON_TYPE_DESCRIPTIONS: dict[Any, str] = {
    str: "text",
    int: "a whole number of 64 bits",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def parse_json(content: bytes) -> Any:
    """Parse JSON in UTF-8.

    Raises
    ------
    ValueError
        If it is invalid, or ambiguous between parsers: NaN, infinity, repeated keys, or more than MAX_DEPTH levels.
    """
    try:
        value = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=require_distinct_keys,
            parse_constant=reject_constant,
            parse_float=parse_finite_float,
        )
    except RecursionError:
        raise make_depth_error() from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in list_inner_values(outer)]
        if not level:
            return value
    raise make_depth_error()


def list_inner_values(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def make_depth_error() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def require_distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {repeated[:MAX_KEY_CHARACTERS]!r} occurs twice in an object")
    return entries


def reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def parse_finite_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number


def check_json(value: Any, expected: Any, place: str) -> None:
    """Raise ValueError, with place and value, unless a parsed JSON value has a type.

    The type is a TypedDict, list[T], dict[str, T], Literal, union, str, int, float, bool or Any. Keys that a TypedDict
    does not declare may have any value."""
    if not is_of_type(value, expected):
        raise ValueError(f"its {place} is {to_short_repr(value)}, expected {describe_json_type(expected)}")
    origin, arguments = get_origin(expected), get_args(expected)
    if is_typeddict(expected):
        for name, kind in get_type_hints(expected, include_extras=True).items():
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


def is_of_type(value: Any, expected: Any) -> bool:
    """Return True if a value has a type, without checking the values that it contains."""
    origin = get_origin(expected)
    if expected is Any:
        return True
    if origin in (types.UnionType, Union):
        return any(is_of_type(value, choice) for choice in get_args(expected))
    if origin is Literal:
        return type(value) is str and value in get_args(expected)
    if expected is int:
        return type(value) is int and MIN_INT64 <= value <= MAX_INT64
    if expected is float:
        return type(value) in (int, float) and abs(value) < 1e300
    return type(value) is (dict if is_typeddict(expected) else origin or expected)


def describe_json_type(expected: Any) -> str:
    origin = get_origin(expected)
    if origin is Literal:
        return "one of " + ", ".join(get_args(expected))
    if origin in (types.UnionType, Union):
        return " or ".join(map(describe_json_type, get_args(expected)))
    return JSON_TYPE_DESCRIPTIONS[dict if is_typeddict(expected) else origin or expected]

"""Forms: dataclasses that a model folder can hold. The fields of a form are its file format.

A field is an array, whose type the form states with `array(...)`; a number, a truth value or a text; another form; or a
tuple or a mapping of these. Anything else is refused when the form is looked at, before anybody trains it."""

from __future__ import annotations

import types
from dataclasses import Field, field, fields, is_dataclass
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

SCALAR_TYPES = (bool, int, float, str)


class Form:
    """What a model folder may hold: only classes derived from this one are ever made from a folder."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = Form.__repr__  # type: ignore[method-assign]  # a dataclass would print every number

    def __repr__(self) -> str:
        values = [f"{each.name}={summarise_value(getattr(self, each.name))}" for each in fields(self)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(values)})"

    def check(self) -> None:
        """Raise ValueError, with a phrase, at numbers that would lead compiled code astray. Called once on what came
        from a folder, before its first use; it may read every array."""


def summarise_value(value: Any) -> str:
    """A value in a few characters: of arrays the type and shape, of several forms how many."""
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {value.shape}>"
    if isinstance(value, tuple) and value and isinstance(value[0], Form):
        return f"<{len(value)} of {type(value[0]).__name__}>"
    return repr(value)


class ArrayType(NamedTuple):
    """The types that an array field takes, and how many dimensions it has."""

    dtypes: tuple[np.dtype, ...]
    ndim: int | None

    def is_match(self, value: Any) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype not in self.dtypes:
            return False
        return self.ndim is None or value.ndim == self.ndim


def array(*dtypes: Any, ndim: int | None = 1) -> Any:
    """An array field of a form, of one of these types; in a tuple or mapping of arrays, each of them."""
    return field(metadata={"array": ArrayType(tuple(map(np.dtype, dtypes)), ndim)})


def is_type_match(value: Any, wanted: Any, array_type: ArrayType | None) -> bool:
    """Whether a value is what a field is annotated with: int, tuple[Tree, ...], dict[str, int], an array."""
    origin, arguments = get_origin(wanted), get_args(wanted)

    if origin is tuple:
        return isinstance(value, tuple) and all(is_type_match(item, arguments[0], array_type) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(is_type_match(item, arguments[1], array_type) for item in value.values())
    if origin in (types.UnionType, Any):
        return any(is_type_match(value, choice, array_type) for choice in arguments)
    if wanted is np.ndarray:
        return array_type is not None and array_type.is_match(value)
    if wanted in (int, float):
        return isinstance(value, (int, wanted)) and not isinstance(value, bool)
    return isinstance(value, wanted)


def is_equal(one: Any, other: Any) -> bool:
    """Whether two forms, or what they hold, are equal to the last number."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, Form) and is_dataclass(one):
        return all(is_equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(item, other[key]) for key, item in one.items())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return one == other


def check_finite(value: Any, name: str) -> None:
    """Refuse, with a phrase, a form that holds nan or infinity anywhere: compiled code may take numbers to be finite,
    and would answer with whatever comes."""
    if isinstance(value, Form) and is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    elif isinstance(value, tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, item in value.items():
            check_finite(item, f"{name}.{key}")
    is_number = isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")
    if is_number and not np.isfinite(value).all():
        raise ValueError(f"{name} holds nan or infinity")


def check_types(kind: type, values: dict[str, Any], name: str) -> None:
    """Refuse values that are not of the types that the fields of a form state."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        if not is_type_match(values[each.name], hints[each.name], each.metadata.get("array")):
            raise TypeError(f"{name}.{each.name} is of another type")


def check_form(kind: type) -> None:
    """Refuse, with a phrase, a class that no folder could hold."""
    if not (isinstance(kind, type) and issubclass(kind, Form) and is_dataclass(kind)):
        raise ValueError(f"{getattr(kind, '__name__', kind)} is not a dataclass derived from xmtc.Form or xmtc.Model")
    if "<locals>" in kind.__qualname__:
        raise ValueError(f"{kind.__name__} is defined inside a function, where nothing else can find it")
    hints = get_type_hints(kind)
    for each in fields(kind):
        check_field(kind, each, hints[each.name])


def check_field(kind: type, each: Field, wanted: Any) -> None:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is tuple:
        wanted = arguments[0]
    elif origin is dict:
        wanted = arguments[1]

    if wanted is np.ndarray:
        if "array" not in each.metadata:
            raise ValueError(f"{kind.__name__}.{each.name} is an array whose type is not stated: use array(np.float32)")
    elif wanted not in SCALAR_TYPES and not (isinstance(wanted, type) and issubclass(wanted, Form)):
        raise ValueError(f"{kind.__name__}.{each.name} is a {wanted}, which a model folder cannot hold")

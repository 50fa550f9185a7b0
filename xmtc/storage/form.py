"""Forms: dataclasses that can be saved in a model folder. The fields of a form are its file format.

A field is an array declared with `array(...)`; a number, bool or string; another form; or a tuple or mapping of these.
`check_form` rejects anything else before training starts."""

from __future__ import annotations

from dataclasses import Field, field, fields, is_dataclass
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

SCALAR_TYPES = (bool, int, float, str)


class Form:
    """Base class of everything that is saved in a model folder; loading creates instances of its subclasses only.

    A subclass is a dataclass. Loading validates the types of all fields, and `check` their values.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from xmtc import Form, array
    >>> @dataclass(frozen=True)
    ... class Centres(Form):
    ...     n_docs: int
    ...     values: np.ndarray = array(np.float32, ndim=2)
    >>> Centres(7, np.zeros((2, 3), np.float32))
    Centres(n_docs=7, values=<float32 (2, 3)>)
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = Form.__repr__  # type: ignore[method-assign]  # that of a dataclass prints all numbers

    def __repr__(self) -> str:
        values = [f"{f.name}={summarise_value(getattr(self, f.name))}" for f in fields(self)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(values)})"

    def check(self) -> None:
        """Raise ValueError, with a phrase, for values that would make compiled kernels misbehave.

        Called once after loading, before the first use; it may read every array."""


def summarise_value(value: Any) -> str:
    """Return a short repr: type and shape of an array, number of forms in a tuple."""
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {value.shape}>"
    if isinstance(value, tuple) and value and isinstance(value[0], Form):
        return f"<{len(value)} of {type(value[0]).__name__}>"
    return repr(value)


class ArrayType(NamedTuple):
    """Allowed types and number of dimensions of an array field."""

    dtypes: tuple[np.dtype, ...]
    ndim: int | None

    def is_match(self, value: Any) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype not in self.dtypes:
            return False
        return self.ndim is None or value.ndim == self.ndim


def array(*dtypes: Any, ndim: int | None = 1) -> Any:
    """Declare an array field of a form, or a field of several arrays in a tuple or mapping.

    Parameters
    ----------
    *dtypes : dtype
        Allowed types.
    ndim : int or None, default=1
        Number of dimensions; None allows any.

    Returns
    -------
    dataclasses.Field
        The field.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Weights(Form):
    ...     values: np.ndarray = array(np.float32, ndim=2)
    >>> Weights(np.zeros((2, 3), np.float32))
    Weights(values=<float32 (2, 3)>)
    """
    return field(metadata={"array": ArrayType(tuple(map(np.dtype, dtypes)), ndim)})


def is_type_match(value: Any, annotation: Any, array_type: ArrayType | None) -> bool:
    """Return True if a value matches the annotation of a field: int, tuple[Tree, ...], dict[str, int], an array."""
    origin, arguments = get_origin(annotation), get_args(annotation)

    if origin is tuple:
        return isinstance(value, tuple) and all(is_type_match(item, arguments[0], array_type) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(is_type_match(item, arguments[1], array_type) for item in value.values())
    if annotation is np.ndarray:
        return array_type is not None and array_type.is_match(value)
    if annotation in (int, float):
        return isinstance(value, (int, annotation)) and not isinstance(value, bool)
    return isinstance(value, annotation)


def is_equal(one: Any, other: Any) -> bool:
    """Return True if two forms, or values of them, are equal to the last digit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, Form) and is_dataclass(one):
        return all(is_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(item, other[key]) for key, item in one.items())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return one == other


def check_finite(value: Any, name: str) -> None:
    """Raise ValueError if a form holds NaN or infinity anywhere, since kernels assume finite numbers."""
    if isinstance(value, Form) and is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    elif isinstance(value, tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, item in value.items():
            check_finite(item, f"{name}.{key}")
    is_number = isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")
    if is_number and not np.isfinite(value).all():
        raise ValueError(f"{name} holds nan or infinity")


def check_types(kind: type, values: dict[str, Any], name: str) -> None:
    """Raise TypeError unless all values have the types of the fields of a form."""
    hints = get_type_hints(kind)
    for f in fields(kind):
        if not is_type_match(values[f.name], hints[f.name], f.metadata.get("array")):
            raise TypeError(f"{name}.{f.name} has the wrong type")


def check_form(kind: type) -> None:
    """Raise ValueError, with a phrase, if instances of a class cannot be saved in a folder."""
    if not (isinstance(kind, type) and issubclass(kind, Form) and is_dataclass(kind)):
        raise ValueError(f"{getattr(kind, '__name__', kind)} is not a dataclass derived from xmtc.Form or xmtc.Model")
    if "<locals>" in kind.__qualname__:
        raise ValueError(f"{kind.__name__} is defined inside a function, where loading cannot find it")
    hints = get_type_hints(kind)
    for f in fields(kind):
        check_field(kind, f, hints[f.name])


def check_field(kind: type, f: Field, annotation: Any) -> None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        annotation = arguments[0]
    elif origin is dict:
        annotation = arguments[1]

    if annotation is np.ndarray:
        if "array" not in f.metadata:
            raise ValueError(f"{kind.__name__}.{f.name} is an array whose type is not stated: use array(np.float32)")
    elif annotation not in SCALAR_TYPES and not (isinstance(annotation, type) and issubclass(annotation, Form)):
        raise ValueError(f"{kind.__name__}.{f.name} is a {annotation}, which a model folder cannot hold")

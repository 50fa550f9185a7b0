"""What `help()` says of a recipe: its own sentence, its parameters with their help, and what its module says."""

from __future__ import annotations

import sys
from dataclasses import Field
from inspect import cleandoc
from textwrap import indent
from typing import Any

from xmtc.base.params import kind_of, takes_several


def describe_parameters(recipe: type) -> None:
    """Add the parameters to the docstring of a recipe, as numpydoc has them, and below them the docstring of its
    module, which has a method's paper. Called before `dataclass` is, so the fields are still found one by one."""
    if not recipe.__doc__:  # none was written, or Python runs with -OO
        return
    parts = [cleandoc(recipe.__doc__)]

    entries = [entry(parameter, name) for name, parameter in parameters_of(recipe).items()]
    if entries:
        parts.append("\n".join(["Parameters", "----------", *entries]))

    module = sys.modules.get(recipe.__module__)
    if module is not None and module.__doc__ and module.__name__ != "__main__":
        parts.append(f"Notes\n-----\n{cleandoc(module.__doc__)}")
    recipe.__doc__ = "\n\n".join(parts) + "\n"


def parameters_of(recipe: type) -> dict[str, Field]:
    """The parameters by name, those of its bases first, as `dataclass` will order them."""
    found: dict[str, Field] = {}
    for kind in reversed(recipe.__mro__[1:]):
        found |= vars(kind).get("__dataclass_fields__", {})
    found |= {name: value for name, value in vars(recipe).items() if isinstance(value, Field)}
    return {name: parameter for name, parameter in found.items() if "help" in parameter.metadata}


def entry(parameter: Field, name: str) -> str:
    default: Any = parameter.default
    return f"{name} : {type_of(parameter)}, default {default!r}\n" + indent(parameter.metadata["help"], "    ")


def type_of(parameter: Field) -> str:
    """The type of a parameter as numpydoc writes it: int, tuple of int, {'sum', 'mean'}."""
    if parameter.metadata["choices"]:
        return "{" + ", ".join(map(repr, parameter.metadata["choices"])) + "}"
    kind = kind_of(parameter).__name__
    name = "Method or str" if kind == "Recipe" else kind
    return f"tuple of {name}" if takes_several(parameter) else name

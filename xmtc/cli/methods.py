"""xmtc methods: methods and their hyper-parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.core.method import Method


def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Method; without it, all are listed.")] = None,
) -> None:
    """List the methods, or the hyper-parameters of one method."""
    from xmtc.features import view_class
    from xmtc.methods import METHOD_REGISTRY, method_class
    from xmtc.name_documents import NameTraining
    from xmtc.scores.calibration import Calibration

    if name is None:
        for method_name in METHOD_REGISTRY.names():
            echo(f"{method_name:16} {summarize_method(method_name)}")
        echo("\n`xmtc methods NAME` lists the hyper-parameters of a method.")
        return
    method = method_class(name)
    echo(f"{name}: {get_first_docstring_line(method)}\n")
    echo(format_parameters(method))
    for view in list_method_views(method):
        echo(f"\n{view_class(view).title}:\n")
        echo(format_parameters(view_class(view), method.view_defaults))
    recipes: list[type[NameTraining | Calibration]] = [NameTraining, Calibration]
    for recipe in recipes if can_train_on_names(name) else recipes[1:]:
        echo(f"\n{recipe.title}:\n")
        echo(format_parameters(recipe))
    echo(f"\nSet them with -p: xmtc train CORPUS -m {name} -o MODEL -p NAME=VALUE")


def can_train_on_names(name: str) -> bool:
    """Return True if a method with default parameters can train on label names as documents."""
    from xmtc.methods import as_method
    from xmtc.name_documents import has_name_training

    try:
        return has_name_training(as_method(name))
    except ImportError:  # of a network that is a default member
        return False


def list_method_views(method: type[Method]) -> list[str]:
    """Return the views that a method may read; all views for a method with members."""
    from xmtc.features import VIEW_REGISTRY, view_class

    names, required = VIEW_REGISTRY.names(), method.required_views
    if not isinstance(required, tuple):
        return names
    return [*required, *(name for name in names if view_class(name).replaced_view in required)]


def summarize_method(name: str) -> str:
    """Return the first line of a method's docstring, or which extra it needs."""
    from xmtc.errors import MissingExtra
    from xmtc.methods import method_class

    try:
        return get_first_docstring_line(method_class(name))
    except MissingExtra as missing:
        return str(missing)


def get_first_docstring_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


def format_parameters(kind: type, defaults: Mapping[str, Any] = {}) -> str:
    """Return a table of parameters; `defaults` replace those of the class."""
    from dataclasses import fields

    from xmtc.core.hyperparameters import describe_expected

    rows = [
        (f.name, repr(defaults.get(f.name, f.default)), f"{f.metadata['help']} ({describe_expected(f)})")
        for f in fields(kind)
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    return "\n".join(f"  {row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}" for row in rows)

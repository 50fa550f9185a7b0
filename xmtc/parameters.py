"""Whose parameter is whose: they are dealt out by name to a method, to the methods that it holds, and to the views that
it reads. The Classifier, the commands, tuning and the members of ensembles all come here.

A parameter of a method within another has the inner method's name before it: `parabel.n_trees`; the second one of a
name has a number, `parabel-2.n_trees`."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import Field, fields, replace
from typing import Any

from xmtc.base.method import Method
from xmtc.base.params import Recipe, is_valid, kind_of, takes_several, value_of
from xmtc.errors import XmtcError
from xmtc.features import COLUMNS, TEXTS, View, views_for, views_made_from
from xmtc.methods import method_class, method_name

Parameters = Mapping[str, Any]


def build_method(method: Method | str, parameters: Parameters) -> tuple[Method, dict[str, Any]]:
    """A method with those of the parameters that are its own or its members', and the others."""
    kind = class_of(method)
    name = method if isinstance(method, str) else method_name(method)
    known = {field.name: field for field in fields(kind)}
    values = {key: value_of(name, known[key], value) for key, value in parameters.items() if key in known}
    rest = {key: value for key, value in parameters.items() if key not in known}

    for field in known.values():
        if kind_of(field) is Recipe:
            value = values.get(field.name, field.default if isinstance(method, str) else getattr(method, field.name))
            if is_valid(field, value):  # else the method itself says what does not fit
                values[field.name], rest = build_members(field, value, rest)
    for key in rest:
        if "." in key:
            raise XmtcError(f"{name} has no member {key.rpartition('.')[0]!r}, whose {key!r} could be set.")
    return (kind(**values) if isinstance(method, str) else replace(method, **values)), rest


def class_of(method: Method | str) -> type[Method]:
    if isinstance(method, type):
        name = method.__name__
        raise XmtcError(f"{name} is a class; give a method as it is, such as {name}(), or its name.")
    return type(method) if isinstance(method, Method) else method_class(method)


def build_members(field: Field, value: Any, parameters: Parameters) -> tuple[Any, dict[str, Any]]:
    """The methods that a parameter holds, each with its own parameters, and what belongs to none of them."""
    members = list(value) if takes_several(field) else [value]
    rest, built = dict(parameters), []
    for name, member in zip(member_names(members), members, strict=True):
        found = {key.removeprefix(f"{name}."): rest.pop(key) for key in parameters if key.startswith(f"{name}.")}
        method, strange = build_method(member, found)
        if strange:
            raise unknown_parameter(name, next(iter(strange)), [each.name for each in fields(method)])
        built.append(method)
    return (tuple(built) if takes_several(field) else built[0]), rest


def member_names(members: Iterable[Any]) -> list[str]:
    """The name of each member; the second of a name has a 2."""
    seen: Counter[str] = Counter()
    names = []
    for member in members:
        name = member if isinstance(member, str) else method_name(member)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def named_fields(method: Method, prefix: str = "") -> dict[str, tuple[Field, Any]]:
    """Every parameter of a method and of the methods that it holds, by the name that it is set by, and its value."""
    found = {f"{prefix}{field.name}": (field, getattr(method, field.name)) for field in fields(method)}
    for field, value in list(found.values()):
        members = () if kind_of(field) is not Recipe else value if takes_several(field) else (value,)
        for name, member in zip(member_names(members), members, strict=True):
            found |= named_fields(member, f"{prefix}{name}.")
    return found


def build_views(method: Method, content: str, parameters: Parameters) -> dict[str, View]:
    """The views that a method reads, of a corpus of texts or of features, with their parameters. One that several
    views have, such as `lowercase`, is set for all of them; one that none has is refused."""
    kinds = views_for(method.reads, content, type(method).__name__)
    known = [field.name for recipe in (type(method), *kinds.values()) for field in fields(recipe)]
    for key in parameters:
        if key not in known:
            name = method_name(method)
            who = name if isinstance(type(method).reads, tuple) else f"{name} as it is set here"
            raise unknown_parameter(who, key, known, f" for a corpus of {content}", f" (`xmtc methods {name}`)")
    return {name: made(kind, parameters) for name, kind in kinds.items()}


def made(kind: type[View], parameters: Parameters) -> View:
    known = {field.name: field for field in fields(kind) if field.name in parameters}
    return kind(**{key: value_of(kind.__name__, field, parameters[key]) for key, field in known.items()})


def unknown_parameter(who: str, key: str, known: Iterable[str], corpus: str = "", where: str = "") -> XmtcError:
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}{where}."
    return XmtcError(f"{who} has no parameter {key!r}{corpus}; {hint}")


def parameters_of(method: Method | str, values: Parameters) -> list[Field]:
    """The parameters that a method and its views take, set as it is, whatever a corpus holds."""
    kind = class_of(method)
    reads = reads_of(method, values)
    views: dict[str, type[View]] = views_for(reads, TEXTS)
    with suppress(XmtcError):  # it may read what only texts have
        views |= views_for(reads, COLUMNS)
    found = [field for recipe in (kind, *views.values()) for field in fields(recipe)]
    return list({field.name: field for field in found}.values())


def check_names(method: Method | str, names: Iterable[str], values: Parameters) -> None:
    """Refuse parameters that neither a method nor its views have. Whether members have them, they themselves tell."""
    known = [field.name for field in parameters_of(method, values)]
    for name in names:
        if name not in known and "." not in name:
            raise unknown_parameter(method if isinstance(method, str) else method_name(method), name, known)
    if any("." in name for name in names):
        own = {field.name for field in fields(class_of(method))}
        build_method(method, {key: value for key, value in values.items() if key in own or "." in key})


def values_of(method: Method | str, parameters: Parameters) -> dict[str, Any]:
    """Every parameter of a method and its views with its value: what was set, what a preset or the method itself has,
    the default."""
    values = {field.name: field.default for field in parameters_of(method, parameters)}
    if isinstance(method, str):
        values |= method_class(method).presets.get(str(parameters.get("preset")), {})
    else:
        values |= {field.name: getattr(method, field.name) for field in fields(method)}
    return values | dict(parameters)


def applicable(method: Method | str, content: str, parameters: Parameters) -> dict[str, Any]:
    """Those of the parameters that are of use with a corpus of texts, or of features."""
    kind = class_of(method)
    views = views_for(reads_of(method, parameters), content, kind.__name__).values()
    known = {field.name for recipe in (kind, *views) for field in fields(recipe)}
    return {key: value for key, value in parameters.items() if key in known or "." in key}


def reads_of(method: Method | str, values: Parameters) -> tuple[str, ...]:
    """The views that a method reads. Where that depends on parameters, an instance tells; where these do not fit, all
    that there are, so that whoever trains can say what is wrong with them."""
    kind = class_of(method)
    if isinstance(kind.reads, tuple):
        return kind.reads
    names = {field.name for field in fields(kind)}
    own = {key: value for key, value in values.items() if key in names or "." in key}
    try:
        return build_method(method, own)[0].reads
    except XmtcError:
        return views_made_from(TEXTS)


def as_json(recipe: Recipe) -> dict[str, Any]:
    """The parameters of a recipe as about.json holds them."""
    return {field.name: json_value(getattr(recipe, field.name)) for field in fields(recipe)}


def json_value(value: Any) -> Any:
    if isinstance(value, Method):
        return {"method": method_name(value), "parameters": as_json(value)}
    return [json_value(item) for item in value] if isinstance(value, tuple) else value


def from_json(value: Any) -> Any:
    """What json_value described."""
    if isinstance(value, dict):
        return method_class(value["method"])(**{key: from_json(item) for key, item in value["parameters"].items()})
    return tuple(from_json(item) for item in value) if isinstance(value, list) else value

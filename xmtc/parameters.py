"""Assignment of hyper-parameters by name to a method, its members, its views, label names and the calibration.

Classifier, commands, tuning and ensembles use this module. A parameter of a member has the name of the member as a
prefix, `parabel.n_trees`; the second member of the same name is numbered, `parabel-2.n_trees`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar

from xmtc import model_folder
from xmtc.core.hyperparameters import (
    EQUIVALENTS,
    ParameterSet,
    UnparsedValue,
    describe_expected,
    format_cli_value,
    get_value_type,
    is_multi_valued,
    is_valid_value,
    parse_value,
    resolve_value,
    to_short_repr,
)
from xmtc.core.method import Method
from xmtc.data.in_memory import check_integer_names
from xmtc.errors import XmtcError, find_similar_names
from xmtc.features import FEATURES, TEXTS, View, resolve_view, select_views, view_class
from xmtc.methods import method_class, method_name
from xmtc.methods.ensemble.members import (
    CombinedMethod,
    list_member_view_fields,
    name_members,
    parse_member_views,
)
from xmtc.name_documents import NameTraining, has_name_training
from xmtc.scores.calibration import Calibration
from xmtc.tagger import Tagger

Parameters = Mapping[str, Any]
MEMBER_VIEWS = "member_views"  # parameter of a combination that holds the view parameters of its members
ParameterSetT = TypeVar("ParameterSetT", bound=ParameterSet)


def build_method(method: Method | str, parameters: Parameters) -> tuple[Method, dict[str, Any]]:
    """Return a method with its own and its members' parameters, and the parameters that are left."""
    kind = resolve_method_class(method)
    name = resolve_method_name(method)
    known = {field.name: field for field in fields(kind)}
    values = {key: resolve_value(name, known[key], value) for key, value in parameters.items() if key in known}
    rest = {key: value for key, value in parameters.items() if key not in known}

    for field in known.values():
        if get_value_type(field) is ParameterSet:
            value = values.get(field.name, field.default if isinstance(method, str) else getattr(method, field.name))
            if is_valid_value(field, value):  # otherwise the constructor of the method raises
                values[field.name], own_views, rest = build_members(field, value, rest, has_member_views(kind))
                if own_views:
                    set_before = () if isinstance(method, str) else getattr(method, MEMBER_VIEWS)
                    values[MEMBER_VIEWS] = merge_member_views(values.get(MEMBER_VIEWS, set_before), own_views)
    for key in rest:
        if "." in key:
            raise unknown_member_error(name, key)
    return (kind(**values) if isinstance(method, str) else method.replace(**values)), rest


def unknown_member_error(who: str, key: str) -> XmtcError:
    return XmtcError(f"{who} has no member {key.rpartition('.')[0]!r}, so {key!r} cannot be set.")


def resolve_method_name(method: Method | str) -> str:
    return method if isinstance(method, str) else method_name(method)


def resolve_method_class(method: Method | str) -> type[Method]:
    if isinstance(method, type):
        name = method.__name__
        raise XmtcError(f"{name} is a class; give an instance, such as {name}(), or the name of a method.")
    return type(method) if isinstance(method, Method) else method_class(method)


def build_members(
    field: Field, value: Any, parameters: Parameters, has_own_views: bool
) -> tuple[Any, dict[str, str], dict[str, Any]]:
    """Return the members that a parameter holds, with their parameters, their view parameters as text, and the
    parameters that are left."""
    members = list(value) if is_multi_valued(field) else [value]
    rest, built, own_views = dict(parameters), [], {}
    for name, member in zip(name_members(members), members, strict=True):
        own = {key.removeprefix(f"{name}."): rest.pop(key) for key in parameters if key.startswith(f"{name}.")}
        method, unknown = build_method(member, own)
        known = list_member_view_fields(method) if has_own_views else {}
        for key, setting in unknown.items():
            if key not in known:
                raise unknown_parameter_error(name, key, [*(field.name for field in fields(method)), *known])
            own_views[f"{name}.{key}"] = format_cli_value(setting)
        built.append(method)
    return (tuple(built) if is_multi_valued(field) else built[0]), own_views, rest


def merge_member_views(before: Iterable[str], own_views: Mapping[str, str]) -> tuple[str, ...]:
    """Return view parameters of members, with new values, sorted by name."""
    values = {**dict(text.partition("=")[::2] for text in before), **own_views}
    return tuple(f"{name}={value}" for name, value in sorted(values.items()))


def collect_method_fields(method: Method, prefix: str = "") -> dict[str, tuple[Field, Any]]:
    """Return field and value of every parameter of a method and its members, by qualified name."""
    parameters = {f"{prefix}{field.name}": (field, getattr(method, field.name)) for field in fields(method)}
    for field, value in list(parameters.values()):
        if get_value_type(field) is ParameterSet:
            members = value if is_multi_valued(field) else (value,)
            for name, member in zip(name_members(members), members, strict=True):
                parameters |= collect_method_fields(member, f"{prefix}{name}.")
    return parameters


def build_views(method: Method, content: str, parameters: Parameters) -> dict[str, View]:
    """Return the views that a method reads of a corpus of texts or features, with their parameters.

    A parameter of several views, such as `lowercase`, is set for all of them. Raise XmtcError for an unknown one.
    """
    who = type(method).__name__
    own = resolve_own_view_parameters(method, content)
    kinds = select_views(method.required_views, content, who)
    recipes = (type(method), *kinds.values(), *list_training_recipes(method, content))
    known = [field.name for recipe in recipes for field in fields(recipe)]
    for key in parameters:
        if key not in known:
            name = method_name(method)
            if not isinstance(type(method).required_views, tuple):
                who = f"{name} with these {'members' if hasattr(method, 'members') else 'parameters'}"
            else:
                who = name
            raise unknown_parameter_error(who, key, known, f" for a corpus of {content}", f" (`xmtc methods {name}`)")
    for name, kind in kinds.items():
        view_fields = [field.name for field in fields(kind)]
        for key in own.get(name, {}).keys() - set(view_fields):
            raise unknown_parameter_error(
                f"A member of {method_name(method)}", key, view_fields, f" for a corpus of {content}"
            )
    return {
        name: build_parameter_set(kind, {**parameters, **as_unparsed(own.get(name, {}))}).fill_unset(
            collect_view_presets(method)
        )
        for name, kind in kinds.items()
    }


def resolve_own_view_parameters(method: Method, content: str) -> dict[str, dict[str, str]]:
    """Return the parameters of single views, as text, by the name of the view for a corpus of texts or features."""
    who = type(method).__name__
    return {resolve_view(name, content, who): values for name, values in method.own_view_parameters.items()}


def list_training_recipes(method: Method, content: str) -> list[type[ParameterSet]]:
    """Return the parameter sets of a training beside those of the method and its views."""
    return [*([NameTraining] if has_name_training(method, content) else []), Calibration]


def as_unparsed(texts: Mapping[str, str]) -> dict[str, UnparsedValue]:
    return {name: UnparsedValue(text) for name, text in texts.items()}


def build_calibration(parameters: Parameters) -> tuple[Calibration, dict[str, Any]]:
    """Return the calibration options, and the parameters that are left."""
    return take_parameter_set(Calibration, parameters)


def build_name_training(
    method: Method, content: str, parameters: Parameters
) -> tuple[NameTraining | None, dict[str, Any]]:
    """Return the options of training on label names, None if the method cannot, and the parameters that are left."""
    return (
        take_parameter_set(NameTraining, parameters) if has_name_training(method, content) else (None, {**parameters})
    )


def take_parameter_set(kind: type[ParameterSetT], parameters: Parameters) -> tuple[ParameterSetT, dict[str, Any]]:
    """Return a parameter set, and the parameters that are left."""
    own = {field.name for field in fields(kind)}
    return build_parameter_set(kind, parameters), {key: value for key, value in parameters.items() if key not in own}


def collect_view_presets(method: Method) -> dict[str, Any]:
    """Return the view parameters that a method and its members set by default or by a preset, such as the length of a
    text.

    If several of them set a parameter, the first one counts.
    """
    own = {field.name for field in fields(method)}
    presets = {name: value for name, value in method.preset_values.items() if name not in own}
    found = method.view_defaults | presets
    for field in fields(method):
        if get_value_type(field) is ParameterSet:
            value = getattr(method, field.name)
            for member in value if is_multi_valued(field) else (value,):
                found = collect_view_presets(member) | found
    return found


def build_parameter_set(kind: type[ParameterSetT], parameters: Parameters) -> ParameterSetT:
    known = {field.name: field for field in fields(kind) if field.name in parameters}
    return kind(**{key: resolve_value(kind.__name__, field, parameters[key]) for key, field in known.items()})


def unknown_parameter_error(who: str, key: str, known: Iterable[str], corpus: str = "", where: str = "") -> XmtcError:
    names = list(dict.fromkeys(known))
    near = find_similar_names(key, names)
    if key in EQUIVALENTS:
        return XmtcError(f"{who} has no parameter {key!r}{corpus}; {EQUIVALENTS[key]}.")
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}{where}."
    return XmtcError(f"{who} has no parameter {key!r}{corpus}; {hint}")


def collect_all_parameters(method: Method | str, stored_parameters: Parameters) -> dict[str, tuple[Field, Any]]:
    """Return field and value of every parameter of a method, its members, its views and its calibration, by name.

    Stored parameters of other methods are ignored.
    """
    built = build_method_ignoring_unknown(method, stored_parameters)
    found = collect_method_fields(built)
    kinds = select_views(built.required_views, TEXTS)
    with suppress(XmtcError):  # the method may need texts
        kinds |= select_views(built.required_views, FEATURES)
    preset = collect_view_presets(built)
    for view in (build_parameter_set(kind, stored_parameters).fill_unset(preset) for kind in kinds.values()):
        found |= collect_set_fields(view)
    for kind in list_training_recipes(built, TEXTS):
        found |= collect_set_fields(build_parameter_set(kind, stored_parameters))
    return found | collect_member_view_fields(built)


def collect_member_view_fields(method: Method) -> dict[str, tuple[Field, Any]]:
    """Return field and value of the view parameters of each member, by qualified name."""
    if not isinstance(method, CombinedMethod) or not has_member_views(type(method)):
        return {}
    own, found = parse_member_views(method.members, method.member_views), {}
    for name, member in zip(name_members(method.members), method.members, strict=True):
        for key, field in list_member_view_fields(member).items():
            text = own.get(name, {}).get(key)
            found[f"{name}.{key}"] = (field, field.default if text is None else parse_value(name, field, text))
    return found


def has_member_views(kind: type[Method]) -> bool:
    """Return True for a combination whose members may have view parameters of their own."""
    return MEMBER_VIEWS in {field.name for field in fields(kind)}


def collect_set_fields(recipe: ParameterSet) -> dict[str, tuple[Field, Any]]:
    return {field.name: (field, getattr(recipe, field.name)) for field in fields(recipe)}


def check_parameter_names(method: Method | str, names: Iterable[str], stored_parameters: Parameters) -> None:
    """Raise XmtcError for names of parameters that do not exist."""
    known, who = collect_all_parameters(method, stored_parameters), resolve_method_name(method)
    for name in names:
        if name not in known:
            owner = name.rpartition(".")[0]
            if owner and not any(other.startswith(f"{owner}.") for other in known):
                raise unknown_member_error(who, name)
            siblings = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == owner]
            raise unknown_parameter_error(owner or who, name.rpartition(".")[2], siblings)


def build_method_ignoring_unknown(method: Method | str, stored_parameters: Parameters) -> Method:
    """Return a method with those of the parameters that it has.

    Parameters may add members with further parameters, so names are collected until no new ones appear.
    """
    names: set[str] = {field.name for field in fields(resolve_method_class(method))}
    while True:
        built, _ = build_method(method, {name: value for name, value in stored_parameters.items() if name in names})
        found = {*collect_method_fields(built), *collect_member_view_fields(built)}
        if found == names:
            return built
        names = found


def select_applicable_parameters(method: Method | str, content: str, stored_parameters: Parameters) -> dict[str, Any]:
    """Return the parameters that apply to a method with a corpus of texts or features."""
    built = build_method_ignoring_unknown(method, stored_parameters)
    recipes: list[type[ParameterSet]] = [
        *select_views(built.required_views, content, type(built).__name__).values(),
        *list_training_recipes(built, content),
    ]
    known = {
        *collect_method_fields(built),
        *collect_member_view_fields(built),
        *(field.name for recipe in recipes for field in fields(recipe)),
    }
    return {name: value for name, value in stored_parameters.items() if name in known}


def parameters_as_json(recipe: ParameterSet) -> dict[str, Any]:
    """Return parameters in the form of about.json."""
    return {field.name: as_json_value(getattr(recipe, field.name)) for field in fields(recipe)}


def as_json_value(value: Any) -> Any:
    if isinstance(value, Method):
        return {"method": method_name(value), "parameters": parameters_as_json(value)}
    return [as_json_value(item) for item in value] if isinstance(value, tuple) else value


def method_from_json(described: Mapping[str, Any]) -> Method:
    """Parse the output of `as_json_value` for a method; raise ValueError if it is invalid."""
    if not isinstance(described.get("parameters"), dict):
        raise ValueError("a method of it has no parameters")
    kind = method_class(described.get("method"))
    return kind(**values_from_json(kind, described["parameters"]))


def values_from_json(kind: type[ParameterSet], described: Parameters) -> dict[str, Any]:
    """Parse the output of `parameters_as_json`, with the validation of user input.

    Only values of parameters that hold methods are parsed as methods.
    """
    known = {field.name: field for field in fields(kind)}
    found = {}
    for name, value in described.items():
        if name not in known:
            raise ValueError(f"{kind.__name__} has no parameter {name!r:.80}")
        found[name] = value_from_json(kind.__name__, known[name], value)
    return found


def value_from_json(owner: str, field: Field, value: Any) -> Any:
    values = value if is_multi_valued(field) and isinstance(value, list) else [value]
    if get_value_type(field) is ParameterSet:
        values = [method_from_json(each) if isinstance(each, dict) else each for each in values]
    found = tuple(values) if is_multi_valued(field) and isinstance(value, list) else values[0]
    if not is_valid_value(field, found):
        raise ValueError(
            f"{owner}: {field.name}={to_short_repr(value)} is invalid; expected {describe_expected(field)}"
        )
    return found


def load_saved_parameters(tagger: Tagger, folder: str | Path) -> dict[str, Any]:
    """Return the parameters with which a model was trained; raise XmtcError if they are invalid."""
    try:
        if tagger.about.get("target", {}).get("numbers"):
            check_integer_names(tagger.labels.words())
        return parameters_from_about(tagger.about)
    except XmtcError:
        raise
    except model_folder.STRUCTURE_ERRORS as error:
        raise model_folder.damaged_model_error(Path(folder), str(error)) from None


def parameters_from_about(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of about.json that differ from the defaults; raise ValueError for invalid ones.

    Without the defaults, a copy with another method or preset gets the defaults of that. The number of columns is
    left out, because it depends on the corpus.
    """
    method = method_from_json(about)
    found = select_non_default_parameters(Calibration, {name: about[name] for name in ("calibrate",) if name in about})
    found |= select_non_default_parameters(NameTraining, about.get("names", {}))
    found |= select_non_default_parameters(type(method), about["parameters"])
    preset = collect_view_presets(method)
    own = resolve_own_view_parameters(method, next((view_class(name).input_kind for name in about["views"]), TEXTS))
    for name, values in about["views"].items():
        known = own.get(name, {})  # by the parameters of the method
        shared = {key: value for key, value in values.items() if key not in known}
        found |= select_non_default_parameters(view_class(name), shared, preset)
    return {key: value for key, value in found.items() if key != "n_columns"}


def select_non_default_parameters(
    kind: type[ParameterSet], described: Parameters, preset: Parameters | None = None
) -> dict[str, Any]:
    """Return the parameters that differ from the defaults and from the preset, which for a view is its method's."""
    values = values_from_json(kind, described)
    usual = {field.name: field.default for field in fields(kind)} | dict(preset or {})
    usual |= kind.presets.get(str(values.get("preset")), {})
    return {key: value for key, value in values.items() if key not in usual or usual[key] != value}

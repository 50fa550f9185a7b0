"""Which methods are compared, and with which parameters: `parabel,dismec,parabel:n_trees=1`, and -p options.

After a colon stand parameters of that one, several with a semicolon between them. `-p name=value` is for every method
that has such a parameter, `-p parabel.name=value` for the ones called parabel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from xmtc.core.hyperparameters import UnparsedValue
from xmtc.core.method import Method
from xmtc.errors import MissingExtra, XmtcError
from xmtc.features import select_views
from xmtc.methods import METHOD_REGISTRY, method_class
from xmtc.parameters import build_method, collect_all_parameters
from xmtc.pipeline import Pipeline


@dataclass(frozen=True)
class MethodSpec:
    name: str  # as it is called in the comparison
    method: str
    parameters: tuple[tuple[str, str], ...] = ()  # its parameters, as they are typed

    def as_arguments(self, seed: int | None = None) -> list[str]:
        """How `xmtc train` is told."""
        pairs = [*self.parameters, *([] if seed is None else [("seed", str(seed))])]
        return ["-m", self.method, *(word for name, value in pairs for word in ("-p", f"{name}={value}"))]

    @property
    def has_free_seed(self) -> bool:
        """Whether another seed gives another model; not where one was named."""
        try:
            known = [field.name for field in fields(method_class(self.method))]
        except MissingExtra:
            return False
        return "seed" in known and "seed" not in dict(self.parameters)


def parse_specs(methods: Sequence[str], parameters: Sequence[str], content: str) -> list[MethodSpec]:
    """What --methods and -p ask for, checked before anything is trained on a corpus of texts or of features."""
    wanted = [each.strip() for listed in methods for each in listed.split(",") if each.strip()]
    twice = [name for name in dict.fromkeys(wanted) if wanted.count(name) > 1]
    if twice:
        raise XmtcError(f"--methods has {twice[0]} twice; name each once, or give it other parameters after a colon.")
    found = [parse_spec(each) for each in wanted]
    if not found:
        raise XmtcError("--methods names no method; expected names with commas between them, such as parabel,dismec.")
    for parameter in parameters:
        found = add_parameter(found, parameter)
    for each in found:
        check_spec(each, content)
    return found


def parse_spec(text: str) -> MethodSpec:
    method, _, rest = text.partition(":")
    if method not in METHOD_REGISTRY.names():
        raise METHOD_REGISTRY.make_unknown_error(method)
    pairs = []
    for each in filter(None, rest.split(";")):
        name, equals, value = each.partition("=")
        if not equals:
            raise XmtcError(f"--methods {text}: {each} has no value; expected {method}:name=value;name=value.")
        pairs.append((name.strip(), value.strip()))
    return MethodSpec(text, method, tuple(pairs))


def add_parameter(found: list[MethodSpec], parameter: str) -> list[MethodSpec]:
    """A -p option, for those methods that it is for."""
    name, equals, value = parameter.partition("=")
    if not equals:
        raise XmtcError(f"-p {parameter} has no value; expected -p name=value, or -p method.name=value.")
    owner, _, inner = name.partition(".")
    of_one = [each for each in found if inner and each.method == owner]
    wanted = of_one or [each for each in found if has_parameter(each, name)]
    if not wanted:
        raise XmtcError(f"-p {parameter} is for none of {', '.join(each.name for each in found)}; check its name.")
    pair = (inner if of_one else name, value)
    return [MethodSpec(each.name, each.method, (*each.parameters, pair)) if each in wanted else each for each in found]


def has_parameter(spec: MethodSpec, name: str) -> bool:
    try:
        return name in collect_all_parameters(spec.method, as_typed_parameters(spec))
    except MissingExtra:
        return False


def as_typed_parameters(spec: MethodSpec) -> dict[str, Any]:
    return {name: UnparsedValue(value) for name, value in spec.parameters}


def check_spec(spec: MethodSpec, content: str) -> None:
    """Refuse parameters that a training would refuse. What is not installed here, or reads what this corpus does not
    hold, is no mistake: its row will say so."""
    try:
        built, _ = build_method(spec.method, as_typed_parameters(spec))
        if is_trainable_on(built, content):
            Pipeline.from_parameters(spec.method, content, as_typed_parameters(spec))
    except MissingExtra:
        return
    except XmtcError as error:
        raise XmtcError(f"{spec.name}: {error}") from None


def is_trainable_on(method: Method, content: str) -> bool:
    """Whether a method can be trained on a corpus of texts, or of features."""
    try:
        return bool(select_views(method.required_views, content))
    except XmtcError:
        return False

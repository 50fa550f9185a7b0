"""Methods and their parameters as text: `dismec`, `parabel:n_trees=1;max_leaf=5`, and -p options.

Parameters after the colon belong to that method and are separated by semicolons. `-p name=value` applies to every
method that has the parameter, `-p parabel.name=value` to parabel only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
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
    """Method with parameters."""

    name: str  # in the comparison
    method: str
    parameters: tuple[tuple[str, str], ...] = ()  # unparsed

    def as_arguments(self, seed: int | None = None) -> list[str]:
        """Return the options of `xmtc train`."""
        pairs = [*self.parameters, *([] if seed is None else [("seed", str(seed))])]
        return ["-m", self.method, *(word for name, value in pairs for word in ("-p", f"{name}={value}"))]

    @property
    def has_free_seed(self) -> bool:
        """Return True if the method has a seed that is not fixed."""
        try:
            names = [field.name for field in fields(method_class(self.method))]
        except MissingExtra:
            return False
        return "seed" in names and "seed" not in dict(self.parameters)


def parse_specs(methods: Sequence[str], parameters: Sequence[str], content: str) -> list[MethodSpec]:
    """Parse methods and -p options, and check them before anything is trained.

    `content` is the content of the corpus, TEXTS or FEATURES.
    """
    names = [name.strip() for name in methods if name.strip()]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            raise XmtcError(f"{name} is given twice; remove one, or add other parameters after a colon.")
    specs = [parse_spec(name) for name in names]
    if not specs:
        raise XmtcError("No method is given; expected names such as parabel and dismec.")
    for parameter in parameters:
        specs = add_parameter(specs, parameter)
    for spec in specs:
        check_spec(spec, content)
    return specs


def parse_spec(text: str) -> MethodSpec:
    method, _, rest = text.partition(":")
    if method not in METHOD_REGISTRY.names():
        raise METHOD_REGISTRY.make_unknown_error(method)
    pairs = []
    for pair in filter(None, rest.split(";")):
        name, equals, value = pair.partition("=")
        if not equals:
            raise XmtcError(f"{text}: {pair} has no value; expected {method}:name=value;name=value.")
        pairs.append((name.strip(), value.strip()))
    return MethodSpec(text, method, tuple(pairs))


def add_parameter(specs: list[MethodSpec], parameter: str) -> list[MethodSpec]:
    """Add a -p option to the methods that it applies to."""
    name, equals, value = parameter.partition("=")
    if not equals:
        raise XmtcError(f"-p {parameter} has no value; expected -p name=value, or -p method.name=value.")
    owner, _, own_name = name.partition(".")
    owners = [spec for spec in specs if own_name and spec.method == owner]
    targets = owners or [spec for spec in specs if has_parameter(spec, name)]
    if not targets:
        raise XmtcError(f"-p {parameter} is a parameter of none of {', '.join(spec.name for spec in specs)}.")
    pair = (own_name if owners else name, value)
    return [replace(spec, parameters=(*spec.parameters, pair)) if spec in targets else spec for spec in specs]


def has_parameter(spec: MethodSpec, name: str) -> bool:
    try:
        return name in collect_all_parameters(spec.method, as_typed_parameters(spec))
    except MissingExtra:
        return False


def as_typed_parameters(spec: MethodSpec) -> dict[str, Any]:
    return {name: UnparsedValue(value) for name, value in spec.parameters}


def check_spec(spec: MethodSpec, content: str) -> None:
    """Raise XmtcError for invalid parameters.

    A method that is not installed or cannot read the corpus is not an error here: its trial reports that.
    """
    try:
        method, _ = build_method(spec.method, as_typed_parameters(spec))
        if is_trainable_on(method, content):
            Pipeline.from_parameters(spec.method, content, as_typed_parameters(spec))
    except MissingExtra:
        return
    except XmtcError as error:
        raise XmtcError(f"{spec.name}: {error}") from None


def is_trainable_on(method: Method, content: str) -> bool:
    """Return True if a method can read a corpus of texts, or of features."""
    try:
        return bool(select_views(method.required_views, content))
    except XmtcError:
        return False

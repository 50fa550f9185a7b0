"""The members of an ensemble or a consensus: their parameters from text, what they read together, their training."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from xmtc.base.dataset import Dataset
from xmtc.base.method import Method, Model
from xmtc.base.params import parse_value
from xmtc.base.run import Run
from xmtc.errors import XmtcError
from xmtc.methods import method_class
from xmtc.methods.ensemble.model import Combination, only


def parsed(settings: str) -> list[tuple[str, str]]:
    """Names and values of "name=value name=value"; a value with spaces stands in quotation marks."""
    try:
        words = shlex.split(settings)
    except ValueError:
        raise XmtcError(f"settings={settings!r} has a quotation mark that is not closed; close it.") from None
    for word in words:
        if "=" not in word:
            raise XmtcError(f"settings={settings!r} has no value for {word!r}; expected name=value.")
    return [(name, value) for name, _, value in (word.partition("=") for word in words)]


def member(method: str, settings: Iterable[tuple[str, str]], **more: Any) -> Method:
    """A method by its name, with parameters given as text, and more given as they are."""
    kind = method_class(method)
    known = {field.name: field for field in fields(kind)}
    for name, _ in settings:
        if name not in known:
            raise XmtcError(f"{method} has no parameter {name!r}; it has {', '.join(known)}.")
    return kind(**{name: parse_value(method, known[name], text) for name, text in settings}, **more)


def read_together(members: Iterable[Method]) -> tuple[str, ...]:
    read = {part for method in members for part in method.reads}
    return tuple(part for part in ("X", "vectors", "tokens", "subwords", "Y") if part in read)


def fit_together(
    owner: Method, members: list[Method], rule: str, data: Dataset, valid: Dataset | None, run: Run
) -> Combination:
    """Train the members one after the other, each with a folder of its own in the checkpoint."""
    if run.checkpoint.folder:
        run.checkpoint.claim(f"{owner} {data.fingerprint()}")

    def trained(number: int, method: Method) -> Model:
        checked = None if valid is None else only(valid, method.reads)
        own = replace(run, checkpoint=run.checkpoint.part(f"member-{number}"))
        return method.fit(only(data, method.reads), checked, own)

    models = tuple(trained(number, method) for number, method in enumerate(members))
    return Combination(data.n_labels, data.n_features, data.n_words, rule, models)

"""xmtc train: a corpus in, a model folder out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.options import (
    CorpusPath,
    Device,
    Id,
    InputFormat,
    Labels,
    OnError,
    RejectsFile,
    Separator,
    Text,
    Threads,
    make_run,
    open_input,
    report_rejects,
)

if TYPE_CHECKING:
    from xmtc.base.method import Method


def train(
    corpus: CorpusPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="model folder to write; a model there is replaced")],
    method: Annotated[str, typer.Option("-m", "--method", help="method, one of `xmtc methods`")] = "parabel",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", help="name=value of a hyper-parameter; repeatable")
    ] = None,
    valid: Annotated[str | None, typer.Option(help="corpus that decides when to stop, or what scores mean")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="folder to keep finished parts in, and to go on from")] = None,
    threads: Threads = 0,
    device: Device = "auto",
    input_format: InputFormat = None,
    text: Text = "text",
    labels: Labels = "labels",
    id: Id = "id",
    separator: Separator = None,
    on_error: OnError = "stop",
    rejects: RejectsFile = None,
) -> None:
    """Train a tagger on a corpus of labelled documents."""
    import os
    import time

    from xmtc import store, tagger

    start = time.perf_counter()
    store.check_target(output)
    names = (text, labels, id, separator)
    source = open_input(corpus, input_format, names, on_error, rejects)
    checked = open_input(valid, input_format, names, on_error, None) if valid else None
    recipe, features = recipes(method, parameter or [], source.holds_features)
    run = make_run(threads, checkpoint=checkpoint, device=device)
    trained = tagger.train(source, recipe, features, checked, run, source.n_features)
    if os.environ.get("RANK", "0") != "0":  # one of several processes that torchrun has started: the first saves
        return
    trained.save(output)
    run.checkpoint.forget()
    report_rejects(source)
    if checked is not None:
        report_rejects(checked)
    about, seconds = trained.about, time.perf_counter() - start
    counted = [what for what in ("labels", "features", "words", "subwords") if f"n_{what}" in about]
    sizes = [f"{about[f'n_{what}']:,} {what}" for what in counted]
    typer.echo(
        f"{output}: {method} trained on {about['n_docs']:,} documents with {' and '.join(sizes)} in {seconds:.1f} s. "
        f"Next: xmtc evaluate {output} TEST-CORPUS",
        err=True,
    )


def recipes(method: str, parameters: list[str], holds_features: bool) -> tuple[Method, Any]:
    """The method and the text features, each with its share of the -p name=value options. What features it reads may
    be told only by its own share."""
    from dataclasses import fields

    from xmtc.errors import XmtcError
    from xmtc.features import kind_for
    from xmtc.methods import method_class

    given: dict[str, str] = {}
    for parameter in parameters:
        name, equals, given[name] = parameter.partition("=")
        if not equals:
            raise XmtcError(f"-p {parameter} has no value; expected -p name=value.")
    recipe = with_values(method, method_class(method), given)
    kind = kind_for(recipe, holds_features)
    known = [field.name for owner in (type(recipe), kind) for field in fields(owner)]
    for name in given:
        if name not in known:
            kind_of_corpus = "features" if holds_features else "texts"
            who = method if type(recipe).reads else f"{method} as it is set here"  # which features it reads may vary
            raise XmtcError(
                f"{who} has no parameter {name!r} for a corpus of {kind_of_corpus}; it has {', '.join(known)} "
                f"(`xmtc methods {method}`)."
            )
    return recipe, with_values(method, kind, given)


def with_values(method: str, kind: type, given: dict[str, str]) -> Any:
    """A recipe with those of the given values that are its own."""
    from dataclasses import fields

    from xmtc.base.params import parse_value

    return kind(**{f.name: parse_value(method, f, given[f.name]) for f in fields(kind) if f.name in given})

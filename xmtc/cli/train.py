"""xmtc train: a corpus in, a model folder out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.options import (
    CorpusPath,
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
    from xmtc.method import Method


def train(
    corpus: CorpusPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="model folder to write; a model there is replaced")],
    method: Annotated[str, typer.Option("-m", "--method", help="method, one of `xmtc methods`")] = "parabel",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", help="name=value of a hyper-parameter; repeatable")
    ] = None,
    valid: Annotated[str | None, typer.Option(help="corpus that decides when to stop, never what to learn")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="folder to keep finished parts in, and to go on from")] = None,
    threads: Threads = 0,
    input_format: InputFormat = None,
    text: Text = "text",
    labels: Labels = "labels",
    id: Id = "id",
    separator: Separator = None,
    on_error: OnError = "stop",
    rejects: RejectsFile = None,
) -> None:
    """Train a tagger on a corpus of labelled documents."""
    import time

    from xmtc import store, tagger

    start = time.perf_counter()
    store.check_target(output)
    names = (text, labels, id, separator)
    source = open_input(corpus, input_format, names, on_error, rejects)
    checked = open_input(valid, input_format, names, on_error, None) if valid else None
    recipe, features = recipes(method, parameter or [], source.holds_features)
    run = make_run(threads, checkpoint=checkpoint)
    trained = tagger.train(source, recipe, features, checked, run, source.n_features)
    trained.save(output)
    run.checkpoint.forget()
    report_rejects(source)
    if checked is not None:
        report_rejects(checked)
    about, seconds = trained.about, time.perf_counter() - start
    typer.echo(
        f"{output}: {method} trained on {about['n_docs']:,} documents with {about['n_labels']:,} labels and "
        f"{about['n_features']:,} features in {seconds:.1f} s. Next: xmtc evaluate {output} TEST-CORPUS",
        err=True,
    )


def recipes(method: str, parameters: list[str], holds_features: bool) -> tuple[Method, Any]:
    """The method and the text features, each with its share of the -p name=value options."""
    from dataclasses import fields

    from xmtc.data.given import Given
    from xmtc.errors import XmtcError
    from xmtc.methods import method_class
    from xmtc.params import parse_value
    from xmtc.text.tfidf import Tfidf

    kinds = method_class(method), Given if holds_features else Tfidf
    owners = {field.name: (kind, field) for kind in kinds for field in fields(kind)}
    values: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
    for parameter in parameters:
        name, equals, text = parameter.partition("=")
        if not equals:
            raise XmtcError(f"-p {parameter} has no value; expected -p name=value.")
        if name not in owners:
            kind_of_corpus = "features" if holds_features else "texts"
            raise XmtcError(
                f"{method} has no parameter {name!r} for a corpus of {kind_of_corpus}; it has {', '.join(owners)} "
                f"(`xmtc methods {method}`)."
            )
        kind, field = owners[name]
        values[kind][name] = parse_value(method, field, text)
    return kinds[0](**values[kinds[0]]), kinds[1](**values[kinds[1]])

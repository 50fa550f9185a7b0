"""xmtc predict: documents in, ranked labels out, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    Allow,
    Deny,
    Device,
    Id,
    InputFormat,
    Language,
    LogJson,
    ModelPath,
    OnError,
    Quiet,
    RejectsFile,
    Text,
    Threads,
    make_run,
    open_input,
    report_rejects,
)

if TYPE_CHECKING:
    from xmtc.data.document import Document

BATCH_DOCS, BATCH_CHARACTERS = 4096, 16_000_000  # what is held at a time, whatever the size of the input


def predict(
    model: ModelPath,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="corpus, labelled or not; - reads standard input")],
    k: Annotated[int, typer.Option("-k", min=1, help="labels per document, at most")] = 5,
    threshold: Annotated[float, typer.Option(help="only labels that score at least this")] = 0.0,
    format: Annotated[str, typer.Option(help="format to write: jsonl, tsv or csv")] = "jsonl",
    language: Language = None,
    allow: Allow = None,
    deny: Deny = None,
    threads: Threads = 0,
    device: Device = "auto",
    input_format: InputFormat = None,
    text: Text = "text",
    labels: Annotated[str, typer.Option(hidden=True)] = "labels",  # taken as by `evaluate`, and not read
    id: Id = "id",
    separator: Annotated[str | None, typer.Option(hidden=True)] = None,
    on_error: OnError = "stop",
    rejects: RejectsFile = None,
    quiet: Quiet = False,
    log_json: LogJson = None,
) -> None:
    """Print the best labels of each document: JSON Lines, or one row per label in TSV and CSV."""
    import sys
    from dataclasses import replace

    from xmtc.cli.writing import answer_writer
    from xmtc.tagger import Tagger

    write = answer_writer(format, sys.stdout)
    tagger = Tagger.load(model)
    allowed = tagger.may_answer(allow or [], deny or [])
    run = replace(make_run(threads, quiet, device=device, log_json=log_json), progress=False)
    quiet = quiet or sys.stdout.isatty()  # there the answers themselves show the progress; elsewhere, how much is read
    source = open_input(file, input_format, (text, None, id, None), on_error, rejects, False, quiet)
    for batch in in_batches(source):
        ranked = tagger.rank(batch, k, run, allowed).above(threshold)
        for document, tags in zip(batch, tagger.named(ranked, language), strict=True):
            write(document.id, tags)
        sys.stdout.flush()
    report_rejects(source)


def in_batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    length = 0
    for document in documents:
        batch.append(document)
        length += len(document.text)
        if len(batch) == BATCH_DOCS or length >= BATCH_CHARACTERS:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch

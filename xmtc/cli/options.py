"""Options that several commands share, and what they become."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from xmtc.base.run import Run
    from xmtc.data.corpus import Corpus

CorpusPath = Annotated[
    str,
    typer.Argument(
        metavar="CORPUS", help="file, Annif folder, pair (texts.txt,labels.txt or X.npz,Y.npz), or - for stdin"
    ),
]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="model folder, as `xmtc train` writes it")]
InputFormat = Annotated[str | None, typer.Option(help="format to read (told from name and content if left out)")]
Text = Annotated[str, typer.Option(help="text field, or several joined by a space: title,abstract")]
Labels = Annotated[str, typer.Option(help="field with the labels")]
Id = Annotated[str, typer.Option(help="field with the document's id")]
Separator = Annotated[str | None, typer.Option(help="between labels in one cell ('|' in tables)")]
OnError = Annotated[str, typer.Option(help="at a bad line: stop, or skip it into the rejects file")]
RejectsFile = Annotated[str | None, typer.Option("--rejects", help="file for bad lines (CORPUS.rejects)")]
Device = Annotated[
    str, typer.Option(help="where networks are computed: cpu, cuda, cuda:1 (auto: a GPU if there is one)")
]
Threads = Annotated[int, typer.Option(min=0, help="threads to work with (0: all there are)")]
Language = Annotated[str | None, typer.Option(help="of the labels' names, with a vocabulary: en, fi")]
Allow = Annotated[
    list[str] | None,
    typer.Option(help="label to choose from, or scheme:…, collection:…, branch:…, file:PATH; repeatable"),
]
Deny = Annotated[list[str] | None, typer.Option(help="label never to answer, named as for --allow; repeatable")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="show no progress")]
LogJson = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="add a JSON line to this file for each event: stages, passes, trials"),
]


def open_input(
    path: str,
    format: str | None,
    names: tuple[str, str | None, str, str | None],
    on_error: str,
    rejects: str | None,
    labels_required: bool = True,
    quiet: bool = False,
) -> Corpus:
    """The corpus that the options speak of; names are those of the text, labels and id fields, and the separator."""
    from xmtc.base.progress import shown, silent
    from xmtc.data.corpus import open_corpus
    from xmtc.data.records import Fields
    from xmtc.errors import visible

    show = silent if quiet else shown
    corpus = open_corpus(path, format, Fields(*names), labels_required, on_error, rejects, show)
    if corpus.format == "paired" and len(corpus.files) == 2 and corpus.files[1] not in path and names[1] is not None:
        typer.echo(f"Labels are read from {visible(corpus.files[1])}.", err=True)  # nobody named it
    return corpus


def report_rejects(corpus: Corpus) -> None:
    """Say at the end of a command what was set aside, so that nothing disappears silently."""
    if corpus.n_rejected:
        typer.echo(str(corpus.rejects), err=True)


def make_run(
    threads: int,
    quiet: bool = False,
    checkpoint: Path | None = None,
    device: str = "auto",
    log_json: Path | None = None,
) -> Run:
    from xmtc.base.checkpoint import Checkpoint
    from xmtc.base.run import Run
    from xmtc.cli.log import json_log, say_when_compiling

    if not quiet:
        say_when_compiling()
    watch = () if log_json is None else json_log(log_json)
    return Run(threads, not quiet, Checkpoint(checkpoint), device, watch)

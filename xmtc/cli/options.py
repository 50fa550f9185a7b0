"""Options that several commands share, and what they become."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from xmtc.base.run import Run
    from xmtc.data.corpus import Corpus

CorpusPath = Annotated[str, typer.Argument(metavar="CORPUS", help="file, Annif folder, X.npz,Y.npz, or - for stdin")]
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
    from xmtc.base.run import silent
    from xmtc.cli.progress import bar
    from xmtc.data.corpus import open_corpus
    from xmtc.data.records import Fields

    return open_corpus(path, format, Fields(*names), labels_required, on_error, rejects, silent if quiet else bar)


def report_rejects(corpus: Corpus) -> None:
    """Say at the end of a command what was set aside, so that nothing disappears silently."""
    if corpus.n_rejected:
        typer.echo(str(corpus.rejects), err=True)


def make_run(threads: int, quiet: bool = False, checkpoint: Path | None = None, device: str = "auto") -> Run:
    from xmtc.base.checkpoint import Checkpoint
    from xmtc.base.run import Run, silent
    from xmtc.cli.progress import bar, say_when_compiling

    say_when_compiling()
    return Run(threads, silent if quiet else bar, Checkpoint(checkpoint), device)

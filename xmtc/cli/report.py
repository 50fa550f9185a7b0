"""xmtc report: what a model does well and where it fails, as a page or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    CorpusPath,
    Device,
    Language,
    LogJson,
    ModelPath,
    Quiet,
    Reading,
    Threads,
    make_run,
    open_input,
    reads_corpus,
    remembered_by,
    report_rejects,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from xmtc.report.shown import Named

# How our files begin, and what follows soon: by this one of ours is known, which may be replaced.
OURS = {
    "html": (b"<!DOCTYPE html>", b'content="xmtc report"'),
    "md": (b"<!-- xmtc report -->", b""),
    "json": (b'{\n "made by": "xmtc report"', b""),
    "csv": (b"label,training_documents,true,given,right,precision,recall,f1", b""),
}


@reads_corpus()
def report(
    model: ModelPath,
    corpus: CorpusPath,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="to write: .html, .md, .json, or .csv (labels alone)")
    ] = "report.html",
    threshold: Annotated[
        float | None,
        typer.Option(help="score from which on a label is given (as the model decides, or as many as in training)"),
    ] = None,
    language: Language = None,
    threads: Threads = 0,
    device: Device = "auto",
    reading: Reading = Reading(),
    quiet: Quiet = False,
    log_json: LogJson = None,
) -> None:
    """Write a report on labelled documents: metrics with intervals, rare labels, labels that fail, what scores mean."""
    from xmtc.base.predictions import check_threshold
    from xmtc.data.files import writing
    from xmtc.errors import visible
    from xmtc.report.making import report_on
    from xmtc.tagger import Tagger

    form = form_of(output)
    if threshold is not None:
        check_threshold(threshold)
    tagger = Tagger.load(model)
    source = open_input(corpus, reading, remembered_by(tagger), quiet=quiet)
    documents = list(source)  # the report shows some of them
    about = {"Model": f"{model}: {tagger!r}", "Documents": f"{len(documents):,} of {corpus}"}
    title = f"Report: {tagger.about['method']} on {corpus}"
    run = make_run(threads, quiet, device=device, log_json=log_json)
    made = report_on(tagger, documents, title, about, threshold=threshold, language=language, run=run)
    with writing(output) as stream:
        stream.write(form(made).encode("utf-8", "replace"))
    if output != "-" and not quiet:
        typer.echo(f"{visible(output)} written.", err=True)
    report_rejects(source)


def form_of(path: str) -> Callable[[Named], str]:
    """What makes the file of that name; refused, before the work, where it would write over something else."""
    from pathlib import Path

    from xmtc.errors import XmtcError
    from xmtc.report.files import as_json, label_rows, markdown
    from xmtc.report.page import page

    forms = {"html": page, "md": markdown, "json": as_json, "csv": label_rows}
    kind = "html" if path == "-" else Path(path).suffix.lstrip(".").lower()
    if kind not in forms:
        raise XmtcError(
            f"-o {path} does not say what to write; expected a name that ends with .html, .md, .json or .csv."
        )
    if path != "-" and Path(path).is_file() and Path(path).stat().st_size:
        with open(path, "rb") as stream:
            head, (begin, sign) = stream.read(1000), OURS[kind]
        if not head.startswith(begin) or sign not in head:
            raise XmtcError(f"{path} exists and is no report of xmtc; choose another name or move it away.")
    if path != "-" and not Path(path).absolute().parent.is_dir():
        raise XmtcError(f"The folder of {path} is not there; make it, or choose another.")
    return forms[kind]

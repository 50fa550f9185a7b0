"""xmtc report: what a model does well and where it fails, as a page or a file."""

from __future__ import annotations

from typing import Annotated

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
from xmtc.cli.outputs import form_of
from xmtc.cli.streams import echo

# How our files begin, and what follows soon: by this one of ours is known, which may be replaced.
OURS = {
    "html": (b"<!DOCTYPE html>", b'content="xmtc report"'),
    "md": (b"<!-- xmtc report -->", b""),
    "json": (b'{\n "made by": "xmtc report"', b""),
    "csv": (b"label,training_documents,support,given,right,precision,recall,f1", b""),
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
    from xmtc.analysis.report.files import as_json, label_rows, markdown
    from xmtc.analysis.report.making import report_on
    from xmtc.analysis.report.page import page
    from xmtc.core.predictions import check_threshold
    from xmtc.data.file_streams import writing
    from xmtc.errors import escape_controls
    from xmtc.tagger import Tagger

    forms = {"html": page, "md": markdown, "json": as_json, "csv": label_rows}
    form = form_of(output, forms, OURS, "report")
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
        echo(f"{escape_controls(output)} written.", err=True)
    report_rejects(source)

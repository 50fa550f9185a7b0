"""xmtc report: what a model does well and where it fails, as a page or a file."""

from __future__ import annotations

from typing import Annotated

import typer

from xmtc.cli.options import (
    CorpusOptions,
    CorpusPath,
    DeviceOption,
    LanguageOption,
    LogJsonOption,
    ModelPath,
    QuietOption,
    ThreadsOption,
    get_saved_reading,
    make_run,
    open_corpus_input,
    report_rejects,
    select_formatter,
    with_corpus_options,
)
from xmtc.cli.streams import echo

# How our files begin, and what follows soon: by this one of ours is known, which may be replaced.
FILE_SIGNATURES = {
    "html": (b"<!DOCTYPE html>", b'content="xmtc report"'),
    "md": (b"<!-- xmtc report -->", b""),
    "json": (b'{\n "made by": "xmtc report"', b""),
    "csv": (b"label,training_documents,support,given,right,precision,recall,f1", b""),
}


@with_corpus_options()
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
    language: LanguageOption = None,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Write a report on labelled documents: metrics with intervals, rare labels, labels that fail, what scores mean."""
    from xmtc.analysis.report.build import build_report
    from xmtc.analysis.report.files import as_json, render_label_csv, render_markdown
    from xmtc.analysis.report.page import render_page
    from xmtc.core.predictions import check_threshold
    from xmtc.data.file_streams import open_output
    from xmtc.errors import escape_controls
    from xmtc.tagger import Tagger

    forms = {"html": render_page, "md": render_markdown, "json": as_json, "csv": render_label_csv}
    form = select_formatter(output, forms, FILE_SIGNATURES, "report")
    if threshold is not None:
        check_threshold(threshold)
    tagger = Tagger.load(model)
    source = open_corpus_input(corpus, reading, get_saved_reading(tagger), quiet=quiet)
    documents = list(source)  # the report shows some of them
    about = {"Model": f"{model}: {tagger!r}", "Documents": f"{len(documents):,} of {corpus}"}
    title = f"Report: {tagger.about['method']} on {corpus}"
    run = make_run(threads, quiet, device=device, log_json=log_json)
    made = build_report(tagger, documents, title, about, threshold=threshold, language=language, run=run)
    with open_output(output) as stream:
        stream.write(form(made).encode("utf-8", "replace"))
    if output != "-" and not quiet:
        echo(f"{escape_controls(output)} written.", err=True)
    report_rejects(source)

"""xmtc report: write a report on a model for labelled documents."""

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

# How files of this command begin, and a later mark; only such files are overwritten.
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
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write: .html, .md, .json, or .csv (labels only).",
            rich_help_panel="Output",
        ),
    ] = "report.html",
    threshold: Annotated[
        float | None,
        typer.Option(help="Minimum score of assigned labels instead of the model's thresholds."),
    ] = None,
    language: LanguageOption = None,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Report on a model: metrics with confidence intervals, rare labels, worst labels, calibration, worst documents."""
    from xmtc.analysis.report.build import build_report
    from xmtc.analysis.report.files import as_json, render_label_csv, render_markdown
    from xmtc.analysis.report.page import render_page
    from xmtc.core.predictions import check_threshold
    from xmtc.data.file_streams import open_output
    from xmtc.errors import escape_controls
    from xmtc.tagger import Tagger

    formatters = {"html": render_page, "md": render_markdown, "json": as_json, "csv": render_label_csv}
    render = select_formatter(output, formatters, FILE_SIGNATURES, "report")
    if threshold is not None:
        check_threshold(threshold)
    tagger = Tagger.load(model)
    source = open_corpus_input(corpus, reading, get_saved_reading(tagger), quiet=quiet)
    documents = list(source)
    sizes = f"{len(tagger.labels):,} labels, trained on {tagger.about['n_docs']:,} documents"
    about = {
        "Model": f"{model}: {tagger.about['method']} with {sizes}",
        "Documents": f"{len(documents):,} of {corpus}",
    }
    title = f"Report: {tagger.about['method']} on {corpus}"
    run = make_run(threads, quiet, device=device, log_json=log_json)
    built = build_report(tagger, documents, title, about, threshold=threshold, language=language, run=run)
    with open_output(output) as stream:
        stream.write(render(built).encode("utf-8", "replace"))
    if output != "-" and not quiet:
        echo(f"{escape_controls(output)} written.", err=True)
    report_rejects(source)

"""xmtc export: write a linear model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from xmtc.cli.options import (
    CORPUS_HELP,
    CorpusOptions,
    ModelPath,
    QuietOption,
    get_saved_reading,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

LOSS_METRIC = "nDCG@5"


@with_corpus_options()
def export(
    model: ModelPath,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="OUT", help="Folder (numpy) or file to write; replaced if present."),
    ],
    format: Annotated[
        Literal["numpy", "onnx", "web"],
        typer.Option(
            metavar="FORMAT",
            help="numpy: arrays with a reader; onnx: graph that takes features; web: page that predicts.",
        ),
    ] = "numpy",
    max_mb: Annotated[
        float | None,
        typer.Option(
            metavar="MB", help="Maximum size of a web page, 10 by default; the smallest weights are left out."
        ),
    ] = None,
    trees: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of label trees to export; all by default.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="CORPUS",
            help=f"Labelled documents for {LOSS_METRIC} of the model and of the export. {CORPUS_HELP}.",
        ),
    ] = None,
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
) -> None:
    """Write a linear model for NumPy, ONNX or a web browser."""
    from xmtc.export import export_model, measure_loss
    from xmtc.tagger import Tagger

    tagger = Tagger.load(model)
    source = None if check is None else open_corpus_input(check, reading, get_saved_reading(tagger), quiet=quiet)
    arrays = export_model(tagger, output, format, max_mb=max_mb, n_trees=trees)
    files = [output] if output.is_file() else list(output.iterdir())
    size = sum(path.stat().st_size for path in files) / 1e6
    echo(f"{output}: {len(arrays.labels):,} labels, {arrays.weights.nnz:,} weights, {size:,.1f} MB.")
    if source is not None:
        before, after = measure_loss(tagger, arrays, source, LOSS_METRIC)
        echo(f"{LOSS_METRIC}: {100 * before:.2f} of the model, {100 * after:.2f} of the export.")
        report_rejects(source)

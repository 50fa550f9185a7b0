"""xmtc combine: combine trained models into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.options import (
    CorpusOptions,
    DeviceOption,
    LogJsonOption,
    QuietOption,
    ThreadsOption,
    get_saved_reading,
    make_run,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo


@with_corpus_options()
def combine(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Model folders, at least two.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="MODEL",
            help="Model folder to write; a model in it is replaced.",
        ),
    ],
    rule: Annotated[
        str,
        typer.Option(metavar="RULE", help="Combination of scores: noisy-or (one confident model suffices) or mean."),
    ] = "noisy-or",
    valid: Annotated[
        str | None,
        typer.Option(metavar="CORPUS", help="Corpus for calibration that no model was trained on."),
    ] = None,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Combine trained models into one model."""
    from xmtc import model_folder
    from xmtc.analysis.combine import combine as combine_taggers
    from xmtc.errors import XmtcError
    from xmtc.methods.ensemble.combination_rules import RULES
    from xmtc.tagger import Tagger

    if rule not in RULES:
        raise XmtcError(f"--rule {rule} is not known; expected one of {', '.join(RULES)}.")
    run = make_run(threads, quiet, device=device, log_json=log_json)
    model_folder.check_target(output)
    taggers = [Tagger.load(model) for model in models]
    source = None
    if valid is not None:
        source = open_corpus_input(valid, reading, get_saved_reading(taggers[0]), quiet=quiet)
    documents = None if source is None else list(source)
    combined = combine_taggers(taggers, rule, documents, run)
    combined.save(output)
    if source is not None:
        report_rejects(source)
    if not quiet:
        scores = combined.about["scores"]
        echo(f"Scores are {scores['are']}: {scores['because']}.", err=True)
        summary = f"{len(models)} models with {combined.about['n_labels']:,} labels"
        echo(f"{output}: {summary}. Next: xmtc evaluate {output} TEST-CORPUS", err=True)

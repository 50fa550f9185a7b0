"""xmtc calibrate: probabilities instead of raw scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.options import (
    CorpusOptions,
    DeviceOption,
    ModelOutputOption,
    ModelPath,
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
def calibrate(
    model: ModelPath,
    valid: Annotated[
        str,
        typer.Argument(
            metavar="CORPUS", help="Labelled documents that the model was not trained on, at least 100 of them."
        ),
    ],
    output: ModelOutputOption = None,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
) -> None:
    """Calibrate the scores of a model as probabilities. The ranking of labels does not change.

    Changes MODEL in place unless -o is given.
    """
    from xmtc.model_folder import check_target, read_stamp
    from xmtc.scores.calibration import calibrate_tagger
    from xmtc.tagger import Tagger

    run = make_run(threads, quiet, device=device)
    target = Path(model) if output is None else output
    check_target(target)
    stamp = read_stamp(model)
    tagger = Tagger.load(model)
    source = open_corpus_input(valid, reading, get_saved_reading(tagger), quiet=quiet)
    calibrated = calibrate_tagger(tagger, source, run)
    calibrated.save(target, expected_stamp=stamp if output is None else ())
    report_rejects(source)
    if tagger.decision is not None:
        echo(
            f"The thresholds of the model were tuned on other scores and are removed; tune them again with "
            f"`xmtc thresholds {target} CORPUS`.",
            err=True,
        )
    if not quiet:
        echo(f"{target}: {calibrated.about['scores']['because']}. Next: xmtc evaluate {target} CORPUS", err=True)

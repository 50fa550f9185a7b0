"""xmtc calibrate: what the scores of a trained model mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.options import (
    Device,
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
from xmtc.cli.streams import echo


@reads_corpus()
def calibrate(
    model: ModelPath,
    valid: Annotated[
        str, typer.Argument(metavar="VALID", help="corpus that the model was not trained on, at least 100 documents")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="model folder to write (MODEL itself is replaced)")
    ] = None,
    threads: Threads = 0,
    device: Device = "auto",
    reading: Reading = Reading(),
    quiet: Quiet = False,
) -> None:
    """Make probabilities of a model's scores, by documents that it was not trained on. Its ranking stays."""
    from xmtc import model_folder as store
    from xmtc.scores.calibration import calibrated
    from xmtc.tagger import Tagger

    run = make_run(threads, quiet, device=device)
    target = Path(model) if output is None else output
    store.check_target(target)
    opened = store.read_stamp(model)
    tagger = Tagger.load(model)
    source = open_input(valid, reading, remembered_by(tagger), quiet=quiet)
    found = calibrated(tagger, source, run)
    found.save(target, over=opened if output is None else ())
    report_rejects(source)
    if tagger.decision is not None:
        echo(f"Its decision was learnt on other scores and is dropped; xmtc thresholds {target} VALID.", err=True)
    if not quiet:
        echo(f"{target}: {found.about['scores']['because']}. Next: xmtc evaluate {target} TEST-CORPUS", err=True)

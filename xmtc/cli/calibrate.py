"""xmtc calibrate: what the scores of a trained model mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.options import (
    CorpusOptions,
    DeviceOption,
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
        str, typer.Argument(metavar="VALID", help="corpus that the model was not trained on, at least 100 documents")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="model folder to write (MODEL itself is replaced)")
    ] = None,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
) -> None:
    """Make probabilities of a model's scores, by documents that it was not trained on. Its ranking stays."""
    from xmtc import model_folder as store
    from xmtc.scores.calibration import calibrate_tagger
    from xmtc.tagger import Tagger

    run = make_run(threads, quiet, device=device)
    target = Path(model) if output is None else output
    store.check_target(target)
    opened = store.read_stamp(model)
    tagger = Tagger.load(model)
    source = open_corpus_input(valid, reading, get_saved_reading(tagger), quiet=quiet)
    found = calibrate_tagger(tagger, source, run)
    found.save(target, expected_stamp=opened if output is None else ())
    report_rejects(source)
    if tagger.decision is not None:
        echo(f"Its decision was learnt on other scores and is dropped; xmtc thresholds {target} VALID.", err=True)
    if not quiet:
        echo(f"{target}: {found.about['scores']['because']}. Next: xmtc evaluate {target} TEST-CORPUS", err=True)

"""xmtc combine: models that were trained apart, made one."""

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
    models: Annotated[list[str], typer.Argument(metavar="MODEL MODEL…", help="model folders, at least two")],
    output: Annotated[Path, typer.Option("-o", "--output", help="model folder to write; a model there is replaced")],
    rule: Annotated[str, typer.Option(help="noisy-or: one that is sure is enough; mean: of all scores")] = "noisy-or",
    valid: Annotated[
        str | None, typer.Option(help="corpus that none was trained on, to make a probability of the score")
    ] = None,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Combine trained models into one, which is used like any other."""
    from xmtc import model_folder as store
    from xmtc.analysis.combine import combine as made_one
    from xmtc.errors import XmtcError
    from xmtc.methods.ensemble.combination_rules import RULES
    from xmtc.tagger import Tagger

    if rule not in RULES:
        raise XmtcError(f"--rule {rule} is not known; expected one of {', '.join(RULES)}.")
    run = make_run(threads, quiet, device=device, log_json=log_json)
    store.check_target(output)
    taggers = [Tagger.load(model) for model in models]
    source = None
    if valid is not None:
        source = open_corpus_input(valid, reading, get_saved_reading(taggers[0]), quiet=quiet)
    documents = None if source is None else list(source)
    combined = made_one(taggers, rule, documents, run)
    combined.save(output)
    if source is not None:
        report_rejects(source)
    if not quiet:
        found = f"{len(models)} models with {combined.about['n_labels']:,} labels"
        echo(f"{output}: {found}. Next: xmtc evaluate {output} TEST-CORPUS", err=True)

"""xmtc compare: two models on the same documents."""

from __future__ import annotations

from typing import Annotated

import typer

from xmtc.cli.options import (
    CorpusPath,
    Device,
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

METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
TOP = (1, 2, 3, 4, 5)


@reads_corpus()
def compare(
    one: ModelPath,
    other: ModelPath,
    corpus: CorpusPath,
    json: Annotated[bool, typer.Option("--json", help="print a JSON object of fractions")] = False,
    threads: Threads = 0,
    device: Device = "auto",
    reading: Reading = Reading(),
    quiet: Quiet = False,
    log_json: LogJson = None,
) -> None:
    """Print metrics of two models on a labelled corpus, and how many of their best labels are the same, in percent."""
    from json import dumps

    from xmtc.evaluation.overlap import overlap, renumbered
    from xmtc.tagger import Tagger

    taggers = [Tagger.load(one), Tagger.load(other)]
    source = open_input(corpus, reading, remembered_by(taggers[0]), quiet=quiet)
    run = make_run(threads, quiet, device=device, log_json=log_json)
    documents = list(source)  # both models read them
    answers = [tagger.rank_labelled(documents, max(TOP), run) for tagger in taggers]
    measured = [tagger.measure(*answer, METRICS) for tagger, answer in zip(taggers, answers, strict=True)]
    (ours, _), (theirs, _) = answers
    theirs = renumbered(theirs, taggers[1].labels, taggers[0].labels)
    shared = {f"top{k}": overlap(ours, theirs, k) for k in TOP}
    typer.echo(dumps({"models": measured, "overlap": shared}) if json else table([one, other], measured, shared))
    report_rejects(source)


def table(names: list[str], measured: list[dict[str, float]], shared: dict[str, float]) -> str:
    """A line for each model, in percent, and one for what their best labels share."""
    rows = list(zip([*names, "overlap"], [*measured, shared], strict=True))
    width = max(len(name) for name, _ in rows)
    cells = [[f"{metric} {100 * value:6.2f}" for metric, value in values.items()] for _, values in rows]
    return "\n".join("   ".join([f"{name:{width}}", *line]) for (name, _), line in zip(rows, cells, strict=True))

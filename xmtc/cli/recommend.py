"""xmtc recommend: which method to train on a corpus, within a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    CorpusPath,
    Device,
    Quiet,
    Reading,
    Threads,
    as_words,
    budget_seconds,
    machine,
    open_input,
    reads_corpus,
    report_rejects,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.recommend.advice import Advice, Expected


@reads_corpus()
def recommend(
    corpus: CorpusPath,
    budget: Annotated[
        str, typer.Option(help="time that the training may take: 90s, 10m, 2h; trying takes half")
    ] = "10m",
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="methods to try, instead of the usual ones")
    ] = None,
    test: Annotated[str | None, typer.Option(help="documents to measure on (up to 2,000 of CORPUS, held out)")] = None,
    work: Annotated[Path | None, typer.Option(help="folder that keeps finished trials, to go on from")] = None,
    json: Annotated[bool, typer.Option("--json", help="print a JSON object, with fractions")] = False,
    threads: Threads = 0,
    device: Device = "auto",
    reading: Reading = Reading(),
    quiet: Quiet = False,
) -> None:
    """Try methods on samples of a corpus, and say which to train within a time, how good it will be, and how."""
    import tempfile
    from contextlib import nullcontext
    from dataclasses import replace

    from xmtc.analysis.compare.runs import claim
    from xmtc.analysis.compare.specs import specs
    from xmtc.analysis.recommend.advice import advise, candidates
    from xmtc.analysis.recommend.samples import samples
    from xmtc.core.run import Run
    from xmtc.features import COLUMNS, TEXTS

    seconds = budget_seconds(budget)
    source = open_input(corpus, reading, quiet=True)
    content = COLUMNS if source.holds_features else TEXTS
    wanted = candidates(content) if methods is None else specs([methods], [], content)
    measured = None if test is None else open_input(test, replace(reading, rejects=None), quiet=True)
    with tempfile.TemporaryDirectory(prefix="xmtc-recommend-") if work is None else nullcontext(str(work)) as folder:
        if work is not None:
            claim(work)
        tell = (lambda sentence: None) if quiet else say
        in_files = samples(source, measured, Path(folder), machine(threads, device), run=Run(threads=threads))
        found = advise(in_files, wanted, seconds, tell)
    for each in filter(None, (source, measured)):
        report_rejects(each)
    options = [*as_words(reading), *machine(threads, device)]
    echo(as_json(found, corpus, options) if json else told(found, corpus, options))


def say(sentence: str) -> None:
    from xmtc.errors import escape_controls

    echo(escape_controls(sentence), err=True)


def command(chosen: Expected, corpus: str, options: list[str]) -> str:
    import shlex

    return shlex.join(["xmtc", "train", corpus, *chosen.spec.words(), "-o", "MODEL", *options])


def as_json(found: Advice, corpus: str, options: list[str]) -> str:
    from dataclasses import asdict
    from json import dumps

    def described(each: Expected) -> dict[str, object]:
        return {name: value for name, value in asdict(each).items() if name != "spec"}

    about = {"documents": found.n_docs, "measured on": found.n_held_out, "budget_s": found.budget}
    chosen = described(found.chosen) | {"command": command(found.chosen, corpus, options)}
    rest = {"expected": [described(each) for each in found.expected], "failed": found.failed}
    return dumps({**about, "recommended": chosen, **rest}, indent=1)


def told(found: Advice, corpus: str, options: list[str]) -> str:
    """A table of what was tried, and a sentence with the command."""
    chosen, sizes = found.chosen, sorted({size for each in found.expected for size in each.tried})
    heads = ["nDCG@5 after", *(f"{size:,}" for size in sizes), f"all {found.n_docs:,}", "time", ""]
    rows = [heads]
    for each in found.expected:
        values = [f"{100 * each.tried[size]:.2f}" if size in each.tried else "" for size in sizes]
        remark = "" if each.fits else "too long" if each.seconds > found.budget else "no gain"
        rows.append([each.name, *values, f"{100 * each.metrics['nDCG@5']:.2f}", duration(each.seconds), remark])
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = [
        "  ".join(
            [f"{row[0]:{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    lines += [f"{name} failed: {why}" for name, why in found.failed.items()]
    metrics = ", ".join(f"{name} {100 * value:.1f}" for name, value in chosen.metrics.items())
    fits = "" if chosen.fits else f"Nothing is expected to fit into {duration(found.budget)}; the quickest is this. "
    sentence = f"{fits}Train {chosen.name}: expected {metrics}, in about {duration(chosen.seconds)}."
    return "\n".join(line.rstrip() for line in [*lines, "", sentence, "", command(chosen, corpus, options)])


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

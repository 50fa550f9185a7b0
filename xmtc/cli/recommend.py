"""xmtc recommend: which method to train on a corpus, within a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    CorpusOptions,
    CorpusPath,
    DeviceOption,
    QuietOption,
    ThreadsOption,
    format_corpus_options,
    format_machine_options,
    open_corpus_input,
    parse_time_budget,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.recommend.recommendation import ExpectedResult, Recommendation


@with_corpus_options()
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
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
) -> None:
    """Try methods on samples of a corpus, and say which to train within a time, how good it will be, and how."""
    import tempfile
    from contextlib import nullcontext
    from dataclasses import replace

    from xmtc.analysis.method_specs import parse_specs
    from xmtc.analysis.recommend.recommendation import list_candidate_methods, recommend_method
    from xmtc.analysis.recommend.samples import make_samples
    from xmtc.analysis.trials import claim_work_folder
    from xmtc.core.run import Run
    from xmtc.features import FEATURES, TEXTS

    seconds = parse_time_budget(budget)
    source = open_corpus_input(corpus, reading, quiet=True)
    content = FEATURES if source.has_features else TEXTS
    wanted = list_candidate_methods(content) if methods is None else parse_specs([methods], [], content)
    measured = None if test is None else open_corpus_input(test, replace(reading, rejects=None), quiet=True)
    with tempfile.TemporaryDirectory(prefix="xmtc-recommend-") if work is None else nullcontext(str(work)) as folder:
        if work is not None:
            claim_work_folder(work)
        tell = (lambda sentence: None) if quiet else print_status
        in_files = make_samples(
            source, measured, Path(folder), format_machine_options(threads, device), run=Run(threads=threads)
        )
        found = recommend_method(in_files, wanted, seconds, tell)
    for each in filter(None, (source, measured)):
        report_rejects(each)
    options = [*format_corpus_options(reading), *format_machine_options(threads, device)]
    echo(advice_as_json(found, corpus, options) if json else format_advice(found, corpus, options))


def print_status(sentence: str) -> None:
    from xmtc.errors import escape_controls

    echo(escape_controls(sentence), err=True)


def format_train_command(chosen: ExpectedResult, corpus: str, options: list[str]) -> str:
    import shlex

    return shlex.join(["xmtc", "train", corpus, *chosen.spec.as_arguments(), "-o", "MODEL", *options])


def advice_as_json(found: Recommendation, corpus: str, options: list[str]) -> str:
    from dataclasses import asdict
    from json import dumps

    def described(each: ExpectedResult) -> dict[str, object]:
        return {name: value for name, value in asdict(each).items() if name != "spec"}

    about = {"documents": found.n_docs, "measured on": found.n_held_out, "budget_s": found.budget}
    chosen = described(found.chosen) | {"command": format_train_command(found.chosen, corpus, options)}
    rest = {"expected": [described(each) for each in found.expected], "failed": found.failed}
    return dumps({**about, "recommended": chosen, **rest}, indent=1)


def format_advice(found: Recommendation, corpus: str, options: list[str]) -> str:
    """A table of what was tried, and a sentence with the command."""
    chosen, sizes = found.chosen, sorted({size for each in found.expected for size in each.tried})
    heads = ["nDCG@5 after", *(f"{size:,}" for size in sizes), f"all {found.n_docs:,}", "time", ""]
    rows = [heads]
    for each in found.expected:
        values = [f"{100 * each.tried[size]:.2f}" if size in each.tried else "" for size in sizes]
        remark = "" if each.fits else "too long" if each.seconds > found.budget else "no gain"
        rows.append([each.name, *values, f"{100 * each.metrics['nDCG@5']:.2f}", format_duration(each.seconds), remark])
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = [
        "  ".join(
            [f"{row[0]:{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    lines += [f"{name} failed: {why}" for name, why in found.failed.items()]
    metrics = ", ".join(f"{name} {100 * value:.1f}" for name, value in chosen.metrics.items())
    fits = (
        ""
        if chosen.fits
        else f"Nothing is expected to fit into {format_duration(found.budget)}; the quickest is this. "
    )
    sentence = f"{fits}Train {chosen.name}: expected {metrics}, in about {format_duration(chosen.seconds)}."
    return "\n".join(
        line.rstrip() for line in [*lines, "", sentence, "", format_train_command(chosen, corpus, options)]
    )


def format_duration(seconds: float) -> str:
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

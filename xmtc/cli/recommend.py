"""xmtc recommend: choose a method for a corpus within a time limit."""

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
    make_run,
    open_corpus_input,
    parse_time_limit,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.recommend.recommendation import ExpectedResult, Recommendation
    from xmtc.core.run import Run
    from xmtc.data.corpus import Corpus


@with_corpus_options()
def recommend(
    corpus: CorpusPath,
    time_limit: Annotated[
        str,
        typer.Option(metavar="TIME", help="Time limit of the final training (90s, 10m, 2h); the trials take half."),
    ] = "10m",
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Methods to try instead of the default ones.")
    ] = None,
    vocab: Annotated[
        str | None,
        typer.Option(
            metavar="VOCAB",
            help="Vocabulary of the labels: a folder of `xmtc vocab import`, a SKOS file or a table; lexical is also "
            "tried, alone and in a consensus.",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(metavar="CORPUS", help="Corpus for the evaluation instead of up to 2,000 held-out documents."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Checkpoint directory; an interrupted command resumes from its trials."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the plan of `xmtc train -m auto` for the time limit instead.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel="Output")] = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
) -> None:
    """Try methods on samples of a corpus and print the best one within a time limit, with its training command."""
    import tempfile
    from contextlib import nullcontext
    from dataclasses import replace

    from xmtc.analysis.method_specs import parse_specs
    from xmtc.analysis.recommend.recommendation import list_candidate_methods, recommend_method, set_vocabulary
    from xmtc.analysis.recommend.samples import make_samples
    from xmtc.analysis.trials import claim_work_folder
    from xmtc.cli.vocab import open_vocabulary
    from xmtc.features import FEATURES, TEXTS

    budget = parse_time_limit(time_limit)
    source = open_corpus_input(corpus, reading, quiet=True)
    if plan:
        echo(format_plan(source, corpus, budget, make_run(threads, quiet, device=device), has_json=json))
        return
    content = FEATURES if source.has_features else TEXTS
    if methods is None:
        specs = list_candidate_methods(content, has_vocabulary=vocab is not None)
    else:
        specs = parse_specs(methods.split(","), [], content)
    if vocab is not None:
        open_vocabulary(vocab)  # refuses a wrong one before the trials
        specs = [set_vocabulary(spec, vocab) for spec in specs]
    test_corpus = None if test is None else open_corpus_input(test, replace(reading, rejects=None), quiet=True)
    temporary = tempfile.TemporaryDirectory(prefix="xmtc-recommend-")
    with temporary if checkpoint is None else nullcontext(str(checkpoint)) as folder:
        if checkpoint is not None:
            claim_work_folder(checkpoint)
        samples = make_samples(source, test_corpus, Path(folder), threads=threads, device=device)
        result = recommend_method(samples, specs, budget, (lambda sentence: None) if quiet else print_status)
    for opened in filter(None, (source, test_corpus)):
        report_rejects(opened)
    options = [*format_corpus_options(reading), *format_machine_options(threads, device)]
    options += [] if vocab is None else ["--vocab", vocab]
    echo((format_json if json else format_recommendation)(result, corpus, options))


def format_plan(source: Corpus, corpus: str, budget: float, run: Run, *, has_json: bool) -> str:
    """Return the plan of method auto for a corpus: its training command and the reason."""
    from json import dumps

    from xmtc.cli.train import build_pipeline, describe_plan

    plan = build_pipeline("auto", [f"minutes={budget / 60}"], source).with_plan(source, run).plan
    assert plan is not None
    return dumps(plan.as_json(), indent=1) if has_json else describe_plan(plan, [corpus])


def print_status(sentence: str) -> None:
    from xmtc.errors import escape_controls

    echo(escape_controls(sentence), err=True)


def format_train_command(chosen: ExpectedResult, corpus: str, options: list[str]) -> str:
    import shlex
    from dataclasses import replace

    from xmtc.analysis.recommend.recommendation import is_vocabulary_parameter

    spec = chosen.spec
    if "--vocab" in options:  # which `xmtc train` passes to the methods that match label names
        vocabulary = options[options.index("--vocab") + 1]
        kept = [(n, value) for n, value in spec.parameters if not (is_vocabulary_parameter(n) and value == vocabulary)]
        spec = replace(spec, parameters=tuple(kept))
    return shlex.join(["xmtc", "train", corpus, *spec.as_arguments(), "-o", "MODEL", *options])


def format_json(result: Recommendation, corpus: str, options: list[str]) -> str:
    from dataclasses import asdict
    from json import dumps

    def describe(expected: ExpectedResult) -> dict[str, object]:
        return {name: value for name, value in asdict(expected).items() if name != "spec"}

    about = {"documents": result.n_docs, "measured on": result.n_held_out, "budget_s": result.budget}
    chosen = describe(result.chosen) | {"command": format_train_command(result.chosen, corpus, options)}
    rest = {"expected": [describe(expected) for expected in result.expected], "failed": result.failed}
    rest["not finished"] = result.unfinished
    return dumps({**about, "recommended": chosen, **rest}, indent=1)


def format_recommendation(result: Recommendation, corpus: str, options: list[str]) -> str:
    """Return a table of the trials, the expected result of the chosen method and its training command."""
    chosen = result.chosen
    metrics = ", ".join(f"{name} {100 * value:.1f}" for name, value in chosen.metrics.items())
    warning = "" if chosen.fits else f"No method is expected to finish in {format_duration(result.budget)}. "
    sentence = f"{warning}Train {chosen.name}: expected {metrics}, in about {format_duration(chosen.seconds)}."
    failures = [f"{name} failed: {reason}" for name, reason in result.failed.items()]
    unfinished = [
        f"{name} did not finish {reason}; a longer --time-limit or an idle machine may help."
        for name, reason in result.unfinished.items()
    ]
    lines = [
        *format_trial_table(result),
        *failures,
        *unfinished,
        "",
        sentence,
        "",
        format_train_command(chosen, corpus, options),
    ]
    return "\n".join(line.rstrip() for line in lines)


def format_trial_table(result: Recommendation) -> list[str]:
    sizes = sorted({size for expected in result.expected for size in expected.tried})
    rows = [["nDCG@5 after", *(f"{size:,}" for size in sizes), f"all {result.n_docs:,}", "time", ""]]
    for expected in result.expected:
        values = [f"{100 * expected.tried[size]:.2f}" if size in expected.tried else "" for size in sizes]
        remark = "" if expected.fits else "too long" if expected.seconds > result.budget else "no gain"
        final = f"{100 * expected.metrics['nDCG@5']:.2f}"
        rows.append([expected.name, *values, final, format_duration(expected.seconds), remark])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, *cells in rows:
        aligned = [f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([f"{name:{widths[0]}}", *aligned]))
    return lines


def format_duration(seconds: float) -> str:
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

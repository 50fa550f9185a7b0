"""xmtc drift: differences between new texts and held-out documents of the training."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.options import (
    CorpusOptions,
    DeviceOption,
    JsonOption,
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

if TYPE_CHECKING:
    from xmtc.scores.drift import DriftComparison, DriftReport
    from xmtc.tagger import Tagger


@with_corpus_options("labels", "separator")  # accepted as by `evaluate`, but not used
def drift(
    model: ModelPath,
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="New texts; labels are not read.")],
    json: JsonOption = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
) -> None:
    """Compare new texts with held-out documents of the training: words, scores, labels and estimated accuracy."""
    from json import dumps

    from xmtc.tagger import Tagger

    tagger = Tagger.load(model)
    tagger.require_reference()
    source = open_corpus_input(corpus, reading, get_saved_reading(tagger), should_read_labels=False, quiet=quiet)
    report = tagger.measure_drift(source, make_run(threads, quiet, device=device))
    echo(dumps(report_as_json(report, tagger)) if json else format_report(report, tagger))
    report_rejects(source)


def report_as_json(report: DriftReport, tagger: Tagger) -> dict[str, Any]:
    values = asdict(report)
    for name in ("unknown_words", "scores", "label_distance"):
        comparison = getattr(report, name)
        values[name] = None if comparison is None else comparison._asdict()
    values["accuracy"] = {name: estimate._asdict() for name, estimate in report.accuracy.items()}
    values["shifted_labels"] = [
        shift._asdict() | {"label": tagger.labels[shift.label]} for shift in report.shifted_labels
    ]
    return values | {"drift": list(report.warnings)}


def format_report(report: DriftReport, tagger: Tagger) -> str:
    """Return the comparisons as text."""
    from xmtc.errors import escape_controls

    lines = [f"{report.n_docs:,} new texts compared with {report.n_reference:,} held-out documents of the training:"]
    if report.unknown_words is not None:
        lines += [format_comparison("unknown words, %", report.unknown_words)]
    lines += [
        format_comparison("score of the first label, %", report.scores),
        format_comparison("distance of predicted labels, %", report.label_distance),
    ]
    for name, accuracy in report.accuracy.items():
        interval = f"{100 * accuracy.low:.1f} to {100 * accuracy.high:.1f}"
        lines += [
            f"{f'estimated {name}, %':32} {100 * accuracy.reference:6.1f} -> {100 * accuracy.new:6.1f}  ({interval})"
        ]
    if report.label_distance.is_significant:
        lines += ["Labels whose share of the predictions changed most, in percent:"]
        for shift in report.shifted_labels:
            name = tagger.label_name(tagger.labels[shift.label]) or tagger.labels[shift.label]
            lines += [f"  {100 * shift.reference:6.2f} -> {100 * shift.new:6.2f}  {escape_controls(name)}"]
    changed = f"Drift: {', '.join(report.warnings)}." if report.warnings else "No drift was found."
    return "\n".join([*lines, changed])


def format_comparison(name: str, comparison: DriftComparison) -> str:
    p_value = "p < 0.001" if comparison.p_value < 0.001 else f"p = {comparison.p_value:.3f}"
    return f"{name:32} {100 * comparison.reference:6.1f} -> {100 * comparison.new:6.1f}  ({p_value})"

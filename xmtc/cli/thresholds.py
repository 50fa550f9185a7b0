"""xmtc thresholds: decide how many of the ranked labels a document gets, and keep that with the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    AlwaysOption,
    CorpusOptions,
    DeviceOption,
    LogJsonOption,
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
    from xmtc.scores.tagger_thresholds import TunedTagger

MIN_RELIABLE_DOCUMENTS = 100  # documents: of fewer, figures on the documents that taught say little
METRIC_AVERAGES = {
    "micro": "micro",
    "macro": "macro",
    "example": "by_document",
}  # as metrics are called, and in figures


@with_corpus_options()
def thresholds(
    model: ModelPath,
    valid: Annotated[
        str | None, typer.Argument(metavar="VALID", help="labelled documents that the model was not trained on")
    ] = None,
    goal: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="GOAL",
            help="what is wanted: f1 (mean over documents), micro-f1, macro-f1, precision=0.9, recall=0.8, tags=5",
        ),
    ] = "f1",
    by: Annotated[
        str | None,
        typer.Option(
            metavar="all|label|document",
            help="one threshold for all labels, one for each, or by expected F1 a number for each document "
            "(what is best on halves of VALID)",
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="take the model's decision away, instead")] = False,
    json: Annotated[bool, typer.Option("--json", help="print a JSON object of fractions")] = False,
    always: AlwaysOption = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Learn which of the ranked labels are given, print what that reaches, and keep it with the model, for --decide."""
    from json import dumps

    from xmtc.errors import XmtcError
    from xmtc.model_folder import check_target, read_stamp
    from xmtc.scores import parse_goal
    from xmtc.scores.tagger_thresholds import tune_tagger_thresholds
    from xmtc.scores.threshold_tuning import list_scopes
    from xmtc.tagger import Tagger

    if clear == (valid is not None):
        found = "both VALID and --clear" if clear else "no documents"
        raise XmtcError(f"Found {found}; give VALID to learn a decision from, or --clear to take the model's away.")
    list_scopes(parse_goal(goal), by)  # refused before the work
    opened = read_stamp(model)
    tagger = Tagger.load(model)
    check_target(model)
    if valid is None:
        tagger.with_decision(None).save(model, expected_stamp=opened)
        echo(f"{model} has no decision any more.", err=True)
        return
    source = open_corpus_input(valid, reading, get_saved_reading(tagger), quiet=quiet)
    run = make_run(threads, quiet, device=device, log_json=log_json)
    lesson = tune_tagger_thresholds(tagger, source, goal, by, run, always=always)
    lesson.tagger.save(model, expected_stamp=opened)
    echo(dumps(tuning_as_json(lesson)) if json else format_tuning(lesson))
    if not quiet:
        echo(f"Kept in {model}: `xmtc predict {model} FILE --decide` gives these labels.", err=True)
    report_rejects(source)


def tuning_as_json(lesson: TunedTagger) -> dict:
    values = {
        f"{name}-{what}": value
        for name, field in METRIC_AVERAGES.items()
        for what, value in zip(("P", "R", "F1"), getattr(lesson.metrics, field), strict=True)
    }
    return (
        lesson.tagger.about["decision"]
        | {"tags": lesson.metrics.labels_per_document, "halves": lesson.half_split_scores}
        | values
    )


def format_tuning(lesson: TunedTagger) -> str:
    """What was decided, and the figures of the documents that it was learnt from."""
    decision, reached = lesson.decision, lesson.metrics
    lines = [
        f"For {decision.goal}, by {decision.by}: {decision}; {reached.labels_per_document:.1f} for a document on average."
    ]
    lines += [f"{'':8}      P       R      F1"]
    lines += [
        f"{name:8}" + "".join(f"{100 * each:7.2f} " for each in getattr(reached, field)).rstrip()
        for name, field in METRIC_AVERAGES.items()
    ]
    if lesson.half_split_scores:
        each = ", ".join(f"by {kind} {100 * value:.2f}" for kind, value in lesson.half_split_scores.items())
        lines += [f"Each half of the documents by what the other taught, {decision.goal}: {each}."]
    if lesson.true_labels.shape[0] < MIN_RELIABLE_DOCUMENTS:
        found = f"{lesson.true_labels.shape[0]} documents are few to learn a decision from"
        lines += [f"{found}: expect less of others than these figures say."]
    return "\n".join([*lines, *format_missed_goal(lesson)])


def format_missed_goal(lesson: TunedTagger) -> list[str]:
    """A sentence where no threshold serves a precision or a recall that is wanted."""
    name, _, wanted = lesson.decision.goal.partition("=")
    found = {"precision": lesson.metrics.micro[0], "recall": lesson.metrics.micro[1]}.get(name)
    if found is None or found >= float(wanted) - 1e-6:
        return []
    return [f"No threshold reaches a {name} of {wanted} on these documents: {found:.3g} is the nearest."]

"""xmtc thresholds: decide how many of the ranked labels a document gets, and keep that with the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    Always,
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
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.scores.tagger_thresholds import Lesson

FEW = 100  # documents: of fewer, figures on the documents that taught say little
AVERAGES = {"micro": "micro", "macro": "macro", "example": "by_document"}  # as metrics are called, and in figures


@reads_corpus()
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
    always: Always = False,
    threads: Threads = 0,
    device: Device = "auto",
    reading: Reading = Reading(),
    quiet: Quiet = False,
    log_json: LogJson = None,
) -> None:
    """Learn which of the ranked labels are given, print what that reaches, and keep it with the model, for --decide."""
    from json import dumps

    from xmtc.errors import XmtcError
    from xmtc.model_folder import check_target, read_stamp
    from xmtc.scores import parse_goal
    from xmtc.scores.tagger_thresholds import learn_decision
    from xmtc.scores.threshold_tuning import kinds_for
    from xmtc.tagger import Tagger

    if clear == (valid is not None):
        found = "both VALID and --clear" if clear else "no documents"
        raise XmtcError(f"Found {found}; give VALID to learn a decision from, or --clear to take the model's away.")
    kinds_for(parse_goal(goal), by)  # refused before the work
    opened = read_stamp(model)
    tagger = Tagger.load(model)
    check_target(model)
    if valid is None:
        tagger.with_decision(None).save(model, over=opened)
        echo(f"{model} has no decision any more.", err=True)
        return
    source = open_input(valid, reading, remembered_by(tagger), quiet=quiet)
    run = make_run(threads, quiet, device=device, log_json=log_json)
    lesson = learn_decision(tagger, source, goal, by, run, always=always)
    lesson.tagger.save(model, over=opened)
    echo(dumps(as_record(lesson)) if json else as_table(lesson))
    if not quiet:
        echo(f"Kept in {model}: `xmtc predict {model} FILE --decide` gives these labels.", err=True)
    report_rejects(source)


def as_record(lesson: Lesson) -> dict:
    values = {
        f"{name}-{what}": value
        for name, field in AVERAGES.items()
        for what, value in zip(("P", "R", "F1"), getattr(lesson.reached, field), strict=True)
    }
    return lesson.tagger.about["decision"] | {"tags": lesson.reached.tags, "halves": lesson.halves} | values


def as_table(lesson: Lesson) -> str:
    """What was decided, and the figures of the documents that it was learnt from."""
    decision, reached = lesson.decision, lesson.reached
    lines = [f"For {decision.goal}, by {decision.by}: {decision}; {reached.tags:.1f} for a document on average."]
    lines += [f"{'':8}      P       R      F1"]
    lines += [
        f"{name:8}" + "".join(f"{100 * each:7.2f} " for each in getattr(reached, field)).rstrip()
        for name, field in AVERAGES.items()
    ]
    if lesson.halves:
        each = ", ".join(f"by {kind} {100 * value:.2f}" for kind, value in lesson.halves.items())
        lines += [f"Each half of the documents by what the other taught, {decision.goal}: {each}."]
    if lesson.truth.shape[0] < FEW:
        found = f"{lesson.truth.shape[0]} documents are few to learn a decision from"
        lines += [f"{found}: expect less of others than these figures say."]
    return "\n".join([*lines, *unreached(lesson)])


def unreached(lesson: Lesson) -> list[str]:
    """A sentence where no threshold serves a precision or a recall that is wanted."""
    name, _, wanted = lesson.decision.goal.partition("=")
    found = {"precision": lesson.reached.micro[0], "recall": lesson.reached.micro[1]}.get(name)
    if found is None or found >= float(wanted) - 1e-6:
        return []
    return [f"No threshold reaches a {name} of {wanted} on these documents: {found:.3g} is the nearest."]

"""xmtc thresholds: thresholds that decide how many of the ranked labels a document gets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    AlwaysOption,
    CorpusOptions,
    DeviceOption,
    JsonOption,
    LogJsonOption,
    ModelOutputOption,
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

MIN_RELIABLE_DOCUMENTS = 100  # with fewer, metrics of cross-validation are uncertain
GOAL_TOLERANCE = 0.005  # of a cross-validated precision or recall below the goal, which is not worth a warning
METRIC_AVERAGES = {"micro": "micro", "macro": "macro", "example": "by_document"}  # name shown -> field of the metrics


@with_corpus_options()
def thresholds(
    model: ModelPath,
    valid: Annotated[
        str | None,
        typer.Argument(metavar="CORPUS", help="Labelled documents that the model was not trained on."),
    ] = None,
    goal: Annotated[
        str,
        typer.Option(
            "--goal",
            metavar="GOAL",
            help="Metric to optimise, f1 (mean over documents), micro-f1 or macro-f1; or a value to reach: "
            "precision=0.9, recall=0.8, tags=5 (labels per document).",
        ),
    ] = "f1",
    by: Annotated[
        str | None,
        typer.Option(
            "--per",
            metavar="all|label|document",
            help="One threshold for all labels, one per label, or the number of labels with the best expected F1 per "
            "document; by default the best of them on halves of CORPUS.",
        ),
    ] = None,
    publish: Annotated[
        str | None,
        typer.Option(
            metavar="PROMISE",
            help="Mean precision, recall or f1 of documents that need no review, such as precision=0.9; tested on half "
            "of CORPUS, which thresholds are not tuned on.",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            min=0.5, max=0.9999, metavar="FLOAT", show_default="0.95", help="Confidence in the promise of --publish."
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the thresholds of the model instead.")] = False,
    always: AlwaysOption = False,
    output: ModelOutputOption = None,
    json: JsonOption = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Tune the decision thresholds on labelled documents, and print their cross-validated metrics.

    `xmtc predict --threshold tuned` applies them. Changes MODEL in place unless -o is given.
    """
    from json import dumps

    from xmtc.errors import XmtcError
    from xmtc.model_folder import check_target, read_stamp
    from xmtc.scores import parse_goal
    from xmtc.scores.quality import DEFAULT_CONFIDENCE, parse_promise
    from xmtc.scores.tagger_thresholds import tune_tagger_thresholds
    from xmtc.scores.threshold_tuning import list_scopes
    from xmtc.tagger import Tagger

    if clear == (valid is not None):
        problem = "both CORPUS and --clear" if clear else "no documents"
        raise XmtcError(f"Found {problem}; give CORPUS to tune thresholds, or --clear to remove those of the model.")
    list_scopes(parse_goal(goal), by)  # raises before any work
    if publish is None and confidence is not None:
        raise XmtcError("--confidence is that of a promise; give --publish, such as --publish precision=0.9, too.")
    promise = None if publish is None else parse_promise(publish, confidence or DEFAULT_CONFIDENCE)
    target = Path(model) if output is None else output
    stamp = read_stamp(model)
    tagger = Tagger.load(model)
    check_target(target)
    expected_stamp = stamp if output is None else ()
    if valid is None:
        tagger.with_decision(None).save(target, expected_stamp=expected_stamp)
        echo(f"{target} has no tuned thresholds any more.", err=True)
        return
    source = open_corpus_input(valid, reading, get_saved_reading(tagger), quiet=quiet)
    run = make_run(threads, quiet, device=device, log_json=log_json)
    tuned = tune_tagger_thresholds(tagger, source, goal, by, run, always=always, promise=promise)
    tuned.tagger.save(target, expected_stamp=expected_stamp)
    echo(dumps(tuning_as_json(tuned)) if json else format_tuning(tuned))
    if not quiet:
        echo(f"Saved in {target}. Next: xmtc predict {target} FILE --threshold tuned", err=True)
    report_rejects(source)


def tuning_as_json(tuned: TunedTagger) -> dict:
    values = {
        f"{average}-{metric}": value
        for average, field in METRIC_AVERAGES.items()
        for metric, value in zip(("P", "R", "F1"), getattr(tuned.metrics, field), strict=True)
    }
    return (
        tuned.tagger.about["decision"]
        | {"tags": tuned.metrics.labels_per_document, "halves": tuned.half_split_scores}
        | values
    )


def format_tuning(tuned: TunedTagger) -> str:
    """Return the thresholds and their cross-validated metrics as text."""
    decision, metrics = tuned.decision, tuned.metrics
    lines = [
        f"Tuned for {decision.goal}, per {decision.by}: {decision}; {metrics.labels_per_document:.1f} labels per "
        "document on average.",
        f"Five-fold cross-validation on {tuned.true_labels.shape[0]:,} documents, in percent:",
        f"{'':8}      P       R      F1",
    ]
    for average, field in METRIC_AVERAGES.items():
        lines += [f"{average:8}" + "".join(f"{100 * value:7.2f} " for value in getattr(metrics, field)).rstrip()]
    if tuned.half_split_scores:
        scores = ", ".join(f"per {kind} {100 * value:.2f}" for kind, value in tuned.half_split_scores.items())
        lines += [f"{decision.goal} of two-fold cross-validation: {scores}."]
    n_docs = tuned.true_labels.shape[0]
    if n_docs < MIN_RELIABLE_DOCUMENTS:
        lines += [
            f"{n_docs} documents are few to tune thresholds on: values on other documents may differ much.",
        ]
    gate = [f"Gate: {gate}." for gate in decision.gate]
    return "\n".join([*lines, *format_missed_goal(tuned), *gate])


def format_missed_goal(tuned: TunedTagger) -> list[str]:
    """Return a sentence if the cross-validated precision or recall is below the goal."""
    name, _, target = tuned.decision.goal.partition("=")
    value = {"precision": tuned.metrics.micro[0], "recall": tuned.metrics.micro[1]}.get(name)
    if value is None or value >= float(target) - GOAL_TOLERANCE:
        return []
    return [f"The {name} of cross-validation is {value:.3g}, below the goal of {target}."]

"""xmtc evaluate: how good a model is on labelled documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    AlwaysOption,
    CorpusOptions,
    CorpusPath,
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
    from scipy.sparse import csr_array

    from xmtc.analysis.report.build import AssignedLabels
    from xmtc.core.predictions import Predictions
    from xmtc.data.corpus import Corpus
    from xmtc.labels.propensity import Propensity
    from xmtc.tagger import Tagger


@with_corpus_options()
def evaluate(
    model: ModelPath,
    corpus: CorpusPath,
    metrics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METRIC]…", help="such as P@1 nDCG@5 micro-F1@0.5, or micro-F1@decision, its own"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print a JSON object of fractions")] = False,
    propensity: Annotated[str, typer.Option(help="propensity model of PSP: default, amazon or wikipedia")] = "default",
    propensity_a: Annotated[float | None, typer.Option(help="its A, instead of the model's own")] = None,
    propensity_b: Annotated[float | None, typer.Option(help="its B, instead of the model's own")] = None,
    curve: Annotated[
        str | None, typer.Option(metavar="FILE", help="write P, R and F1 by threshold to a file (.csv, .svg), too")
    ] = None,
    per_label: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="table of each label's figures to write: csv, tsv, jsonl, xlsx, parquet"),
    ] = None,
    always: AlwaysOption = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Print metrics of a model on a labelled corpus, in percent."""
    from json import dumps

    from xmtc.analysis.report.build import assign_labels
    from xmtc.analysis.report.threshold_curve import check_curve_file
    from xmtc.evaluation import DECISION_METRICS, DEFAULT_METRICS, EVALUATION_DEPTH, has_decision_metric, max_k
    from xmtc.tagger import Tagger

    max_k(metrics or DEFAULT_METRICS)  # refused before the work
    weights = build_propensity(propensity, propensity_a, propensity_b)
    if curve is not None:
        check_curve_file(curve)
    tagger, run = Tagger.load(model), make_run(threads, quiet, device=device, log_json=log_json)
    names = metrics or (*DEFAULT_METRICS, *(DECISION_METRICS if tagger.decision is not None else ()))
    source = open_corpus_input(corpus, reading, get_saved_reading(tagger), quiet=quiet)
    if per_label is not None:
        check_table_file(per_label, source)
    data, truth, unseen = tagger.transform_labelled(source, run)
    predictions = tagger.ranked(data, max_k(names), run, tagger.allowed, always)
    given = tagger.given(data, run, always) if has_decision_metric(names) else None
    result = tagger.evaluate_predictions(predictions, truth, names, weights, unseen, given)
    if json:  # a group without labels has no value: nan, which JSON does not know
        echo(dumps({name: None if value != value else value for name, value in result.items()}))
    else:
        echo(format_metrics(result))
    if curve is not None or per_label is not None:  # apart: a search that is asked for more labels may look further
        deep = tagger.ranked(data, EVALUATION_DEPTH, run, tagger.allowed, always)
    if curve is not None:
        write_curve(curve, deep, truth)
    if per_label is not None:
        counted = assign_labels(tagger, data, deep, None, run, always)
        write_label_table(per_label, tagger, counted, truth, unseen)
    report_unknown_labels(truth, len(tagger.labels), corpus)
    report_documents_without_labels(predictions, corpus)
    report_rejects(source)


def check_table_file(path: str, source: Corpus) -> None:
    """Refuse, before the work, a file that could not or must not be written after it."""
    from xmtc.data.file_streams import check_output_path
    from xmtc.output import get_format_by_extension

    check_output_path(path)
    get_format_by_extension(path)
    source.check_not_overwritten(path)


def write_label_table(path: str, tagger: Tagger, given: AssignedLabels, truth: csr_array, unseen: list[str]) -> None:
    """The figures of each label, by the labels that a report counts as given."""
    from xmtc.analysis.report.files import iter_label_records, make_label_columns
    from xmtc.errors import escape_controls
    from xmtc.output import write_records

    write_records(path, make_label_columns(tagger), iter_label_records(tagger, given.labels, truth, unseen))
    echo(f"{escape_controls(path)} written: labels count as given {given.description}.", err=True)


def build_propensity(name: str, a: float | None, b: float | None) -> Propensity:
    """A propensity model by its name; constants on the command line replace its own."""
    from dataclasses import replace

    from xmtc.errors import XmtcError
    from xmtc.labels.propensity import PROPENSITIES

    if name not in PROPENSITIES:
        raise XmtcError(f"--propensity {name} is not known; expected one of {', '.join(PROPENSITIES)}.")
    constants = {"A": a, "B": b}
    return replace(PROPENSITIES[name], **{key: value for key, value in constants.items() if value is not None})


def write_curve(path: str, predictions: Predictions, truth: csr_array) -> None:
    """What labels reach that score at least a threshold, at many thresholds."""
    from xmtc.analysis.report.threshold_curve import as_csv, as_svg, check_curve_file, compute_threshold_curve
    from xmtc.data.file_streams import open_output
    from xmtc.evaluation import to_ranked_results

    rows = compute_threshold_curve(to_ranked_results(predictions, truth))
    text = as_csv(rows) if check_curve_file(path) == "csv" else as_svg(rows)
    with open_output(path) as stream:
        stream.write(text.encode())


def report_unknown_labels(truth: csr_array, n_known: int, corpus: str) -> None:
    """Say how much of the truth no answer could find, because training never saw those labels."""
    import numpy as np

    from xmtc.data.file_streams import display_name

    unknown = truth.indices[truth.indices >= n_known]
    if len(unknown):
        n_unknown, n_labels = len(np.unique(unknown)), len(np.unique(truth.indices))
        share = f"{100 * len(unknown) / truth.nnz:.1f} % of all assignments"
        echo(
            f"{n_unknown:,} of the {n_labels:,} labels in {display_name(corpus)} ({share}) are unknown to the model, "
            "and count as missed.",
            err=True,
        )


def report_documents_without_labels(predictions: Predictions, corpus: str) -> None:
    """Say how many documents got no label: as a rule, because the model knows no word of them."""
    from xmtc.core.predictions import NO_LABEL
    from xmtc.data.file_streams import display_name

    n = int((predictions.labels == NO_LABEL).all(axis=1).sum())
    if n:
        echo(
            f"{n:,} of the {predictions.n_docs:,} documents in {display_name(corpus)} get no label and count as "
            "missed, as a rule because the model knows no word of them; with --always it guesses.",
            err=True,
        )


def format_metrics(result: dict[str, float]) -> str:
    """Metrics in percent, those of one kind on one line."""
    lines: dict[str, list[str]] = {}
    for name, value in result.items():
        kind = name.partition("@")[0].partition("-")[0]  # micro-P, micro-R and micro-F1 are one
        lines.setdefault(kind, []).append(f"{name} {100 * value:6.2f}")
    return "\n".join("   ".join(cells) for cells in lines.values())

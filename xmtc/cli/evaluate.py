"""xmtc evaluate: metrics on labelled documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.help import OUTPUT
from xmtc.cli.options import (
    AlwaysOption,
    CorpusOptions,
    CorpusPath,
    DeviceOption,
    JsonOption,
    LogJsonOption,
    ModelPath,
    QuietOption,
    RerankOptions,
    ThreadsOption,
    get_saved_reading,
    make_run,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
    with_rerank_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scipy.sparse import csr_array

    from xmtc.analysis.report.build import AssignedLabels
    from xmtc.core.predictions import Predictions
    from xmtc.core.run import Run
    from xmtc.data.corpus import Corpus
    from xmtc.labels.propensity import Propensity
    from xmtc.reranking import Reranker
    from xmtc.tagger import LabelledData, Tagger


@with_corpus_options()
@with_rerank_options
def evaluate(
    model: ModelPath,
    corpus: CorpusPath,
    metrics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METRIC",
            help="Metrics, such as P@1 nDCG@5 micro-F1@0.5, or micro-F1@decision for the tuned thresholds.",
        ),
    ] = None,
    propensity: Annotated[
        str, typer.Option(metavar="NAME", help="Propensity model of PSP@k: default, amazon or wikipedia.")
    ] = "default",
    propensity_a: Annotated[float | None, typer.Option(help="Constant A of the propensity model.")] = None,
    propensity_b: Annotated[float | None, typer.Option(help="Constant B of the propensity model.")] = None,
    always: AlwaysOption = False,
    json: JsonOption = False,
    curve: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Precision, recall and F1 by threshold, to write to a .csv or .svg file.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    per_label: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Metrics per label, to write to a .csv, .tsv, .jsonl, .xlsx or .parquet file.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    trec: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX",
            help="Predictions and true labels, to write to PREFIX.run and PREFIX.qrels for trec_eval.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    reranking: RerankOptions = RerankOptions(),
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Print metrics of a model on a labelled corpus, in percent."""
    from json import dumps

    from xmtc.analysis.report.build import assign_labels
    from xmtc.evaluation import DECISION_METRICS, DEFAULT_METRICS, EVALUATION_DEPTH, max_k
    from xmtc.tagger import Tagger

    max_k(metrics or DEFAULT_METRICS)  # raises for an unknown metric before any work
    propensity_model = build_propensity(propensity, propensity_a, propensity_b)
    reranker, ranked = reranking.build(), None
    check_output_options(curve, per_label, trec, reranker is not None)
    tagger, run = Tagger.load(model), make_run(threads, quiet, device=device, log_json=log_json)
    has_decision = tagger.decision is not None and reranker is None
    names = metrics or (*DEFAULT_METRICS, *(DECISION_METRICS if has_decision else ()))
    source = open_corpus_input(corpus, reading, get_saved_reading(tagger), quiet=quiet)
    if per_label is not None:
        check_table_file(per_label, source)
    if reranker is None:
        labelled = tagger.transform_labelled(source, run)
        result = tagger.evaluate(labelled, names, propensity_model, run, always=always)
    else:
        depth = 0 if trec is None else EVALUATION_DEPTH
        labelled, ranked, result = evaluate_reranked(
            tagger, source, reranker, names, propensity_model, run, always, depth
        )
    if json:  # NaN, the value of a group without labels, is not valid JSON
        echo(dumps({name: None if value != value else value for name, value in result.items()}))
    else:
        echo(format_metrics(result))
    if curve is not None or per_label is not None or trec is not None:
        deep = ranked
        if deep is None:
            deep = tagger.predict(labelled.data, EVALUATION_DEPTH, run, always=always)
        if curve is not None:
            write_curve(curve, deep, labelled.Y)
        if per_label is not None:
            assigned = assign_labels(tagger, labelled.data, deep, None, run, always)
            write_label_table(per_label, tagger, assigned, labelled)
        if trec is not None:
            write_trec(trec, tagger, deep, labelled)
    report_unknown_labels(labelled.Y, len(tagger.labels), corpus)
    if not always:
        report_documents_without_known_words(tagger, labelled, corpus)
    report_rejects(source)


def evaluate_reranked(
    tagger: Tagger,
    source: Corpus,
    reranker: Reranker,
    names: Sequence[str],
    propensity: Propensity,
    run: Run,
    always: bool,
    depth: int,
) -> tuple[LabelledData, Predictions, dict[str, float]]:
    """Return the documents, their labels in the order of a language model (at least `depth`), and the metrics."""
    from xmtc.errors import XmtcError
    from xmtc.evaluation import has_decision_metric, max_k

    if has_decision_metric(names):
        raise XmtcError("Metrics at @decision are for the ranking of the model; leave them or --rerank out.")
    documents = list(source)
    labelled = tagger.transform_labelled(documents, run)
    k = min(max(max_k(names), reranker.n_candidates, depth), len(tagger.labels))
    predictions = tagger.predict(labelled.data, k, run, always=always)
    ranked = reranker.rerank(tagger, [document.text for document in documents], predictions)
    reranker.report_failures()
    result = tagger.evaluate_predictions(ranked, labelled.Y, names, propensity, labelled.unseen_labels)
    return labelled, ranked, result


def check_output_options(curve: str | None, per_label: str | None, trec: str | None, is_reranked: bool) -> None:
    """Raise XmtcError, before long work, if an output cannot be written."""
    from xmtc.analysis.report.threshold_curve import check_curve_file
    from xmtc.errors import XmtcError
    from xmtc.output.trec import check_trec_files

    if is_reranked and (curve is not None or per_label is not None):
        raise XmtcError("--curve and --per-label are for the scores of the model; leave them or --rerank out.")
    if curve is not None:
        check_curve_file(curve)
    if trec is not None:
        check_trec_files(trec)


def check_table_file(path: str, source: Corpus) -> None:
    """Raise XmtcError if the table cannot be written, or would replace the corpus."""
    from xmtc.data.file_streams import check_output_path
    from xmtc.output import get_format_by_extension

    check_output_path(path)
    get_format_by_extension(path)
    source.check_not_overwritten(path)


def write_label_table(path: str, tagger: Tagger, assigned: AssignedLabels, labelled: LabelledData) -> None:
    from xmtc.analysis.report.files import iter_label_records, make_label_columns
    from xmtc.errors import escape_controls
    from xmtc.output import write_records

    records = iter_label_records(tagger, assigned.labels, labelled.Y, labelled.unseen_labels)
    write_records(path, make_label_columns(tagger), records)
    echo(f"{escape_controls(path)} written. Labels are assigned {assigned.description}.", err=True)


def write_trec(prefix: str, tagger: Tagger, predictions: Predictions, labelled: LabelledData) -> None:
    """Write the predictions and the true labels for trec_eval and print the names of the files."""
    from xmtc.errors import escape_controls
    from xmtc.output.trec import write_trec_files

    labels = [*tagger.labels.words(), *labelled.unseen_labels]
    run, qrels = write_trec_files(prefix, predictions, labelled.Y, labels)
    echo(f"{escape_controls(run)} and {escape_controls(qrels)} written.", err=True)


def build_propensity(name: str, a: float | None, b: float | None) -> Propensity:
    """Return a propensity model by name, with constants of the command line instead of its own."""
    from dataclasses import replace

    from xmtc.errors import XmtcError
    from xmtc.labels.propensity import PROPENSITIES

    if name not in PROPENSITIES:
        raise XmtcError(f"--propensity {name} is unknown; expected one of {', '.join(PROPENSITIES)}.")
    constants = {"A": a, "B": b}
    return replace(PROPENSITIES[name], **{key: value for key, value in constants.items() if value is not None})


def write_curve(path: str, predictions: Predictions, truth: csr_array) -> None:
    """Write precision, recall and F1 at many thresholds."""
    from xmtc.analysis.report.threshold_curve import as_csv, as_svg, check_curve_file, compute_threshold_curve
    from xmtc.data.file_streams import open_output
    from xmtc.evaluation import to_ranked_results

    rows = compute_threshold_curve(to_ranked_results(predictions, truth))
    text = as_csv(rows) if check_curve_file(path) == "csv" else as_svg(rows)
    with open_output(path) as stream:
        stream.write(text.encode())


def report_unknown_labels(truth: csr_array, n_known: int, corpus: str) -> None:
    """Print how many true labels the model cannot predict, because training never saw them."""
    import numpy as np

    from xmtc.data.file_streams import display_name

    unknown = truth.indices[truth.indices >= n_known]
    if len(unknown):
        n_unknown, n_labels = len(np.unique(unknown)), len(np.unique(truth.indices))
        share = f"{100 * len(unknown) / truth.nnz:.1f} % of all assignments"
        echo(
            f"{n_unknown:,} of the {n_labels:,} labels in {display_name(corpus)} ({share}) are unknown to the model "
            "and count as missed.",
            err=True,
        )


def report_documents_without_known_words(tagger: Tagger, labelled: LabelledData, corpus: str) -> None:
    """Print how many documents get no label because the model knows none of their words."""
    from xmtc import features
    from xmtc.data.file_streams import display_name

    is_known = features.mark_known_documents(tagger.views, labelled.data)
    n_unknown = int((~is_known).sum())
    if n_unknown:
        echo(
            f"Documents without any known word in {display_name(corpus)}: {n_unknown:,} of {len(is_known):,}. They get "
            "no label and count as missed (see --always).",
            err=True,
        )


def format_metrics(result: dict[str, float]) -> str:
    """Return metrics in percent, one line per kind."""
    lines: dict[str, list[str]] = {}
    for name, value in result.items():
        kind = name.partition("@")[0].partition("-")[0]  # micro-P, micro-R and micro-F1 share a line
        lines.setdefault(kind, []).append(f"{name} {100 * value:6.2f}")
    return "\n".join("   ".join(cells) for cells in lines.values())

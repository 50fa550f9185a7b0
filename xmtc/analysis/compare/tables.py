"""Tables of a comparison, which the page and the Markdown file render."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isnan

from xmtc.analysis.compare.comparison import COMPARISON_METRICS, Comparison, ComparisonEntry
from xmtc.analysis.compare.ranking import MethodRanking
from xmtc.analysis.report.tables import ReportTable, TableCell, format_range
from xmtc.evaluation.significance import ConfidenceInterval

MAIN_METRIC = "nDCG@5"  # methods are sorted by it
DIFFERENCE_METRICS = ("P@1", "P@5", "nDCG@5", "PSP@5", "unseen@5")
MAX_ALL_PAIRS_METHODS = 12  # with more methods, only pairs with the best one are shown
MISSING_CELL = "–"


def format_percent(value: float | None, digits: int = 2) -> str:
    return MISSING_CELL if value is None or isnan(value) else f"{100 * value:.{digits}f}"


def format_signed_percent(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", "−")


def format_number(value: float | None, digits: int = 1) -> str:
    return MISSING_CELL if value is None else f"{value:.{digits}f}"


def format_probability(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def sort_entries(comparison: Comparison) -> list[ComparisonEntry]:
    """Return the entries, the best first and failed ones last."""
    return sorted(
        comparison.entries, key=lambda entry: -entry.metrics[MAIN_METRIC].mean if MAIN_METRIC in entry.metrics else 1
    )


def build_comparison_tables(comparison: Comparison, anchor_suffix: str = "") -> list[ReportTable]:
    """Return the tables of one corpus that have rows; the suffix keeps the anchors of several corpora apart."""
    builders = (
        build_metric_table,
        build_difference_table,
        build_cost_table,
        build_band_table,
        build_overlap_table,
        build_command_table,
    )
    tables = [build(comparison) for build in builders]
    return [replace(table, key=f"{table.key}{anchor_suffix}") for table in tables if table.rows]


def build_metric_table(comparison: Comparison) -> ReportTable:
    entries = sort_entries(comparison)
    has_failures = any(entry.failed for entry in entries)
    names = list_shown_metrics(comparison)
    rows: list[list[TableCell]] = []
    for entry in entries:
        main = entry.metrics.get(MAIN_METRIC)
        interval = MISSING_CELL if main is None else f"{format_percent(main.low)} to {format_percent(main.high)}"
        values = [format_percent(entry.metrics[name].mean) if name in entry.metrics else MISSING_CELL for name in names]
        rows.append([entry.name, *values, interval, *([entry.failed] if has_failures else [])])
    columns = ["", *names, f"{MAIN_METRIC}, 95 % interval", *(["failure"] if has_failures else [])]
    note = f"In percent, the best {MAIN_METRIC} first. The confidence interval is a bootstrap over documents."
    if any(entry.n_runs > 1 for entry in entries):
        note += " Values of methods with several seeds are means over seeds."
    return ReportTable("metrics", "Ranking metrics", note, columns, rows)


def list_shown_metrics(comparison: Comparison) -> list[str]:
    """Return the metrics that a candidate has."""
    return [name for name in COMPARISON_METRICS if any(name in entry.metrics for entry in comparison.entries)]


def build_difference_table(comparison: Comparison) -> ReportTable:
    names = [name for name in DIFFERENCE_METRICS if name in list_shown_metrics(comparison)]
    rows: list[list[TableCell]] = [
        [entry.name, *(format_difference(entry.behind[name]) for name in names)]
        for entry in sort_entries(comparison)
        if entry.behind and len(comparison.successful_entries) > 1
    ]
    note = (
        "In percentage points, with 95 % confidence intervals of the difference on the same documents (paired "
        "bootstrap). ≈ marks differences whose interval contains 0: they may be chance."
    )
    return ReportTable("differences", "Difference from the best", note, ["", *names], rows)


def format_difference(difference: ConfidenceInterval) -> str:
    if difference.mean == difference.low == difference.high == 0:
        return "best"
    mark = "" if difference.excludes_zero else "≈ "
    mean, low, high = map(format_signed_percent, (difference.mean, difference.low, difference.high))
    return f"{mark}{mean} ({low} to {high})"


def build_cost_table(comparison: Comparison) -> ReportTable:
    rows: list[list[TableCell]] = []
    for entry in sort_entries(comparison):
        cost = entry.cost
        values = (cost.train_s, cost.train_cpu_s, cost.peak_mb, cost.model_mb, cost.predict_ms)
        if any(value is not None for value in values):
            cells = [
                format_number(cost.train_s),
                format_number(cost.train_cpu_s),
                format_number(cost.peak_mb, 0),
                format_number(cost.model_mb),
                format_number(cost.predict_ms, 3),
            ]
            rows.append([entry.name, *cells, entry.n_runs, format_percent(entry.deviation.get(MAIN_METRIC))])
    columns = ["", "training, s", "CPU, s", "peak memory, MB", "model, MB", "prediction, ms/document", "runs"]
    note = (
        "Training includes reading the corpus and saving the model, as wall-clock time and as CPU time of all threads. "
        "Peak memory is the maximum of training and prediction. Prediction starts when the model and the documents are "
        "loaded. The last column is the standard deviation between seeds."
    )
    return ReportTable("costs", "Costs", note, [*columns, f"{MAIN_METRIC} ±"], rows)


def build_band_table(comparison: Comparison) -> ReportTable:
    """Return the table of labels by number of training documents."""
    entries = [entry for entry in sort_entries(comparison) if entry.groups]
    bands = [band for band in entries[0].groups if not isnan(band.auc)] if entries else []
    rows: list[list[TableCell]] = []
    for entry in entries if bands else ():
        curves = {(band.least, band.most): band for band in entry.groups}
        shown = [curves[band.least, band.most] for band in bands]
        rows.append([entry.name, *(f"{format_percent(b.auc, 1)} / {format_percent(b.aupr, 1)}" for b in shown)])
    columns = [f"{format_range(band.least, band.most)} ({band.n_labels:,} labels)" for band in bands]
    note = (
        "AUC / AUPR in percent, means over labels with at least five test documents, by the number of training "
        "documents of the label."
    )
    return ReportTable("groups", "Frequent and rare labels", note, ["training documents of a label", *columns], rows)


def build_overlap_table(comparison: Comparison) -> ReportTable:
    names = [entry.name for entry in sort_entries(comparison) if entry.name in comparison.overlap]
    rows: list[list[TableCell]] = [
        [name, *(format_percent(comparison.overlap[name].get(other), 1) for other in names)] for name in names
    ]
    note = (
        "Share of the five best labels that two methods have in common, in percent. Methods with similar metrics and a "
        "small overlap gain most from being combined."
    )
    return ReportTable("overlap", "Overlap", note, ["", *names], rows if len(names) > 1 else [])


def build_command_table(comparison: Comparison) -> ReportTable:
    rows: list[list[TableCell]] = [[entry.name, entry.commands[0]] for entry in comparison.entries if entry.commands]
    note = "Training command of the first run of each method."
    return ReportTable("commands", "Commands", note, ["", "command"], rows)


def build_ranking_tables(ranking: MethodRanking, comparisons: Sequence[Comparison]) -> list[ReportTable]:
    return [build_overview_table(ranking, comparisons), build_rank_table(ranking), build_significance_table(ranking)]


def build_overview_table(ranking: MethodRanking, comparisons: Sequence[Comparison]) -> ReportTable:
    values = [
        {
            entry.name: entry.metrics[MAIN_METRIC].mean
            for entry in comparison.successful_entries
            if MAIN_METRIC in entry.metrics
        }
        for comparison in comparisons
    ]
    names = [*ranking.methods, *ranking.left_out]
    rows: list[list[TableCell]] = [[name, *(format_percent(column.get(name)) for column in values)] for name in names]
    note = f"{MAIN_METRIC} in percent; the best average rank first."
    return ReportTable("overview", "All corpora", note, ["", *(comparison.data for comparison in comparisons)], rows)


def build_rank_table(ranking: MethodRanking) -> ReportTable:
    rows: list[list[TableCell]] = [
        [name, f"{ranking.average[row]:.2f}", *(f"{ranks[row]:.2f}" for ranks in ranking.by_metric.values())]
        for row, name in enumerate(ranking.methods)
    ]
    note = (
        f"1 is the best; ties share the mean rank. {ranking.n_results} results: {ranking.n_corpora} corpora times "
        f"{len(ranking.by_metric)} metrics."
    )
    if not isnan(ranking.friedman):  # the test needs three methods
        note += f" Friedman test: p = {format_probability(ranking.friedman)} if all methods were equal."
    if ranking.failed:
        failures = "; ".join(f"{name} on {', '.join(corpora)}" for name, corpora in ranking.failed.items())
        note += f" A method that failed shares the last rank: {failures}."
    if ranking.left_out:
        note += f" Not ranked, because not run on every corpus or always failed: {', '.join(ranking.left_out)}."
    return ReportTable("ranks", "Average ranks", note, ["", "all", *ranking.by_metric], rows)


def build_significance_table(ranking: MethodRanking) -> ReportTable:
    has_all_pairs = len(ranking.methods) <= MAX_ALL_PAIRS_METHODS
    rows: list[list[TableCell]] = [
        [
            f"{pair.one}, {pair.other}",
            f"{pair.wins} : {pair.losses}",
            format_probability(pair.p),
            format_probability(pair.adjusted),
        ]
        for pair in ranking.pairs
        if has_all_pairs or pair.one == ranking.methods[0]
    ]
    note = (
        "Wilcoxon signed-rank test over all results; the last column is corrected for "
        f"{len(ranking.pairs)} comparisons (Holm). Metrics of one corpus are correlated, so that the tests are more "
        "confident than with as many corpora."
    )
    return ReportTable("tests", "Significance of differences", note, ["methods", "wins", "p", "p, corrected"], rows)

"""Comparisons as tables of plain cells, which a page, Markdown and a terminal show in their own ways."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from xmtc.analysis.compare.comparison import COMPARISON_METRICS, Comparison, ComparisonEntry
from xmtc.analysis.compare.ranking import MethodRanking
from xmtc.analysis.report.tables import ReportTable, TableCell, format_range
from xmtc.evaluation.significance import ConfidenceInterval

MAIN_METRIC = "nDCG@5"  # by which methods are sorted
DIFFERENCE_METRICS = ("P@1", "P@5", "nDCG@5", "PSP@5")
MAX_ALL_PAIRS_METHODS = 12  # methods, from which on pairs are told of the best alone
MISSING_CELL = "–"


def format_percent(value: float | None, digits: int = 2) -> str:
    return MISSING_CELL if value is None or isnan(value) else f"{100 * value:.{digits}f}"


def format_signed_percent(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", "−")


def format_number(value: float | None, digits: int = 1) -> str:
    return MISSING_CELL if value is None else f"{value:.{digits}f}"


def sort_entries(comparison: Comparison) -> list[ComparisonEntry]:
    """Those that failed come last."""
    return sorted(
        comparison.entries, key=lambda entry: -entry.metrics[MAIN_METRIC].mean if MAIN_METRIC in entry.metrics else 1
    )


def build_comparison_tables(comparison: Comparison, anchor_suffix: str = "") -> list[ReportTable]:
    """All of one corpus that have something to say; `mark` tells the anchors of several apart."""
    found = [
        build_metric_table(comparison), build_difference_table(comparison), build_cost_table(comparison), build_band_table(comparison), build_overlap_table(comparison),
        build_command_table(comparison),
    ]  # fmt: skip
    return [
        ReportTable(f"{table.key}{anchor_suffix}", table.title, table.note, table.columns, table.rows)
        for table in found
        if table.rows
    ]


def build_metric_table(comparison: Comparison) -> ReportTable:
    entries = sort_entries(comparison)
    has_remarks = any(entry.failed for entry in entries)
    rows: list[list[TableCell]] = []
    for entry in entries:
        found = entry.metrics.get(MAIN_METRIC)
        around = MISSING_CELL if found is None else f"{format_percent(found.low)} to {format_percent(found.high)}"
        cells = [
            format_percent(entry.metrics[name].mean) if name in entry.metrics else MISSING_CELL
            for name in COMPARISON_METRICS
        ]
        rows.append([entry.name, *cells, around, *([entry.failed] if has_remarks else [])])
    columns = ["", *COMPARISON_METRICS, f"{MAIN_METRIC}, 95 % interval", *(["remark"] if has_remarks else [])]
    note = "In percent, the best nDCG@5 first. The interval is of the bootstrap over documents."
    if any(entry.n_runs > 1 for entry in entries):
        note += " Where a method was trained with several seeds, figures are their mean."
    return ReportTable("metrics", "How good the rankings are", note, columns, rows)


def build_difference_table(comparison: Comparison) -> ReportTable:
    rows: list[list[TableCell]] = [
        [entry.name, *(format_difference(entry.behind[name]) for name in DIFFERENCE_METRICS)]
        for entry in sort_entries(comparison)
        if entry.behind and len(comparison.successful_entries) > 1
    ]
    note = (
        "In points; the best of each column has 0. In brackets the interval of 95 % of the difference on the same "
        "documents (paired bootstrap). Where it holds 0, marked ≈, the difference may be chance."
    )
    return ReportTable("differences", "How far behind the best", note, ["", *DIFFERENCE_METRICS], rows)


def format_difference(found: ConfidenceInterval) -> str:
    if found.mean == found.low == found.high == 0:
        return "best"
    sign = "" if found.excludes_zero else "≈ "
    return f"{sign}{format_signed_percent(found.mean)} ({format_signed_percent(found.low)} to {format_signed_percent(found.high)})"


def build_cost_table(comparison: Comparison) -> ReportTable:
    rows: list[list[TableCell]] = []
    for entry in sort_entries(comparison):
        cost = entry.cost
        known = (cost.train_s, cost.train_cpu_s, cost.peak_mb, cost.model_mb, cost.predict_ms)
        if any(value is not None for value in known):
            cells = [
                format_number(cost.train_s),
                format_number(cost.train_cpu_s),
                format_number(cost.peak_mb, 0),
                format_number(cost.model_mb),
            ]
            spread = format_percent(entry.deviation.get(MAIN_METRIC))
            rows.append([entry.name, *cells, format_number(cost.predict_ms, 3), entry.n_runs, spread])
    columns = ["", "training, s", "processor, s", "peak memory, MB", "model, MB", "ms a document", "runs"]
    note = (
        "Training is the whole command, from reading the corpus to the saved model, by the clock and as seconds of all "
        "processors; memory is the peak of training and answering. Milliseconds "
        "are of a prediction, once all is read. The last column is the deviation between seeds."
    )
    return ReportTable("costs", "What they cost", note, [*columns, f"{MAIN_METRIC} ±"], rows)


def build_band_table(comparison: Comparison) -> ReportTable:
    """Labels by how many training documents they have."""
    entries = [entry for entry in sort_entries(comparison) if entry.groups]
    shown = [group for group in entries[0].groups if not isnan(group.auc)] if entries else []
    rows: list[list[TableCell]] = []
    for entry in entries:
        cells = {(group.least, group.most): group for group in entry.groups}
        here = [cells[group.least, group.most] for group in shown]
        rows += (
            [[entry.name, *(f"{format_percent(each.auc, 1)} / {format_percent(each.aupr, 1)}" for each in here)]]
            if here
            else []
        )
    columns = [f"{format_range(group.least, group.most)} ({group.n_labels:,} labels)" for group in shown]
    note = (
        "AUC / AUPR in percent, means over labels with at least five test documents, by how many training documents "
        "the labels have."
    )
    return ReportTable("groups", "Frequent and rare labels", note, ["training documents of a label", *columns], rows)


def build_overlap_table(comparison: Comparison) -> ReportTable:
    names = [entry.name for entry in sort_entries(comparison) if entry.name in comparison.overlap]
    rows: list[list[TableCell]] = [
        [name, *(format_percent(comparison.overlap[name].get(other), 1) for other in names)] for name in names
    ]
    note = (
        "The share of their five best labels that each two have in common, in percent. Methods that are equally good "
        "and share little gain most from a consensus."
    )
    return ReportTable("overlap", "How far they agree", note, ["", *names], rows if len(names) > 1 else [])


def build_command_table(comparison: Comparison) -> ReportTable:
    rows: list[list[TableCell]] = [[entry.name, entry.commands[0]] for entry in comparison.entries if entry.commands]
    return ReportTable("commands", "Commands", "What trained the first of each.", ["", "command"], rows)


def build_ranking_tables(found: MethodRanking, comparisons: Sequence[Comparison]) -> list[ReportTable]:
    return [build_overview_table(found, comparisons), build_rank_table(found), build_significance_table(found)]


def build_overview_table(found: MethodRanking, comparisons: Sequence[Comparison]) -> ReportTable:
    values = [
        {
            entry.name: entry.metrics[MAIN_METRIC].mean
            for entry in each.successful_entries
            if MAIN_METRIC in entry.metrics
        }
        for each in comparisons
    ]
    names = [*found.methods, *found.left_out]
    rows: list[list[TableCell]] = [[name, *(format_percent(each.get(name)) for each in values)] for name in names]
    note = f"{MAIN_METRIC} in percent; the best average rank first."
    return ReportTable("overview", "All corpora", note, ["", *(each.data for each in comparisons)], rows)


def build_rank_table(found: MethodRanking) -> ReportTable:
    rows: list[list[TableCell]] = [
        [name, f"{found.average[row]:.2f}", *(f"{each[row]:.2f}" for each in found.by_metric.values())]
        for row, name in enumerate(found.methods)
    ]
    note = (
        f"1 is the best; equal ones share the mean. Over {found.n_corpora} corpora and {len(found.by_metric)} metrics, "
        f"{found.n_results} results."
    )
    if not isnan(found.friedman):  # the test is for three methods or more
        told = "If no method were better than another, such ranks would have the probability"
        note += f" {told} {format_probability(found.friedman)} (Friedman)."
    if found.failed:
        told = "; ".join(f"{name} on {', '.join(corpora)}" for name, corpora in found.failed.items())
        note += f" A method that failed shares the last rank: {told}."
    if found.left_out:
        note += f" Not ranked, because not every corpus has them or all failed: {', '.join(found.left_out)}."
    return ReportTable("ranks", "Average ranks", note, ["", "all", *found.by_metric], rows)


def build_significance_table(found: MethodRanking) -> ReportTable:
    """Each two; of many methods, those with the best alone."""
    shown = [
        pair for pair in found.pairs if len(found.methods) <= MAX_ALL_PAIRS_METHODS or pair.one == found.methods[0]
    ]
    rows: list[list[TableCell]] = [
        [
            f"{pair.one}, {pair.other}",
            f"{pair.wins} : {pair.losses}",
            format_probability(pair.p),
            format_probability(pair.adjusted),
        ]
        for pair in shown
    ]
    note = (
        "Wilcoxon's signed-rank test over all results: how probable such differences are if neither is better; the "
        f"last column corrects for {len(found.pairs)} comparisons (Holm). Metrics of one corpus go together, so these "
        "are surer than as many corpora would be."
    )
    return ReportTable("tests", "Which differences are real", note, ["methods", "better in", "p", "p, corrected"], rows)


def format_probability(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.4f}" if p >= 0.0001 else "< 0.0001"

"""Comparisons as tables of plain cells, which a page, Markdown and a terminal show in their own ways."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from xmtc.analysis.compare.figures import METRICS, Comparison, Entry
from xmtc.analysis.compare.ranking import Ranking
from xmtc.analysis.report.shown import Cell, Table, between
from xmtc.evaluation.significance import Interval

LEAD = "nDCG@5"  # by which methods are sorted
DIFFERENCES = ("P@1", "P@5", "nDCG@5", "PSP@5")
MANY = 12  # methods, from which on pairs are told of the best alone
NONE = "–"


def percent(value: float | None, digits: int = 2) -> str:
    return NONE if value is None or isnan(value) else f"{100 * value:.{digits}f}"


def signed(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", "−")


def figure(value: float | None, digits: int = 1) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def best_first(comparison: Comparison) -> list[Entry]:
    """Those that failed come last."""
    return sorted(comparison.entries, key=lambda entry: -entry.metrics[LEAD].mean if LEAD in entry.metrics else 1)


def tables_of(comparison: Comparison, mark: str = "") -> list[Table]:
    """All of one corpus that have something to say; `mark` tells the anchors of several apart."""
    found = [
        metrics(comparison), differences(comparison), costs(comparison), groups(comparison), overlaps(comparison),
        commands(comparison),
    ]  # fmt: skip
    return [
        Table(f"{table.key}{mark}", table.title, table.note, table.columns, table.rows) for table in found if table.rows
    ]


def metrics(comparison: Comparison) -> Table:
    entries = best_first(comparison)
    has_remarks = any(entry.failed for entry in entries)
    rows: list[list[Cell]] = []
    for entry in entries:
        found = entry.metrics.get(LEAD)
        around = NONE if found is None else f"{percent(found.low)} to {percent(found.high)}"
        cells = [percent(entry.metrics[name].mean) if name in entry.metrics else NONE for name in METRICS]
        rows.append([entry.name, *cells, around, *([entry.failed] if has_remarks else [])])
    columns = ["", *METRICS, f"{LEAD}, 95 % interval", *(["remark"] if has_remarks else [])]
    note = "In percent, the best nDCG@5 first. The interval is of the bootstrap over documents."
    if any(entry.n_runs > 1 for entry in entries):
        note += " Where a method was trained with several seeds, figures are their mean."
    return Table("metrics", "How good the rankings are", note, columns, rows)


def differences(comparison: Comparison) -> Table:
    rows: list[list[Cell]] = [
        [entry.name, *(difference(entry.behind[name]) for name in DIFFERENCES)]
        for entry in best_first(comparison)
        if entry.behind and len(comparison.good) > 1
    ]
    note = (
        "In points; the best of each column has 0. In brackets the interval of 95 % of the difference on the same "
        "documents (paired bootstrap). Where it holds 0, marked ≈, the difference may be chance."
    )
    return Table("differences", "How far behind the best", note, ["", *DIFFERENCES], rows)


def difference(found: Interval) -> str:
    if found.mean == found.low == found.high == 0:
        return "best"
    sign = "" if found.excludes_zero else "≈ "
    return f"{sign}{signed(found.mean)} ({signed(found.low)} to {signed(found.high)})"


def costs(comparison: Comparison) -> Table:
    rows: list[list[Cell]] = []
    for entry in best_first(comparison):
        cost = entry.cost
        known = (cost.train_s, cost.train_cpu_s, cost.peak_mb, cost.model_mb, cost.predict_ms)
        if any(value is not None for value in known):
            cells = [figure(cost.train_s), figure(cost.train_cpu_s), figure(cost.peak_mb, 0), figure(cost.model_mb)]
            spread = percent(entry.deviation.get(LEAD))
            rows.append([entry.name, *cells, figure(cost.predict_ms, 3), entry.n_runs, spread])
    columns = ["", "training, s", "processor, s", "peak memory, MB", "model, MB", "ms a document", "runs"]
    note = (
        "Training is the whole command, from reading the corpus to the saved model, by the clock and as seconds of all "
        "processors; memory is the peak of training and answering. Milliseconds "
        "are of a prediction, once all is read. The last column is the deviation between seeds."
    )
    return Table("costs", "What they cost", note, [*columns, f"{LEAD} ±"], rows)


def groups(comparison: Comparison) -> Table:
    """Labels by how many training documents they have."""
    entries = [entry for entry in best_first(comparison) if entry.groups]
    shown = [group for group in entries[0].groups if not isnan(group.auc)] if entries else []
    rows: list[list[Cell]] = []
    for entry in entries:
        cells = {(group.least, group.most): group for group in entry.groups}
        here = [cells[group.least, group.most] for group in shown]
        rows += [[entry.name, *(f"{percent(each.auc, 1)} / {percent(each.aupr, 1)}" for each in here)]] if here else []
    columns = [f"{between(group.least, group.most)} ({group.n_labels:,} labels)" for group in shown]
    note = (
        "AUC / AUPR in percent, means over labels with at least five test documents, by how many training documents "
        "the labels have."
    )
    return Table("groups", "Frequent and rare labels", note, ["training documents of a label", *columns], rows)


def overlaps(comparison: Comparison) -> Table:
    names = [entry.name for entry in best_first(comparison) if entry.name in comparison.overlap]
    rows: list[list[Cell]] = [
        [name, *(percent(comparison.overlap[name].get(other), 1) for other in names)] for name in names
    ]
    note = (
        "The share of their five best labels that each two have in common, in percent. Methods that are equally good "
        "and share little gain most from a consensus."
    )
    return Table("overlap", "How far they agree", note, ["", *names], rows if len(names) > 1 else [])


def commands(comparison: Comparison) -> Table:
    rows: list[list[Cell]] = [[entry.name, entry.commands[0]] for entry in comparison.entries if entry.commands]
    return Table("commands", "Commands", "What trained the first of each.", ["", "command"], rows)


def ranking_tables(found: Ranking, comparisons: Sequence[Comparison]) -> list[Table]:
    return [overview(found, comparisons), ranks(found), tests(found)]


def overview(found: Ranking, comparisons: Sequence[Comparison]) -> Table:
    values = [
        {entry.name: entry.metrics[LEAD].mean for entry in each.good if LEAD in entry.metrics} for each in comparisons
    ]
    names = [*found.methods, *found.left_out]
    rows: list[list[Cell]] = [[name, *(percent(each.get(name)) for each in values)] for name in names]
    note = f"{LEAD} in percent; the best average rank first."
    return Table("overview", "All corpora", note, ["", *(each.data for each in comparisons)], rows)


def ranks(found: Ranking) -> Table:
    rows: list[list[Cell]] = [
        [name, f"{found.average[row]:.2f}", *(f"{each[row]:.2f}" for each in found.by_metric.values())]
        for row, name in enumerate(found.methods)
    ]
    note = (
        f"1 is the best; equal ones share the mean. Over {found.n_corpora} corpora and {len(found.by_metric)} metrics, "
        f"{found.n_results} results."
    )
    if not isnan(found.friedman):  # the test is for three methods or more
        told = "If no method were better than another, such ranks would have the probability"
        note += f" {told} {probability(found.friedman)} (Friedman)."
    if found.failed:
        told = "; ".join(f"{name} on {', '.join(corpora)}" for name, corpora in found.failed.items())
        note += f" A method that failed shares the last rank: {told}."
    if found.left_out:
        note += f" Not ranked, because not every corpus has them or all failed: {', '.join(found.left_out)}."
    return Table("ranks", "Average ranks", note, ["", "all", *found.by_metric], rows)


def tests(found: Ranking) -> Table:
    """Each two; of many methods, those with the best alone."""
    shown = [pair for pair in found.pairs if len(found.methods) <= MANY or pair.one == found.methods[0]]
    rows: list[list[Cell]] = [
        [f"{pair.one}, {pair.other}", f"{pair.wins} : {pair.losses}", probability(pair.p), probability(pair.adjusted)]
        for pair in shown
    ]
    note = (
        "Wilcoxon's signed-rank test over all results: how probable such differences are if neither is better; the "
        f"last column corrects for {len(found.pairs)} comparisons (Holm). Metrics of one corpus go together, so these "
        "are surer than as many corpora would be."
    )
    return Table("tests", "Which differences are real", note, ["methods", "better in", "p", "p, corrected"], rows)


def probability(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.4f}" if p >= 0.0001 else "< 0.0001"

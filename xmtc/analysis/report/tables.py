"""Tables of a report, which the page and the Markdown file render."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from xmtc.analysis.report.statistics import LabelStatistics, Report

TableCell = str | int | float
MAX_WORST_ROWS = 20
MAX_PAGE_LABELS = 2_000  # CSV and JSON files have all labels


@dataclass(frozen=True)
class Excerpt:
    """Beginning of a document, with its true labels and its predictions."""

    id: str
    text: str
    true: list[str]
    given: list[tuple[str, float]]
    words: list[str] = field(default_factory=list)  # in favour of the first wrong label


@dataclass(frozen=True)
class NamedReport:
    """Report with the names of labels and documents."""

    report: Report
    title: str
    about: dict[str, str]  # model, corpus and decision rule
    format_label_name: Callable[[int], str]
    format_document_id: Callable[[int], str]
    excerpts: list[Excerpt] = field(default_factory=list)


@dataclass(frozen=True)
class ReportTable:
    """Table of a page, with title and note."""

    key: str  # anchor
    title: str
    note: str
    columns: list[str]
    rows: list[list[TableCell]]


def build_report_tables(named: NamedReport) -> list[ReportTable]:
    """Return all tables that have rows, in reading order."""
    builders = (
        build_metric_table,
        build_assignment_table,
        build_calibration_table,
        build_band_table,
        build_length_table,
        build_branch_table,
        build_missed_table,
        build_wrong_table,
        build_unknown_label_table,
        build_label_table,
    )
    return [table for table in (build(named) for build in builders) if table.rows]


def format_percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def build_metric_table(named: NamedReport) -> ReportTable:
    rows: list[list[TableCell]] = [
        [name, format_percent(interval.mean), f"{format_percent(interval.low)} to {format_percent(interval.high)}"]
        for name, interval in named.report.metrics.items()
    ]
    note = (
        "In percent, with 95 % bootstrap confidence intervals over documents. Differences much smaller than an "
        "interval may be chance."
    )
    return ReportTable("metrics", "Ranking metrics", note, ["metric", "value", "95 % interval"], rows)


def build_assignment_table(named: NamedReport) -> ReportTable:
    assigned = named.report.decided
    rows: list[list[TableCell]] = [
        ["all assignments (micro)", *map(format_percent, assigned.micro)],
        ["mean over labels (macro)", *map(format_percent, assigned.macro)],
        ["mean over documents", *map(format_percent, assigned.by_document)],
    ]
    note = f"In percent; {assigned.labels_per_document:.1f} assigned labels per document on average."
    return ReportTable("decided", "Assigned labels", note, ["", "precision", "recall", "F1"], rows)


def build_calibration_table(named: NamedReport) -> ReportTable:
    report = named.report
    rows: list[list[TableCell]] = [
        [format_percent(each.score), format_percent(each.right), each.n] for each in report.calibration
    ]
    note = (
        "Mean score and share of correct labels among the five best labels of each document. The expected calibration "
        f"error (ECE@5) is {format_percent(report.calibration_error)} points."
    )
    return ReportTable("calibration", "Calibration", note, ["mean score, %", "correct, %", "labels"], rows)


def build_band_table(named: NamedReport) -> ReportTable:
    rows: list[list[TableCell]] = [
        [
            format_range(band.least, band.most),
            band.n_labels,
            band.n_true,
            *map(format_percent, (band.found_at_5, band.precision, band.recall, band.f1, band.auc, band.aupr)),
        ]
        for band in named.report.bands
    ]
    columns = ["training documents of a label", "labels", "assignments", "recall@5", "precision", "recall"]
    note = "In percent. AUC and AUPR are means over labels with at least five test documents."
    return ReportTable("bands", "Frequent and rare labels", note, [*columns, "F1", "AUC", "AUPR"], rows)


def format_range(least: int, most: int | None) -> str:
    if least == most:
        return str(least)
    return f"{least:,} or more" if most is None else f"{least:,} to {most:,}"


def build_length_table(named: NamedReport) -> ReportTable:
    groups = named.report.lengths
    rows: list[list[TableCell]] = [
        [format_range(group.least, group.most), group.n_docs, *map(format_percent, group.metrics.values())]
        for group in groups
    ]
    names = list(groups[0].metrics) if groups else []
    return ReportTable("lengths", "Short and long texts", "In percent.", ["words", "documents", *names], rows)


def build_branch_table(named: NamedReport) -> ReportTable:
    rows: list[list[TableCell]] = [
        [branch.name, branch.n_true, *map(format_percent, (branch.precision, branch.recall, branch.f1))]
        for branch in named.report.branches
    ]
    columns = ["branch", "assignments", "precision", "recall", "F1"]
    return ReportTable("branches", "Branches of the vocabulary", "In percent.", columns, rows)


def build_missed_table(named: NamedReport) -> ReportTable:
    missed = [label for label in named.report.labels if label.n_missed]
    worst = sorted(missed, key=lambda label: -label.n_missed)[:MAX_WORST_ROWS]
    rows: list[list[TableCell]] = [
        [
            named.format_label_name(label.label_id),
            label.n_missed,
            label.support,
            label.n_training_documents,
            format_confused_labels(named, label),
            format_document_ids(named, label.missed_in),
        ]
        for label in worst
    ]
    columns = ["label", "missed", "of", "training documents", "assigned instead", "for example in"]
    return ReportTable("missed", "Missed most often", "True labels that were not assigned.", columns, rows)


def build_wrong_table(named: NamedReport) -> ReportTable:
    wrong = [label for label in named.report.labels if label.n_wrong]
    worst = sorted(wrong, key=lambda label: -label.n_wrong)[:MAX_WORST_ROWS]
    rows: list[list[TableCell]] = [
        [
            named.format_label_name(label.label_id),
            label.n_wrong,
            label.n_assigned,
            label.n_training_documents,
            format_document_ids(named, label.wrongly_in),
        ]
        for label in worst
    ]
    columns = ["label", "wrong", "of", "training documents", "for example in"]
    return ReportTable("wrong", "Wrongly assigned most often", "Assigned labels that are not true.", columns, rows)


def build_unknown_label_table(named: NamedReport) -> ReportTable:
    rows: list[list[TableCell]] = [
        [named.format_label_name(label), n] for label, n in named.report.unknown[:MAX_WORST_ROWS]
    ]
    n, total = len(named.report.unknown), sum(n for _, n in named.report.unknown)
    note = f"{n:,} labels ({total:,} assignments) occur in no training document; all are missed."
    return ReportTable("unknown", "Labels unknown to the model", note, ["label", "documents"], rows)


def build_label_table(named: NamedReport, max_labels: int | None = MAX_PAGE_LABELS) -> ReportTable:
    shown = named.report.labels[:max_labels]
    rows: list[list[TableCell]] = [
        [
            named.format_label_name(label.label_id),
            label.n_training_documents,
            label.support,
            label.n_assigned,
            label.n_correct,
            *map(format_percent, (label.precision, label.recall, label.f1)),
            format_confused_labels(named, label),
        ]
        for label in shown
    ]
    columns = ["label", "training documents", "true", "assigned", "correct", "precision", "recall", "F1"]
    n_omitted = len(named.report.labels) - len(shown)
    note = "The most frequent first, in percent." + (f" {n_omitted:,} more are omitted." if n_omitted else "")
    return ReportTable("labels", "All labels", note, [*columns, "assigned instead"], rows)


def format_confused_labels(named: NamedReport, label: LabelStatistics) -> str:
    return ", ".join(f"{named.format_label_name(other)} ({n})" for other, n in label.confused_with)


def format_document_ids(named: NamedReport, numbers: Sequence[int]) -> str:
    return ", ".join(named.format_document_id(number) for number in numbers)


def iter_report_records(named: NamedReport) -> Iterator[dict[str, Any]]:
    """Yield the statistics of every label as a JSON object."""
    for label in named.report.labels:
        yield {
            "label": named.format_label_name(label.label_id),
            **as_label_record(label),
            "given_in_its_place": [[named.format_label_name(other), n] for other, n in label.confused_with],
            "missed_in": [named.format_document_id(doc) for doc in label.missed_in],
            "wrongly_in": [named.format_document_id(doc) for doc in label.wrongly_in],
        }


def as_label_record(label: LabelStatistics) -> dict[str, Any]:
    return {
        "training_documents": label.n_training_documents,
        "support": label.support,
        "given": label.n_assigned,
        "right": label.n_correct,
        "precision": round_or_none(label.precision),
        "recall": round_or_none(label.recall),
        "f1": round_or_none(label.f1),
    }


def format_label_counts(others: Iterable[tuple[str, int]]) -> str:
    """Return labels and their counts as one cell."""
    return "; ".join(f"{label} ({n})" for label, n in others)


def round_or_none(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)

"""A report as tables of plain cells, which every form of it (page, Markdown, CSV, JSON) shows in its own way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from xmtc.analysis.report.statistics import LabelStatistics, Report

TableCell = str | int | float
MAX_WORST_ROWS = 20  # rows of a list of the worst
MAX_PAGE_LABELS = 2_000  # labels that a page lists; files of rows list all


@dataclass(frozen=True)
class Excerpt:
    """A document as people look at it."""

    id: str
    text: str  # its beginning
    true: list[str]
    given: list[tuple[str, float]]
    words: list[str] = field(default_factory=list)  # that spoke for the first label that is wrong


@dataclass(frozen=True)
class NamedReport:
    """A report, and what its numbers are called."""

    report: Report
    title: str
    about: dict[str, str]  # lines at the top: model, corpus, when
    format_label_name: Callable[[int], str]
    format_document_id: Callable[[int], str]
    excerpts: list[Excerpt] = field(default_factory=list)


@dataclass(frozen=True)
class ReportTable:
    key: str  # its name in JSON, and its anchor
    title: str
    note: str
    columns: list[str]
    rows: list[list[TableCell]]


def build_report_tables(named: NamedReport) -> list[ReportTable]:
    """All of them that have rows, in the order in which they are read."""
    found = [
        build_metric_table(named), build_assignment_table(named), build_calibration_table(named), build_band_table(named), build_length_table(named), build_branch_table(named),
        build_missed_table(named), build_wrong_table(named), build_unknown_label_table(named), build_label_table(named),
    ]  # fmt: skip
    return [table for table in found if table.rows]


def format_percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def build_metric_table(named: NamedReport) -> ReportTable:
    rows: list[list[TableCell]] = [
        [name, format_percent(found.mean), f"{format_percent(found.low)} to {format_percent(found.high)}"]
        for name, found in named.report.metrics.items()
    ]
    note = (
        "In percent. The interval holds the value in 95 of 100 samples of as many documents like these (bootstrap), "
        "so a difference much smaller than it may be chance."
    )
    return ReportTable("metrics", "How good the ranking is", note, ["metric", "value", "95 % interval"], rows)


def build_assignment_table(named: NamedReport) -> ReportTable:
    found = named.report.decided
    rows: list[list[TableCell]] = [
        ["all assignments (micro)", *map(format_percent, found.micro)],
        ["mean over labels (macro)", *map(format_percent, found.macro)],
        ["mean over documents", *map(format_percent, found.by_document)],
    ]
    note = f"Of the labels that are given, {found.labels_per_document:.1f} for a document on average. In percent."
    return ReportTable("decided", "The labels that are given", note, ["", "precision", "recall", "F1"], rows)


def build_calibration_table(named: NamedReport) -> ReportTable:
    report = named.report
    rows: list[list[TableCell]] = [
        [format_percent(each.score), format_percent(each.right), each.n] for each in report.calibration
    ]
    note = (
        "Of the five best labels of each document: what the score says, and how many of these are right. They differ "
        f"by {format_percent(report.calibration_error)} points on average (ECE)."
    )
    return ReportTable("calibration", "What a score means", note, ["mean score, %", "right, %", "labels"], rows)


def build_band_table(named: NamedReport) -> ReportTable:
    rows: list[list[TableCell]] = [
        [
            format_range(band.least, band.most), band.n_labels, band.n_true, format_percent(band.found_at_5),
            format_percent(band.precision), format_percent(band.recall), format_percent(band.f1), format_percent(band.auc), format_percent(band.aupr),
        ]
        for band in named.report.bands
    ]  # fmt: skip
    columns = ["training documents of a label", "labels", "assignments", "among the first 5", "precision", "recall"]
    note = "In percent. AUC and AUPR are means over labels with at least five test documents."
    return ReportTable("bands", "Frequent and rare labels", note, [*columns, "F1", "AUC", "AUPR"], rows)


def format_range(least: int, most: int | None) -> str:
    if least == most:
        return str(least)
    return f"{least:,} or more" if most is None else f"{least:,} to {most:,}"


def build_length_table(named: NamedReport) -> ReportTable:
    quarters = named.report.lengths
    rows: list[list[TableCell]] = [
        [format_range(each.least, each.most), each.n_docs, *map(format_percent, each.metrics.values())]
        for each in quarters
    ]
    names = list(quarters[0].metrics) if quarters else []
    return ReportTable("lengths", "Short and long texts", "In percent.", ["words", "documents", *names], rows)


def build_branch_table(named: NamedReport) -> ReportTable:
    rows: list[list[TableCell]] = [
        [each.name, each.n_true, *map(format_percent, (each.precision, each.recall, each.f1))]
        for each in named.report.branches
    ]
    columns = ["branch", "assignments", "precision", "recall", "F1"]
    return ReportTable("branches", "Branches of the vocabulary", "In percent.", columns, rows)


def build_missed_table(named: NamedReport) -> ReportTable:
    worst = sorted((each for each in named.report.labels if each.n_missed), key=lambda each: -each.n_missed)[
        :MAX_WORST_ROWS
    ]
    rows: list[list[TableCell]] = [
        [
            named.format_label_name(each.label_id), each.n_missed, each.support, each.n_training_documents, format_confused_labels(named, each),
            format_document_ids(named, each.missed_in),
        ]
        for each in worst
    ]  # fmt: skip
    columns = ["label", "missed", "of", "training documents", "given in its place", "for example in"]
    return ReportTable("missed", "Missed most often", "True labels that were not given.", columns, rows)


def build_wrong_table(named: NamedReport) -> ReportTable:
    worst = sorted((each for each in named.report.labels if each.n_wrong), key=lambda each: -each.n_wrong)[
        :MAX_WORST_ROWS
    ]
    rows: list[list[TableCell]] = [
        [
            named.format_label_name(each.label_id),
            each.n_wrong,
            each.n_assigned,
            each.n_training_documents,
            format_document_ids(named, each.wrongly_in),
        ]
        for each in worst
    ]
    columns = ["label", "wrong", "of", "training documents", "for example in"]
    return ReportTable("wrong", "Wrongly given most often", "Labels that were given and are not true.", columns, rows)


def build_unknown_label_table(named: NamedReport) -> ReportTable:
    rows: list[list[TableCell]] = [
        [named.format_label_name(label), n] for label, n in named.report.unknown[:MAX_WORST_ROWS]
    ]
    n, total = len(named.report.unknown), sum(n for _, n in named.report.unknown)
    note = f"{n:,} labels of these documents, {total:,} assignments, were in no training document: all are missed."
    return ReportTable("unknown", "Labels that the model does not know", note, ["label", "documents"], rows)


def build_label_table(named: NamedReport, max_labels: int | None = MAX_PAGE_LABELS) -> ReportTable:
    found = named.report.labels[:max_labels]
    rows: list[list[TableCell]] = [
        [
            named.format_label_name(each.label_id), each.n_training_documents, each.support, each.n_assigned, each.n_correct, format_percent(each.precision),
            format_percent(each.recall), format_percent(each.f1), format_confused_labels(named, each),
        ]
        for each in found
    ]  # fmt: skip
    columns = ["label", "training documents", "true", "given", "right", "precision", "recall", "F1"]
    left = len(named.report.labels) - len(found)
    note = "The most frequent first. In percent." + (f" {left:,} more are left out here." if left else "")
    return ReportTable("labels", "All labels", note, [*columns, "given in its place"], rows)


def format_confused_labels(named: NamedReport, label: LabelStatistics) -> str:
    return ", ".join(f"{named.format_label_name(other)} ({n})" for other, n in label.confused_with)


def format_document_ids(named: NamedReport, numbers: Sequence[int]) -> str:
    return ", ".join(named.format_document_id(number) for number in numbers)


def iter_report_records(named: NamedReport) -> Iterator[dict[str, Any]]:
    """Every label as an object with plain numbers, for programs."""
    for each in named.report.labels:
        yield {
            "label": named.format_label_name(each.label_id),
            **as_label_record(each),
            "given_in_its_place": [[named.format_label_name(other), n] for other, n in each.confused_with],
            "missed_in": [named.format_document_id(doc) for doc in each.missed_in],
            "wrongly_in": [named.format_document_id(doc) for doc in each.wrongly_in],
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
    """Labels and how often each was given, in one cell."""
    return "; ".join(f"{label} ({n})" for label, n in others)


def round_or_none(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)

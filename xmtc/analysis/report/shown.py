"""A report as tables of plain cells, which every form of it (page, Markdown, CSV, JSON) shows in its own way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from xmtc.analysis.report.figures import LabelFigures, Report

Cell = str | int | float
MANY = 20  # rows of a list of the worst
WHOLE = 2_000  # labels that a page lists; files of rows list all


@dataclass(frozen=True)
class Excerpt:
    """A document as people look at it."""

    id: str
    text: str  # its beginning
    true: list[str]
    given: list[tuple[str, float]]
    words: list[str] = field(default_factory=list)  # that spoke for the first label that is wrong


@dataclass(frozen=True)
class Named:
    """A report, and what its numbers are called."""

    report: Report
    title: str
    about: dict[str, str]  # lines at the top: model, corpus, when
    label: Callable[[int], str]
    document: Callable[[int], str]
    excerpts: list[Excerpt] = field(default_factory=list)


@dataclass(frozen=True)
class Table:
    key: str  # its name in JSON, and its anchor
    title: str
    note: str
    columns: list[str]
    rows: list[list[Cell]]


def tables(named: Named) -> list[Table]:
    """All of them that have rows, in the order in which they are read."""
    found = [
        metrics(named), decided(named), calibration(named), bands(named), lengths(named), branches(named),
        missed(named), wrong(named), unknown(named), labels(named),
    ]  # fmt: skip
    return [table for table in found if table.rows]


def percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def metrics(named: Named) -> Table:
    rows: list[list[Cell]] = [
        [name, percent(found.mean), f"{percent(found.low)} to {percent(found.high)}"]
        for name, found in named.report.metrics.items()
    ]
    note = (
        "In percent. The interval holds the value in 95 of 100 samples of as many documents like these (bootstrap), "
        "so a difference much smaller than it may be chance."
    )
    return Table("metrics", "How good the ranking is", note, ["metric", "value", "95 % interval"], rows)


def decided(named: Named) -> Table:
    found = named.report.decided
    rows: list[list[Cell]] = [
        ["all assignments (micro)", *map(percent, found.micro)],
        ["mean over labels (macro)", *map(percent, found.macro)],
        ["mean over documents", *map(percent, found.by_document)],
    ]
    note = f"Of the labels that are given, {found.tags:.1f} for a document on average. In percent."
    return Table("decided", "The labels that are given", note, ["", "precision", "recall", "F1"], rows)


def calibration(named: Named) -> Table:
    report = named.report
    rows: list[list[Cell]] = [[percent(each.score), percent(each.right), each.n] for each in report.calibration]
    note = (
        "Of the five best labels of each document: what the score says, and how many of these are right. They differ "
        f"by {percent(report.calibration_error)} points on average (ECE)."
    )
    return Table("calibration", "What a score means", note, ["mean score, %", "right, %", "labels"], rows)


def bands(named: Named) -> Table:
    rows: list[list[Cell]] = [
        [
            between(band.least, band.most), band.n_labels, band.n_true, percent(band.found_at_5),
            percent(band.precision), percent(band.recall), percent(band.f1), percent(band.auc), percent(band.aupr),
        ]
        for band in named.report.bands
    ]  # fmt: skip
    columns = ["training documents of a label", "labels", "assignments", "among the first 5", "precision", "recall"]
    note = "In percent. AUC and AUPR are means over labels with at least five test documents."
    return Table("bands", "Frequent and rare labels", note, [*columns, "F1", "AUC", "AUPR"], rows)


def between(least: int, most: int | None) -> str:
    if least == most:
        return str(least)
    return f"{least:,} or more" if most is None else f"{least:,} to {most:,}"


def lengths(named: Named) -> Table:
    quarters = named.report.lengths
    rows: list[list[Cell]] = [
        [between(each.least, each.most), each.n_docs, *map(percent, each.metrics.values())] for each in quarters
    ]
    names = list(quarters[0].metrics) if quarters else []
    return Table("lengths", "Short and long texts", "In percent.", ["words", "documents", *names], rows)


def branches(named: Named) -> Table:
    rows: list[list[Cell]] = [
        [each.name, each.n_true, *map(percent, (each.precision, each.recall, each.f1))]
        for each in named.report.branches
    ]
    columns = ["branch", "assignments", "precision", "recall", "F1"]
    return Table("branches", "Branches of the vocabulary", "In percent.", columns, rows)


def missed(named: Named) -> Table:
    worst = sorted((each for each in named.report.labels if each.missed), key=lambda each: -each.missed)[:MANY]
    rows: list[list[Cell]] = [
        [
            named.label(each.number), each.missed, each.support, each.trained, confused(named, each),
            documents(named, each.missed_in),
        ]
        for each in worst
    ]  # fmt: skip
    columns = ["label", "missed", "of", "training documents", "given in its place", "for example in"]
    return Table("missed", "Missed most often", "True labels that were not given.", columns, rows)


def wrong(named: Named) -> Table:
    worst = sorted((each for each in named.report.labels if each.wrong), key=lambda each: -each.wrong)[:MANY]
    rows: list[list[Cell]] = [
        [named.label(each.number), each.wrong, each.given, each.trained, documents(named, each.wrongly_in)]
        for each in worst
    ]
    columns = ["label", "wrong", "of", "training documents", "for example in"]
    return Table("wrong", "Wrongly given most often", "Labels that were given and are not true.", columns, rows)


def unknown(named: Named) -> Table:
    rows: list[list[Cell]] = [[named.label(label), n] for label, n in named.report.unknown[:MANY]]
    n, total = len(named.report.unknown), sum(n for _, n in named.report.unknown)
    note = f"{n:,} labels of these documents, {total:,} assignments, were in no training document: all are missed."
    return Table("unknown", "Labels that the model does not know", note, ["label", "documents"], rows)


def labels(named: Named, most: int | None = WHOLE) -> Table:
    found = named.report.labels[:most]
    rows: list[list[Cell]] = [
        [
            named.label(each.number), each.trained, each.support, each.given, each.right, percent(each.precision),
            percent(each.recall), percent(each.f1), confused(named, each),
        ]
        for each in found
    ]  # fmt: skip
    columns = ["label", "training documents", "true", "given", "right", "precision", "recall", "F1"]
    left = len(named.report.labels) - len(found)
    note = "The most frequent first. In percent." + (f" {left:,} more are left out here." if left else "")
    return Table("labels", "All labels", note, [*columns, "given in its place"], rows)


def confused(named: Named, label: LabelFigures) -> str:
    return ", ".join(f"{named.label(other)} ({n})" for other, n in label.confused_with)


def documents(named: Named, numbers: Sequence[int]) -> str:
    return ", ".join(named.document(number) for number in numbers)


def records(named: Named) -> Iterator[dict[str, Any]]:
    """Every label as an object with plain numbers, for programs."""
    for each in named.report.labels:
        yield {
            "label": named.label(each.number),
            **plain_figures(each),
            "given_in_its_place": [[named.label(other), n] for other, n in each.confused_with],
            "missed_in": [named.document(doc) for doc in each.missed_in],
            "wrongly_in": [named.document(doc) for doc in each.wrongly_in],
        }


def plain_figures(label: LabelFigures) -> dict[str, Any]:
    return {
        "training_documents": label.trained,
        "support": label.support,
        "given": label.given,
        "right": label.right,
        "precision": number(label.precision),
        "recall": number(label.recall),
        "f1": number(label.f1),
    }


def in_words(others: Iterable[tuple[str, int]]) -> str:
    """Labels and how often each was given, in one cell."""
    return "; ".join(f"{label} ({n})" for label, n in others)


def number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)

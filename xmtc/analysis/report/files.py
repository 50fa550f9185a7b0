"""Report as Markdown, JSON and CSV, and per-label records for `xmtc evaluate`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.analysis.report.statistics import compute_label_statistics
from xmtc.analysis.report.tables import (
    NamedReport,
    ReportTable,
    TableCell,
    as_label_record,
    build_report_tables,
    format_label_counts,
    iter_report_records,
)
from xmtc.core.predictions import Predictions
from xmtc.evaluation import to_ranked_results
from xmtc.output import Column, Record
from xmtc.output.table import replace_non_finite
from xmtc.output.text import RowWriter
from xmtc.tagger import Tagger

MARKDOWN_MARKER = "<!-- xmtc report -->"  # marks files that may be overwritten
COUNT_COLUMNS = [Column(name, int) for name in ("training_documents", "support", "given", "right")]
SHARE_COLUMNS = [Column(name, float) for name in ("precision", "recall", "f1")]
CONFUSION_COLUMN = "given_in_its_place"


def render_markdown(named: NamedReport) -> str:
    about = "\n".join(f"- {name}: {escape_markdown(value)}" for name, value in named.about.items())
    tables = [render_markdown_table(table) for table in build_report_tables(named)]
    return "\n\n".join(
        [MARKDOWN_MARKER, f"# {escape_markdown(named.title)}", about, *tables, *render_markdown_excerpts(named), ""]
    )


def render_markdown_excerpts(named: NamedReport) -> list[str]:
    parts = ["## Worst documents"] if named.excerpts else []
    for excerpt in named.excerpts:
        ranked = ", ".join(f"{label} ({score:.2f})" for label, score in excerpt.given) or "nothing"
        lines = [
            f"**{escape_markdown(excerpt.id)}** {escape_markdown(excerpt.text)}",
            f"True: {escape_markdown(', '.join(excerpt.true))}",
            f"Ranked first: {escape_markdown(ranked)}",
        ]
        if excerpt.words:
            lines.append(f"Words in favour of the first wrong label: {escape_markdown(', '.join(excerpt.words))}")
        parts.append("  \n".join(lines))
    return parts


def render_markdown_table(table: ReportTable) -> str:
    """Return a table with its title and note."""
    return f"## {table.title}\n\n{table.note}\n\n{render_markdown_rows(table.columns, table.rows)}"


def render_markdown_rows(columns: Sequence[str], rows: Sequence[Sequence[TableCell]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(escape_markdown(cell) for cell in line)} |" for line in lines)


def escape_markdown(cell: object) -> str:
    text = f"{cell:,}" if isinstance(cell, int) else str(cell)
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")  # no HTML


def as_json(named: NamedReport) -> str:
    """Return all statistics as fractions or counts; null where there is no value."""
    report = named.report
    assigned = asdict(report.decided)
    assigned["tags"] = assigned.pop("labels_per_document")  # the key of released versions
    content = {
        "made by": "xmtc report",
        "title": named.title,
        "about": named.about,
        "documents": report.n_docs,
        "metrics": {name: asdict(value) for name, value in report.metrics.items()},
        "decided": assigned,
        "calibration": [asdict(each) for each in report.calibration],
        "calibration_error": report.calibration_error,
        "bands": [asdict(band) for band in report.bands],
        "lengths": [asdict(group) for group in report.lengths],
        "branches": [asdict(branch) for branch in report.branches],
        "unknown": [[named.format_label_name(label), n] for label, n in report.unknown],
        "worst": [asdict(excerpt) for excerpt in named.excerpts],
        "labels": list(iter_report_records(named)),
    }
    return json.dumps(replace_nan(content), ensure_ascii=False, indent=1) + "\n"


def replace_nan(value: Any) -> Any:
    """Replace nan by None in nested dicts and lists, because JSON has no nan."""
    if isinstance(value, dict):
        return {name: replace_nan(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_nan(each) for each in value]
    return replace_non_finite(value)


def render_label_csv(named: NamedReport) -> str:
    """Return CSV with one row per label; cells that a spreadsheet would run as formulas are escaped."""
    output = io.BytesIO()
    names = ["label", *(column.name for column in (*COUNT_COLUMNS, *SHARE_COLUMNS))]
    rows = RowWriter(output, ",")
    rows.add([*names, CONFUSION_COLUMN])
    for record in iter_report_records(named):
        rows.add([*(record[name] for name in names), format_label_counts(record[CONFUSION_COLUMN])])
    rows.flush()
    rows.report_changes()
    return output.getvalue().decode()


def make_label_columns(tagger: Tagger) -> list[Column]:
    """Return the columns of `iter_label_records`; labels have names only with a vocabulary."""
    names = [Column("name", str)] if tagger.concepts is not None else []
    return [Column("label", str), *names, *COUNT_COLUMNS, *SHARE_COLUMNS, Column(CONFUSION_COLUMN, str)]


def iter_label_records(tagger: Tagger, assigned: Predictions, Y: csr_array, unseen: Sequence[str]) -> Iterator[Record]:
    """Yield a record for each label that documents have or are assigned, the most frequent first.

    `unseen` are the labels of the columns of Y beyond the tagger's own.
    """
    labels = [*tagger.labels.words(), *unseen]
    trained = np.append(tagger.frequencies, np.zeros(len(unseen), np.int64))
    for statistics in compute_label_statistics(to_ranked_results(assigned, Y), trained):
        label = labels[statistics.label_id]
        is_named = tagger.concepts is not None and statistics.label_id < len(tagger.labels)
        yield {
            "label": label,
            "name": tagger.label_name(label) if is_named else None,
            **as_label_record(statistics),
            CONFUSION_COLUMN: format_label_counts((labels[other], n) for other, n in statistics.confused_with),
        }

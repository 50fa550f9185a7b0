"""A report as Markdown, JSON, and rows for a spreadsheet."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

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
from xmtc.output.text import RowWriter
from xmtc.tagger import Tagger

MARKDOWN_MARKER = "<!-- xmtc report -->"  # by which one of ours is known


def render_markdown(named: NamedReport) -> str:
    about = "\n".join(f"- {name}: {escape_markdown(value)}" for name, value in named.about.items())
    shown = [render_markdown_table(table) for table in build_report_tables(named)]
    return "\n\n".join(
        [MARKDOWN_MARKER, f"# {escape_markdown(named.title)}", about, *shown, *render_markdown_excerpts(named), ""]
    )


def render_markdown_excerpts(named: NamedReport) -> list[str]:
    """The documents that it is most wrong about."""
    found = ["## Most wrong about"] if named.excerpts else []
    for each in named.excerpts:
        given = ", ".join(f"{label} ({score:.2f})" for label, score in each.given) or "nothing"
        lines = [
            f"**{escape_markdown(each.id)}** {escape_markdown(each.text)}",
            f"True: {escape_markdown(', '.join(each.true))}",
        ]
        lines += [f"Ranked first: {escape_markdown(given)}"]
        lines += (
            [f"Words that spoke for the first wrong one: {escape_markdown(', '.join(each.words))}"]
            if each.words
            else []
        )
        found.append("  \n".join(lines))
    return found


def render_markdown_table(table: ReportTable) -> str:
    return f"## {table.title}\n\n{table.note}\n\n{render_markdown_rows(table.columns, table.rows)}"


def render_markdown_rows(columns: Sequence[str], rows: Sequence[Sequence[TableCell]]) -> str:
    """A table without what stands around it."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(escape_markdown(cell) for cell in line)} |" for line in lines)


def escape_markdown(cell: object) -> str:
    text = f"{cell:,}" if isinstance(cell, int) else str(cell)
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")  # no HTML


def as_json(named: NamedReport) -> str:
    """Every figure as a fraction or a count."""
    report = named.report
    found = {
        "made by": "xmtc report",
        "title": named.title,
        "about": named.about,
        "documents": report.n_docs,
        "metrics": {name: asdict(value) for name, value in report.metrics.items()},
        "decided": asdict(report.decided),
        "calibration": [asdict(each) for each in report.calibration],
        "calibration_error": report.calibration_error,
        "bands": [asdict(each) for each in report.bands],
        "lengths": [asdict(each) for each in report.lengths],
        "branches": [asdict(each) for each in report.branches],
        "unknown": [[named.format_label_name(label), n] for label, n in report.unknown],
        "worst": [asdict(each) for each in named.excerpts],
        "labels": list(iter_report_records(named)),
    }
    return json.dumps(replace_nan(found), ensure_ascii=False, indent=1) + "\n"


def replace_nan(value: object) -> object:
    """JSON knows no nan: null says that there is no value."""
    if isinstance(value, dict):
        return {name: replace_nan(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_nan(each) for each in value]
    return None if isinstance(value, float) and value != value else value


def render_label_csv(named: NamedReport) -> str:
    """CSV with a row for each label, of which no spreadsheet runs anything."""
    out = io.BytesIO()
    names = ["label", "training_documents", "support", "given", "right", "precision", "recall", "f1"]
    rows = RowWriter(out, ",")
    rows.add([*names, "given_in_its_place"])
    for each in iter_report_records(named):
        rows.add([*(each[name] for name in names), format_label_counts(each["given_in_its_place"])])
    rows.flush()
    rows.report_changes()
    return out.getvalue().decode()


COUNT_COLUMNS = [Column(name, int) for name in ("training_documents", "support", "given", "right")]
SHARE_COLUMNS = [Column(name, float) for name in ("precision", "recall", "f1")]


def make_label_columns(tagger: Tagger) -> list[Column]:
    """Labels have a column of names only where there are names."""
    names = [Column("name", str)] if tagger.concepts is not None else []
    return [Column("label", str), *names, *COUNT_COLUMNS, *SHARE_COLUMNS, Column("given_in_its_place", str)]


def iter_label_records(tagger: Tagger, assigned: Predictions, Y: csr_array, unseen: Sequence[str]) -> Iterator[Record]:
    """Of each label that documents have or are given, the most frequent first; `unseen` are those that the columns of
    Y have beyond the tagger's own."""
    labels = [*tagger.labels.words(), *unseen]
    trained = np.append(tagger.frequencies, np.zeros(len(unseen), np.int64))
    for each in compute_label_statistics(to_ranked_results(assigned, Y), trained):
        is_named = tagger.concepts is not None and each.label_id < len(tagger.labels)
        yield {
            "label": labels[each.label_id],
            "name": tagger.label_name(labels[each.label_id]) if is_named else None,
            **as_label_record(each),
            "given_in_its_place": format_label_counts((labels[other], n) for other, n in each.confused_with),
        }

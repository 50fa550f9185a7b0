"""A report as Markdown, JSON, and rows for a spreadsheet."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict

from xmtc.analysis.report.shown import Cell, Named, Table, in_words, records, tables
from xmtc.output.text import RowWriter

MARK = "<!-- xmtc report -->"  # by which one of ours is known


def markdown(named: Named) -> str:
    about = "\n".join(f"- {name}: {plain(value)}" for name, value in named.about.items())
    shown = [markdown_table(table) for table in tables(named)]
    return "\n\n".join([MARK, f"# {plain(named.title)}", about, *shown, *worst(named), ""])


def worst(named: Named) -> list[str]:
    """The documents that it is most wrong about."""
    found = ["## Most wrong about"] if named.excerpts else []
    for each in named.excerpts:
        given = ", ".join(f"{label} ({score:.2f})" for label, score in each.given) or "nothing"
        lines = [f"**{plain(each.id)}** {plain(each.text)}", f"True: {plain(', '.join(each.true))}"]
        lines += [f"Ranked first: {plain(given)}"]
        lines += [f"Words that spoke for the first wrong one: {plain(', '.join(each.words))}"] if each.words else []
        found.append("  \n".join(lines))
    return found


def markdown_table(table: Table) -> str:
    return f"## {table.title}\n\n{table.note}\n\n{markdown_rows(table.columns, table.rows)}"


def markdown_rows(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table without what stands around it."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(plain(cell) for cell in line)} |" for line in lines)


def plain(cell: object) -> str:
    text = f"{cell:,}" if isinstance(cell, int) else str(cell)
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")  # no HTML


def as_json(named: Named) -> str:
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
        "unknown": [[named.label(label), n] for label, n in report.unknown],
        "worst": [asdict(each) for each in named.excerpts],
        "labels": list(records(named)),
    }
    return json.dumps(without_nan(found), ensure_ascii=False, indent=1) + "\n"


def without_nan(value: object) -> object:
    """JSON knows no nan: null says that there is no value."""
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and value != value else value


def label_rows(named: Named) -> str:
    """CSV with a row for each label, of which no spreadsheet runs anything."""
    out = io.BytesIO()
    names = ["label", "training_documents", "support", "given", "right", "precision", "recall", "f1"]
    rows = RowWriter(out, ",")
    rows.add([*names, "given_in_its_place"])
    for each in records(named):
        rows.add([*(each[name] for name in names), in_words(each["given_in_its_place"])])
    rows.flush()
    rows.tell()
    return out.getvalue().decode()

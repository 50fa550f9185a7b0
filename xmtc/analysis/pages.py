"""HTML pages of reports and comparisons, rendered from templates. A page has no scripts and loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from xmtc.analysis.report.tables import ReportTable, TableCell
from xmtc.explain.html import create_environment

TEMPLATE_FOLDER = Path(__file__).parent / "templates"
PAGE_STYLE = (TEMPLATE_FOLDER / "page.css").read_text(encoding="utf-8").strip()
MAX_UNFOLDED_ROWS = 30  # a longer table is folded


@dataclass(frozen=True)
class ExcerptLine:
    """Labels of a document, some of them underlined."""

    title: str
    labels: list[str]
    underlined: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PageExcerpt:
    """Document with labels."""

    id: str
    text: str
    lines: list[ExcerptLine]
    note: str = ""


@dataclass(frozen=True)
class PageSection:
    """Section with a table, with excerpts of documents, or with a heading only."""

    key: str  # anchor
    title: str
    note: str = ""
    table: ReportTable | None = None
    excerpts: Sequence[PageExcerpt] = ()
    plot: str = ""  # SVG element
    caption: str = ""
    is_corpus_heading: bool = False
    is_linked: bool = field(default=True)  # in the table of contents


def table_section(table: ReportTable, plot: str = "", caption: str = "", is_linked: bool = True) -> PageSection:
    return PageSection(
        table.key, table.title, table.note, table, plot=plot, caption=caption if plot else "", is_linked=is_linked
    )


def render_document(
    title: str, about: Mapping[str, str], sections: Sequence[PageSection], generator: str, note: str = ""
) -> str:
    """Return a page; `generator` names the command that wrote it."""
    return (
        get_environment()
        .get_template("page.html.j2")
        .render(title=title, about=about, sections=sections, generator=generator, note=note)
    )


def render_table(table: ReportTable) -> str:
    """Return a table as an HTML element."""
    return str(get_environment().get_template("table.html.j2").module.table(table)).strip()  # type: ignore[attr-defined]


@cache
def get_environment() -> Environment:
    environment = create_environment(TEMPLATE_FOLDER)
    environment.filters |= {"svg": Markup, "cell": format_cell}
    environment.tests["text_column"] = is_text_column
    environment.globals["max_unfolded_rows"] = MAX_UNFOLDED_ROWS
    return environment


def format_cell(cell: TableCell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def is_text_column(column: int, table: ReportTable) -> bool:
    return any(isinstance(row[column], str) and not is_numeric_cell(row[column]) for row in table.rows)


def is_numeric_cell(cell: TableCell) -> bool:
    return str(cell).lstrip("+−≈< ").replace(".", "", 1).isdigit() or cell == "–"

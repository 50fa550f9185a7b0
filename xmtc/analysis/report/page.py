"""Report as an HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xmtc.analysis import svg
from xmtc.analysis.pages import (
    PAGE_STYLE,
    ExcerptLine,
    PageExcerpt,
    PageSection,
    render_document,
    render_table,
    table_section,
)
from xmtc.analysis.report.statistics import CalibrationBin
from xmtc.analysis.report.tables import Excerpt, NamedReport, build_report_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAGE_STYLE", "render_page", "render_table"]

RELIABILITY_CAPTION = (
    "Share of correct labels by score; larger dots are more labels. On the dashed line scores are probabilities, below "
    "it the model is overconfident."
)


def render_page(named: NamedReport) -> str:
    sections: list[PageSection] = []
    for table in build_report_tables(named):
        plot = plot_reliability(named.report.calibration) if table.key == "calibration" else ""
        if table.key == "labels" and named.excerpts:
            sections.append(make_excerpt_section(named.excerpts))
        sections.append(table_section(table, plot, RELIABILITY_CAPTION))
    if named.excerpts and all(section.key != "documents" for section in sections):
        sections.append(make_excerpt_section(named.excerpts))
    note = "" if svg.has_matplotlib() else svg.MISSING_NOTE
    return render_document(named.title, named.about, sections, "report", note)


def make_excerpt_section(excerpts: list[Excerpt]) -> PageSection:
    note = "Documents with the worst rankings; those with the highest scores first."
    return PageSection("documents", "Worst documents", note, excerpts=[make_page_excerpt(each) for each in excerpts])


def make_page_excerpt(excerpt: Excerpt) -> PageExcerpt:
    lines = [
        ExcerptLine("True", excerpt.true),
        ExcerptLine("Ranked first", [f"{label} ({score:.2f})" for label, score in excerpt.given]),
    ]
    words = ", ".join(excerpt.words)
    note = f"Words in favour of the first wrong label: {words}" if words else ""
    return PageExcerpt(excerpt.id, excerpt.text, lines, note)


def plot_reliability(bins: list[CalibrationBin]) -> str:
    """Return a reliability diagram as SVG."""
    most = max(each.n for each in bins)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot(xlim=(0, 1), ylim=(0, 1), xlabel="score", ylabel="correct", aspect="equal")
        axes.plot([0, 1], [0, 1], color=svg.SOFT, linestyle="--", linewidth=0.8)
        scores, shares = [each.score for each in bins], [each.right for each in bins]
        axes.plot(scores, shares, color=svg.MARK, linewidth=1)
        sizes = [10 + 90 * each.n / most for each in bins]
        axes.scatter(scores, shares, sizes, color=svg.MARK, alpha=0.75, clip_on=False, zorder=3)

    return svg.draw_inline_svg(draw, (3.4, 3.2), "Share of correct labels by score", "reliability")

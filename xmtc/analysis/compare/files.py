"""Comparisons as an HTML page, as Markdown and as CSV."""

from __future__ import annotations

import io
from collections.abc import Sequence

from xmtc.analysis import svg
from xmtc.analysis.compare.comparison import COMPARISON_METRICS, Comparison, Disagreement
from xmtc.analysis.compare.plots import COST_CAPTION, RANK_CAPTION, plot_accuracy_and_cost, plot_critical_differences
from xmtc.analysis.compare.ranking import build_ranking
from xmtc.analysis.compare.tables import build_comparison_tables, build_ranking_tables
from xmtc.analysis.pages import ExcerptLine, PageExcerpt, PageSection, render_document, table_section
from xmtc.analysis.report.files import escape_markdown, render_markdown_table
from xmtc.output.text import RowWriter

MARKDOWN_MARKER = "<!-- xmtc compare -->"  # marks files that may be overwritten
COST_FIELDS = ("train_s", "train_cpu_s", "peak_mb", "model_mb", "predict_ms")
MAX_TRUE_LABELS = 15  # listed labels of a document
MIN_PLOTTED_METHODS = 3  # of critical differences
DISAGREEMENT_TITLE = "Disagreements"
DISAGREEMENT_NOTE = (
    "Documents whose first five labels differ most between the methods and that some methods label correctly."
)


def make_title(comparisons: Sequence[Comparison]) -> str:
    methods = {entry.name for comparison in comparisons for entry in comparison.entries}
    corpora = comparisons[0].data if len(comparisons) == 1 else f"{len(comparisons)} corpora"
    return f"{len(methods)} methods on {corpora}"


def describe_corpus(comparison: Comparison) -> dict[str, str]:
    sizes = (
        f"{comparison.n_docs:,} test documents; {comparison.n_train:,} training documents with "
        f"{comparison.n_labels:,} labels"
    )
    return {"Corpus": f"{comparison.data}: {sizes}"} | comparison.about


def render_page(comparisons: Sequence[Comparison]) -> str:
    sections: list[PageSection] = []
    ranking = build_ranking(comparisons) if len(comparisons) > 1 else None
    if ranking is not None:
        for table in build_ranking_tables(ranking, comparisons):
            has_plot = table.key == "ranks" and len(ranking.methods) >= MIN_PLOTTED_METHODS
            sections.append(table_section(table, plot_critical_differences(ranking) if has_plot else "", RANK_CAPTION))
    for number, comparison in enumerate(comparisons, 1):
        suffix = "" if len(comparisons) == 1 else f"-{number}"
        if suffix:
            note = " · ".join(describe_corpus(comparison).values())
            sections.append(PageSection(f"corpus{suffix}", comparison.data, note, is_corpus_heading=True))
        sections += make_corpus_sections(comparison, suffix)
    about = {"Corpora": ", ".join(comparison.data for comparison in comparisons)}
    if len(comparisons) == 1:
        about = describe_corpus(comparisons[0])
    note = "" if svg.has_matplotlib() else svg.MISSING_NOTE
    return render_document(make_title(comparisons), about, sections, "compare", note)


def make_corpus_sections(comparison: Comparison, suffix: str) -> list[PageSection]:
    """Return the sections of a corpus; of several corpora, only their headings are in the table of contents."""
    sections = []
    excerpts = [make_page_excerpt(disagreement) for disagreement in comparison.disagreements]
    documents = PageSection(
        f"documents{suffix}",
        DISAGREEMENT_TITLE,
        f"{DISAGREEMENT_NOTE} Correct labels are underlined.",
        excerpts=excerpts,
        is_linked=not suffix,
    )
    for table in build_comparison_tables(comparison, suffix):
        plot = ""
        if table.key == f"costs{suffix}":
            plot = plot_accuracy_and_cost(comparison.entries, f"plot{suffix}")
        if table.key == f"commands{suffix}" and excerpts:
            sections.append(documents)
        sections.append(table_section(table, plot, COST_CAPTION, is_linked=not suffix))
    if excerpts and documents not in sections:
        sections.append(documents)
    return sections


def make_page_excerpt(disagreement: Disagreement) -> PageExcerpt:
    true = frozenset(disagreement.true)
    lines = [ExcerptLine(name, labels, true) for name, labels in disagreement.answers.items()]
    return PageExcerpt(
        disagreement.id, disagreement.text, [ExcerptLine("True", shorten_list(disagreement.true)), *lines]
    )


def shorten_list(labels: list[str]) -> list[str]:
    n_more = len(labels) - MAX_TRUE_LABELS
    return [*labels[:MAX_TRUE_LABELS], f"and {n_more} more"] if n_more > 0 else labels


def render_markdown(comparisons: Sequence[Comparison]) -> str:
    parts = [MARKDOWN_MARKER, f"# {escape_markdown(make_title(comparisons))}"]
    ranking = build_ranking(comparisons) if len(comparisons) > 1 else None
    if ranking is not None:
        parts += [render_markdown_table(table) for table in build_ranking_tables(ranking, comparisons)]
    for comparison in comparisons:
        if len(comparisons) > 1:
            parts.append(f"# {escape_markdown(comparison.data)}")
        about = describe_corpus(comparison)
        parts.append("\n".join(f"- {name}: {escape_markdown(value)}" for name, value in about.items()))
        parts += [render_markdown_table(table) for table in build_comparison_tables(comparison)]
        parts += render_markdown_disagreements(comparison.disagreements)
    return "\n\n".join([*parts, ""])


def render_markdown_disagreements(disagreements: Sequence[Disagreement]) -> list[str]:
    parts = [f"## {DISAGREEMENT_TITLE}", f"{DISAGREEMENT_NOTE} Correct labels are bold."] if disagreements else []
    for disagreement in disagreements:
        lines = [
            f"**{escape_markdown(disagreement.id)}** {escape_markdown(disagreement.text)}",
            f"True: {escape_markdown(', '.join(shorten_list(disagreement.true)))}",
        ]
        for name, labels in disagreement.answers.items():
            escaped = [
                f"**{escape_markdown(label)}**" if label in disagreement.true else escape_markdown(label)
                for label in labels
            ]
            lines.append(f"{escape_markdown(name)}: {', '.join(escaped) or 'nothing'}")
        parts.append("  \n".join(lines))
    return parts


def render_csv(comparisons: Sequence[Comparison]) -> str:
    """Return CSV with a row for each method on each corpus; metrics are fractions."""
    output = io.BytesIO()
    writer = RowWriter(output, ",")
    names = [f"{metric}{part}" for metric in COMPARISON_METRICS for part in ("", " low", " high", " behind")]
    writer.add(["data", "method", "runs", *names, *COST_FIELDS, "failed"])
    for comparison in comparisons:
        for entry in comparison.entries:
            cells: list[float | None] = []
            for metric in COMPARISON_METRICS:
                interval, behind = entry.metrics.get(metric), entry.behind.get(metric)
                cells += [None] * 3 if interval is None else [interval.mean, interval.low, interval.high]
                cells.append(None if behind is None else behind.mean)
            costs = [getattr(entry.cost, name) for name in COST_FIELDS]
            writer.add([comparison.data, entry.name, entry.n_runs, *cells, *costs, entry.failed])
    writer.flush()
    writer.report_changes()
    return output.getvalue().decode()

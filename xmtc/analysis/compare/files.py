"""Comparisons as a page that needs nothing else, as Markdown, and as rows for a spreadsheet."""

from __future__ import annotations

import io
from collections.abc import Sequence

from xmtc.analysis.compare import plots
from xmtc.analysis.compare.comparison import COMPARISON_METRICS, Comparison, Disagreement
from xmtc.analysis.compare.ranking import build_ranking
from xmtc.analysis.compare.tables import build_comparison_tables, build_ranking_tables
from xmtc.analysis.report.files import escape_markdown, render_markdown_table
from xmtc.analysis.report.page import render_document, render_links, render_section
from xmtc.explain.highlights import escape_text
from xmtc.output.text import RowWriter

GENERATOR = '<meta name="generator" content="xmtc compare">'  # by which a page of ours is known
MARKDOWN_MARKER = "<!-- xmtc compare -->"
COST_FIELDS = ("train_s", "train_cpu_s", "peak_mb", "model_mb", "predict_ms")
MAX_TRUE_LABELS = 15  # labels of a document that are listed
DISAGREEMENT_NOTE = (
    "Documents whose first five labels differ most between the methods; of those, the ones that some get right."
)


def make_title(comparisons: Sequence[Comparison]) -> str:
    names = [each.data for each in comparisons]
    methods = {entry.name for each in comparisons for entry in each.entries}
    where = names[0] if len(names) == 1 else f"{len(names)} corpora"
    return f"{len(methods)} methods on {where}"


def describe_corpus(comparison: Comparison) -> dict[str, str]:
    sizes = f"{comparison.n_docs:,} documents to compare on; trained on {comparison.n_train:,} with "
    return {"Corpus": f"{comparison.data}: {sizes}{comparison.n_labels:,} labels"} | comparison.about


def render_page(comparisons: Sequence[Comparison]) -> str:
    body, links = [], {}
    ranked = build_ranking(comparisons) if len(comparisons) > 1 else None
    if ranked is not None:
        for table in build_ranking_tables(ranked, comparisons):
            plot = plots.plot_critical_differences(ranked) if table.key == "ranks" and len(ranked.methods) > 2 else ""
            body.append(render_section(table, plot))
            links[table.key] = table.title
    for number, each in enumerate(comparisons, 1):
        mark = "" if len(comparisons) == 1 else f"-{number}"
        parts, anchors = render_corpus(each, mark)
        if mark:
            body.append(f'<h2 id="corpus{mark}" class="corpus">{escape_text(each.data)}</h2>')
            body.append(f"<p>{escape_text(' · '.join(describe_corpus(each).values()))}</p>")
            anchors = {f"corpus{mark}": each.data}
        body += parts
        links |= anchors
    lines = (
        describe_corpus(comparisons[0])
        if len(comparisons) == 1
        else {"Corpora": ", ".join(c.data for c in comparisons)}
    )
    style = f"{plots.PLOT_STYLE}h2.corpus {{ margin: 3rem 0 0; font-size: 1.6rem; break-before: page }}\n"
    return render_document(make_title(comparisons), lines, render_links(links), body, GENERATOR, style)


def render_corpus(comparison: Comparison, anchor_suffix: str) -> tuple[list[str], dict[str, str]]:
    """The sections of a corpus, and their titles by anchor."""
    shown = build_comparison_tables(comparison, anchor_suffix)
    costs = plots.plot_accuracy_and_cost(comparison.entries)
    parts = [
        (each.key, each.title, render_section(each, costs if each.key == f"costs{anchor_suffix}" else ""))
        for each in shown
    ]
    if comparison.disagreements:
        place = next((row for row, each in enumerate(shown) if each.key == f"commands{anchor_suffix}"), len(parts))
        told = render_disagreements(comparison.disagreements, anchor_suffix)
        parts.insert(place, (f"documents{anchor_suffix}", "Where they disagree", told))
    return [body for _, _, body in parts], {key: title for key, title, _ in parts}


def render_disagreements(found: Sequence[Disagreement], anchor_suffix: str) -> str:
    articles = "\n".join(render_disagreement(each) for each in found)
    head = f"<h2>Where they disagree</h2>\n<p>{DISAGREEMENT_NOTE} What is right is underlined.</p>"
    return f'<section id="documents{anchor_suffix}">\n{head}\n{articles}\n</section>'


def render_disagreement(each: Disagreement) -> str:
    right = set(each.true)
    lines = "\n".join(
        f"<p><b>{escape_text(name)}:</b> {', '.join(underline_if_true(label, right) for label in labels) or 'nothing'}</p>"
        for name, labels in each.answers.items()
    )
    return (
        f'<article>\n<h3 lang="" dir="auto">{escape_text(each.id)}</h3>\n'
        f'<p class="body" lang="" dir="auto">{escape_text(each.text)}</p>\n'
        f"<p><b>True:</b> {escape_text(format_label_list(each.true))}</p>\n{lines}\n</article>"
    )


def format_label_list(labels: Sequence[str]) -> str:
    """The first of them; a document may have dozens."""
    more = len(labels) - MAX_TRUE_LABELS
    return ", ".join(labels[:MAX_TRUE_LABELS]) + (f" and {more} more" if more > 0 else "")


def underline_if_true(label: str, right: set[str]) -> str:
    return f"<u>{escape_text(label)}</u>" if label in right else escape_text(label)


def render_markdown(comparisons: Sequence[Comparison]) -> str:
    parts = [MARKDOWN_MARKER, f"# {escape_markdown(make_title(comparisons))}"]
    ranked = build_ranking(comparisons) if len(comparisons) > 1 else None
    if ranked is not None:
        parts += [render_markdown_table(table) for table in build_ranking_tables(ranked, comparisons)]
    for each in comparisons:
        parts += [f"# {escape_markdown(each.data)}"] if len(comparisons) > 1 else []
        parts.append("\n".join(f"- {name}: {escape_markdown(value)}" for name, value in describe_corpus(each).items()))
        parts += [render_markdown_table(table) for table in build_comparison_tables(each)]
        parts += render_markdown_disagreements(each.disagreements)
    return "\n\n".join([*parts, ""])


def render_markdown_disagreements(found: Sequence[Disagreement]) -> list[str]:
    parts = ["## Where they disagree", f"{DISAGREEMENT_NOTE} What is right is bold."] if found else []
    for each in found:
        right = set(each.true)
        lines = [
            f"**{escape_markdown(each.id)}** {escape_markdown(each.text)}",
            f"True: {escape_markdown(format_label_list(each.true))}",
        ]
        for name, labels in each.answers.items():
            told = ", ".join(
                f"**{escape_markdown(label)}**" if label in right else escape_markdown(label) for label in labels
            )
            lines.append(f"{escape_markdown(name)}: {told or 'nothing'}")
        parts.append("  \n".join(lines))
    return parts


def render_csv(comparisons: Sequence[Comparison]) -> str:
    """CSV with a row for each method on each corpus; metrics are fractions."""
    out = io.BytesIO()
    writer = RowWriter(out, ",")
    names = [f"{metric}{part}" for metric in COMPARISON_METRICS for part in ("", " low", " high", " behind")]
    writer.add(["data", "method", "runs", *names, *COST_FIELDS, "failed"])
    for each in comparisons:
        for entry in each.entries:
            cells: list[float | None] = []
            for metric in COMPARISON_METRICS:
                found, behind = entry.metrics.get(metric), entry.behind.get(metric)
                cells += [None] * 3 if found is None else [found.mean, found.low, found.high]
                cells.append(None if behind is None else behind.mean)
            costs = [getattr(entry.cost, name) for name in COST_FIELDS]
            writer.add([each.data, entry.name, entry.n_runs, *cells, *costs, entry.failed])
    writer.flush()
    writer.report_changes()
    return out.getvalue().decode()

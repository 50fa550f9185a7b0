"""Comparisons as a page that needs nothing else, as Markdown, and as rows for a spreadsheet."""

from __future__ import annotations

import io
from collections.abc import Sequence

from xmtc.analysis.compare import plots
from xmtc.analysis.compare.figures import METRICS, Comparison, Disagreement
from xmtc.analysis.compare.ranking import ranking
from xmtc.analysis.compare.shown import ranking_tables, tables_of
from xmtc.analysis.report.files import markdown_table, plain
from xmtc.analysis.report.page import document, links_to, section
from xmtc.explain.highlights import escaped
from xmtc.output.text import RowWriter

GENERATOR = '<meta name="generator" content="xmtc compare">'  # by which a page of ours is known
MARK = "<!-- xmtc compare -->"
COSTS = ("train_s", "train_cpu_s", "peak_mb", "model_mb", "predict_ms")
MOST_TRUE = 15  # labels of a document that are listed
NOTE = "Documents whose first five labels differ most between the methods; of those, the ones that some get right."


def title_of(comparisons: Sequence[Comparison]) -> str:
    names = [each.data for each in comparisons]
    methods = {entry.name for each in comparisons for entry in each.entries}
    where = names[0] if len(names) == 1 else f"{len(names)} corpora"
    return f"{len(methods)} methods on {where}"


def about(comparison: Comparison) -> dict[str, str]:
    sizes = f"{comparison.n_docs:,} documents to compare on; trained on {comparison.n_train:,} with "
    return {"Corpus": f"{comparison.data}: {sizes}{comparison.n_labels:,} labels"} | comparison.about


def page(comparisons: Sequence[Comparison]) -> str:
    body, links = [], {}
    ranked = ranking(comparisons) if len(comparisons) > 1 else None
    if ranked is not None:
        for table in ranking_tables(ranked, comparisons):
            plot = plots.critical_differences(ranked) if table.key == "ranks" and len(ranked.methods) > 2 else ""
            body.append(section(table, plot))
            links[table.key] = table.title
    for number, each in enumerate(comparisons, 1):
        mark = "" if len(comparisons) == 1 else f"-{number}"
        parts, anchors = corpus_part(each, mark)
        if mark:
            body.append(f'<h2 id="corpus{mark}" class="corpus">{escaped(each.data)}</h2>')
            body.append(f"<p>{escaped(' · '.join(about(each).values()))}</p>")
            anchors = {f"corpus{mark}": each.data}
        body += parts
        links |= anchors
    lines = about(comparisons[0]) if len(comparisons) == 1 else {"Corpora": ", ".join(c.data for c in comparisons)}
    style = f"{plots.STYLE}h2.corpus {{ margin: 3rem 0 0; font-size: 1.6rem; break-before: page }}\n"
    return document(title_of(comparisons), lines, links_to(links), body, GENERATOR, style)


def corpus_part(comparison: Comparison, mark: str) -> tuple[list[str], dict[str, str]]:
    """The sections of a corpus, and their titles by anchor."""
    shown = tables_of(comparison, mark)
    costs = plots.accuracy_and_cost(comparison.entries)
    parts = [(each.key, each.title, section(each, costs if each.key == f"costs{mark}" else "")) for each in shown]
    if comparison.disagreements:
        place = next((row for row, each in enumerate(shown) if each.key == f"commands{mark}"), len(parts))
        told = disagreement_part(comparison.disagreements, mark)
        parts.insert(place, (f"documents{mark}", "Where they disagree", told))
    return [body for _, _, body in parts], {key: title for key, title, _ in parts}


def disagreement_part(found: Sequence[Disagreement], mark: str) -> str:
    articles = "\n".join(article(each) for each in found)
    head = f"<h2>Where they disagree</h2>\n<p>{NOTE} What is right is underlined.</p>"
    return f'<section id="documents{mark}">\n{head}\n{articles}\n</section>'


def article(each: Disagreement) -> str:
    right = set(each.true)
    lines = "\n".join(
        f"<p><b>{escaped(name)}:</b> {', '.join(underlined(label, right) for label in labels) or 'nothing'}</p>"
        for name, labels in each.answers.items()
    )
    return (
        f'<article>\n<h3 lang="" dir="auto">{escaped(each.id)}</h3>\n'
        f'<p class="body" lang="" dir="auto">{escaped(each.text)}</p>\n'
        f"<p><b>True:</b> {escaped(listed(each.true))}</p>\n{lines}\n</article>"
    )


def listed(labels: Sequence[str]) -> str:
    """The first of them; a document may have dozens."""
    more = len(labels) - MOST_TRUE
    return ", ".join(labels[:MOST_TRUE]) + (f" and {more} more" if more > 0 else "")


def underlined(label: str, right: set[str]) -> str:
    return f"<u>{escaped(label)}</u>" if label in right else escaped(label)


def markdown(comparisons: Sequence[Comparison]) -> str:
    parts = [MARK, f"# {plain(title_of(comparisons))}"]
    ranked = ranking(comparisons) if len(comparisons) > 1 else None
    if ranked is not None:
        parts += [markdown_table(table) for table in ranking_tables(ranked, comparisons)]
    for each in comparisons:
        parts += [f"# {plain(each.data)}"] if len(comparisons) > 1 else []
        parts.append("\n".join(f"- {name}: {plain(value)}" for name, value in about(each).items()))
        parts += [markdown_table(table) for table in tables_of(each)]
        parts += documents(each.disagreements)
    return "\n\n".join([*parts, ""])


def documents(found: Sequence[Disagreement]) -> list[str]:
    parts = ["## Where they disagree", f"{NOTE} What is right is bold."] if found else []
    for each in found:
        right = set(each.true)
        lines = [f"**{plain(each.id)}** {plain(each.text)}", f"True: {plain(listed(each.true))}"]
        for name, labels in each.answers.items():
            told = ", ".join(f"**{plain(label)}**" if label in right else plain(label) for label in labels)
            lines.append(f"{plain(name)}: {told or 'nothing'}")
        parts.append("  \n".join(lines))
    return parts


def rows(comparisons: Sequence[Comparison]) -> str:
    """CSV with a row for each method on each corpus; metrics are fractions."""
    out = io.BytesIO()
    writer = RowWriter(out, ",")
    names = [f"{metric}{part}" for metric in METRICS for part in ("", " low", " high", " behind")]
    writer.add(["data", "method", "runs", *names, *COSTS, "failed"])
    for each in comparisons:
        for entry in each.entries:
            cells: list[float | None] = []
            for metric in METRICS:
                found, behind = entry.metrics.get(metric), entry.behind.get(metric)
                cells += [None] * 3 if found is None else [found.mean, found.low, found.high]
                cells.append(None if behind is None else behind.mean)
            costs = [getattr(entry.cost, name) for name in COSTS]
            writer.add([each.data, entry.name, entry.n_runs, *cells, *costs, entry.failed])
    writer.flush()
    writer.tell()
    return out.getvalue().decode()

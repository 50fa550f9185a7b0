"""A report as one page that needs nothing else: no scripts, nothing from elsewhere; for every screen, and for paper."""

from __future__ import annotations

from collections.abc import Iterable

from xmtc.analysis.report.statistics import CalibrationBin
from xmtc.analysis.report.tables import Excerpt, NamedReport, ReportTable, TableCell, build_report_tables
from xmtc.explain.highlights import escape_text

GENERATOR = '<meta name="generator" content="xmtc report">'  # by which a page of ours is known
MAX_UNFOLDED_ROWS = 30  # rows from which on a table is folded

PAGE_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --soft: #595959; --line: #d9d9d9; --fill: #f4f4f2;
  --mark: #0b62a4; --good: #2f7d4f }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #eee; --soft: #ababab; --line: #3a3d44; --fill: #1f2228; --mark: #6db3f2;
    --good: #6fcf97 }
}
* { box-sizing: border-box }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem }
h2 { font-size: 1.2rem; margin: 0 0 .2rem; break-after: avoid }
section { margin-top: 1.6rem; padding-top: 1rem; border-top: 1px solid var(--line) }
p, dl { margin: .3rem 0 .8rem; color: var(--soft) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem }
dt { font-weight: 600 } dd { margin: 0 }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none }
a { color: var(--mark) }
.wide { overflow-x: auto }
.wide:focus-visible { outline: 2px solid var(--mark); outline-offset: 2px }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; min-width: 20rem }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top }
th { text-align: right; font-weight: 600; border-bottom-width: 2px }
th:first-child, td:first-child, .text { text-align: left }
tbody th { font-weight: normal; border-bottom-width: 1px }
tbody tr:nth-child(even) { background: var(--fill) }
summary { cursor: pointer; color: var(--mark); padding: .3rem 0 }
figure { margin: .5rem 0 1rem; max-width: 24rem }
figcaption { color: var(--soft); font-size: .9rem }
svg { width: 100%; height: auto; display: block }
article { margin: 1rem 0; padding: .6rem 1rem; background: var(--fill); border-radius: .4rem; break-inside: avoid }
article h3 { margin: 0 0 .3rem; font-size: 1rem }
article p { margin: .2rem 0 }
article .body { color: var(--ink) }
@media print {
  body { margin: 0; max-width: none; font-size: 9.5pt } nav { display: none }
  .wide { overflow: visible } thead { display: table-header-group } tr { break-inside: avoid }
}
@media (max-width: 40rem) { dl { grid-template-columns: 1fr } dd { margin-bottom: .3rem } }
""".strip()


def render_page(named: NamedReport) -> str:
    shown = build_report_tables(named)
    body = [
        *(render_section(table, render_table_plot(table, named)) for table in shown if table.key != "labels"),
        render_excerpts(named.excerpts),
        *(render_section(table) for table in shown if table.key == "labels"),
    ]
    return render_document(named.title, named.about, render_contents(shown, named.excerpts), body)


def render_document(
    title: str, about: dict[str, str], contents: str, body: Iterable[str], generator: str = GENERATOR, style: str = ""
) -> str:
    """A whole page: lines about it, links to its sections, and these."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        generator,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape_text(title)}</title>",
        f"<style>\n{PAGE_STYLE}\n{style}</style>",
        "</head>",
        "<body>",
        "<header>",
        f"<h1>{escape_text(title)}</h1>",
        f"<dl>{''.join(render_definition(*each) for each in about.items())}</dl>",
        contents,
        "</header>",
        "<main>",
        *body,
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def render_table_plot(table: ReportTable, named: NamedReport) -> str:
    return plot_reliability(named.report.calibration) if table.key == "calibration" else ""


def render_definition(name: str, value: str) -> str:
    return f"<dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd>"


def render_contents(shown: list[ReportTable], excerpts: list[Excerpt]) -> str:
    names = {table.key: table.title for table in shown}
    if excerpts:
        last = {"labels": names.pop("labels")} if "labels" in names else {}
        names |= {"documents": "Most wrong about"} | last
    return render_links(names)


def render_links(names: dict[str, str]) -> str:
    """By the anchors of sections."""
    links = "".join(f'<li><a href="#{key}">{escape_text(title)}</a></li>' for key, title in names.items())
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def render_section(table: ReportTable, plot: str = "") -> str:
    body = render_table(table)
    if len(table.rows) > MAX_UNFOLDED_ROWS:
        body = f"<details><summary>{len(table.rows):,} rows</summary>{body}</details>"
    head = f"<h2>{escape_text(table.title)}</h2>\n<p>{escape_text(table.note)}</p>"
    return f'<section id="{table.key}">\n{head}\n{plot}{body}\n</section>'


def render_table(table: ReportTable) -> str:
    """A table that scrolls within itself where the screen is narrow; by keyboard, too."""
    classes = [' class="text"' if is_text_column(table, column) else "" for column in range(len(table.columns))]
    heads = zip(table.columns, classes, strict=True)
    head = "".join(f'<th scope="col"{kind}>{escape_text(name)}</th>' for name, kind in heads)
    body = "\n".join(f"<tr>{render_cells(row, classes)}</tr>" for row in table.rows)
    whole = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<div class="wide" role="region" aria-label="{escape_text(table.title)}" tabindex="0">\n{whole}\n</div>'


def is_text_column(table: ReportTable, column: int) -> bool:
    return any(isinstance(row[column], str) and not is_numeric_cell(row[column]) for row in table.rows)


def is_numeric_cell(cell: TableCell) -> bool:
    return str(cell).lstrip("+−≈< ").replace(".", "", 1).isdigit() or cell == "–"


def render_cells(row: list[TableCell], classes: list[str]) -> str:
    first, *others = (f"{each:,}" if isinstance(each, int) else str(each) for each in row)
    made = [f'<th scope="row" lang="" dir="auto">{escape_text(first)}</th>']
    made += [f"<td{kind}>{escape_text(each)}</td>" for each, kind in zip(others, classes[1:], strict=True)]
    return "".join(made)


def plot_reliability(bins: list[CalibrationBin]) -> str:
    """Scores from left to right, how often they are right upwards; on the diagonal they mean what they say."""
    size, left = 240, 34
    most = max(each.n for each in bins)

    def x(value: float) -> str:
        return f"{left + size * value:.1f}"

    def y(value: float) -> str:
        return f"{10 + size * (1 - value):.1f}"

    dots = "".join(
        f'<circle cx="{x(each.score)}" cy="{y(each.right)}" r="{3 + 6 * (each.n / most) ** 0.5:.1f}"><title>'
        f"score {each.score:.2f}, right {each.right:.2f}, {each.n:,} labels</title></circle>"
        for each in bins
    )
    line = " ".join(f"{x(each.score)},{y(each.right)}" for each in bins)
    ticks = "".join(
        f'<text x="{x(each)}" y="{size + 26}" text-anchor="middle">{each:g}</text>'
        f'<text x="{left - 6}" y="{float(y(each)) + 4:.1f}" text-anchor="end">{each:g}</text>'
        for each in (0, 0.5, 1)
    )
    return (
        f'<figure><svg viewBox="0 0 {left + size + 14} {size + 34}" role="img" '
        'aria-label="Share of right labels by score">'
        f'<g fill="none" stroke="var(--line)"><rect x="{left}" y="10" width="{size}" height="{size}"/>'
        f'<path d="M{x(0)} {y(0)} L{x(1)} {y(1)}" stroke-dasharray="4 4"/></g>'
        f'<polyline points="{line}" fill="none" stroke="var(--mark)" stroke-width="1.5"/>'
        f'<g fill="var(--mark)" fill-opacity=".75">{dots}</g>'
        f'<g fill="var(--soft)" font-size="11">{ticks}</g></svg>'
        "<figcaption>Right labels upwards, by score; larger dots are more labels. On the dashed line a score is the "
        "probability that it looks like, below it the model is too sure.</figcaption></figure>"
    )


def render_excerpts(excerpts: list[Excerpt]) -> str:
    if not excerpts:
        return ""
    articles = "\n".join(render_excerpt(each) for each in excerpts)
    note = "The documents it ranks worst, the ones it was surest about first."
    return f'<section id="documents">\n<h2>Most wrong about</h2>\n<p>{note}</p>\n{articles}\n</section>'


def render_excerpt(each: Excerpt) -> str:
    given = ", ".join(f"{label} ({score:.2f})" for label, score in each.given) or "nothing"
    words = (
        f"<p>Words that spoke for the first wrong one: {escape_text(', '.join(each.words))}</p>" if each.words else ""
    )
    return (
        f'<article>\n<h3 lang="" dir="auto">{escape_text(each.id)}</h3>\n'
        f'<p class="body" lang="" dir="auto">{escape_text(each.text)}</p>\n'
        f"<p><b>True:</b> {escape_text(', '.join(each.true))}</p>\n<p><b>Ranked first:</b> {escape_text(given)}</p>\n{words}\n"
        "</article>"
    )

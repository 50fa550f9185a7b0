"""One page of many tables: what was published, what was measured, the difference, by whom and with which commands; and
what has not been run, and why."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from xmtc.analysis.report.files import render_markdown_rows
from xmtc.analysis.report.page import PAGE_STYLE, render_table
from xmtc.analysis.report.tables import ReportTable, TableCell
from xmtc.analysis.result_files import ResultRecord
from xmtc.errors import XmtcError
from xmtc.experiments.commands import ExperimentContext, ExperimentFailed, plan_corpora
from xmtc.experiments.rows import TABLES_FOLDER, Experiment, ExperimentRow, find_members
from xmtc.experiments.tables import COST_COLUMNS, build_lines, group_results, group_rows, make_short_name
from xmtc.explain.highlights import escape_text

PAGE_TITLE = "Published and measured"
PAGE_NOTE = (
    "Figures in percent, of test documents unless a table says otherwise: measured (published, difference); several "
    "seeds are mean ± deviation. A dash is a figure that was published and not measured. Where data differ from the "
    "paper's, the source says so, and the difference is no verdict."
)
MARKDOWN_MARKER = "<!-- xmtc reproduce -->"  # by which a page of ours is known
GENERATOR = '<meta name="generator" content="xmtc reproduce">'
# Tables of many columns: figures are not broken, and what is too wide scrolls.
WIDE_STYLE = """
@page { size: landscape }
body { max-width: 80rem }
th, td { overflow-wrap: normal }
pre { white-space: pre-wrap; font-size: .8rem }
""".strip()
NOT_RUN_YET, GPU_REQUIRED = "not run yet", "a GPU wanted"
MAX_LISTED_ROWS = 6  # names of rows that are told of many


@dataclass(frozen=True)
class PageSection:
    """A table, and what stands around it."""

    key: str
    title: str
    note: str
    tables: list[ReportTable]
    n_missing: int
    missing: list[list[TableCell]]  # rows without a result, by why there is none
    pages: list[Path] = field(default_factory=list)  # that speak of it
    commands: list[tuple[str, str]] = field(default_factory=list)  # of a row; what they are and where they ran


def build_sections(
    experiment: Experiment, results: dict[str, ResultRecord], place: ExperimentContext
) -> list[PageSection]:
    """The section of a table."""
    tables = []
    for number, (data, jobs) in enumerate(group_rows(experiment), 1):
        if any(is_measured(job, results) or job.settings.get("published") for job in jobs):
            tables.append(build_results_table(f"{experiment.name}-{number}", data, jobs, results))
    left = [job for job in experiment.rows if not is_measured(job, results)]
    reasons = [
        (
            explain_missing_result(job, experiment.rows, results, place),
            job.settings["data"],
            job.settings.get("cost", ""),
        )
        for job in left
    ]
    missing = group_missing_rows([job.name for job in left], reasons)
    told = [format_commands(job, results[job.name]) for job in experiment.rows if is_measured(job, results)]
    note = f"{experiment.note} Run by `xmtc reproduce {format_table_path(experiment.path)}`.".strip()
    pages = [experiment.path.resolve().parent.parent / page for page in experiment.pages]
    return [PageSection(experiment.name, experiment.title, note, tables, len(left), missing, pages, told)]


def format_table_path(path: Path) -> str:
    """Without the folders of this machine."""
    return f"{path.parent.name}/{path.name}" if path.parent.name == TABLES_FOLDER else path.name


def is_measured(job: ExperimentRow, results: dict[str, ResultRecord]) -> bool:
    return "failed" not in results.get(job.name, {"failed": ""})


def build_results_table(
    key: str, data: str, jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord]
) -> ReportTable:
    """Costs that no row has are left out, and rows that have neither been run nor published."""
    head, *lines = build_lines(jobs, results)
    kept, published = (
        group_results(jobs, results),
        {make_short_name(job.settings): job.settings.get("published") for job in jobs},
    )
    done = {
        make_short_name(job.settings)
        for job in jobs
        if any("failed" not in each for each in kept[job.settings["name"]])
    }
    lines = [line for line in lines if line[0] in done or published[line[0]]]
    costs = range(len(head) - 1 - len(COST_COLUMNS), len(head) - 1)
    for line in lines:
        if line[0] not in done:
            line[costs[0]] = ""  # the reason stands among what was not run
    wanted = [place for place in range(len(head)) if place not in costs or any(line[place] for line in lines)]
    wanted = [place for place in wanted if place < len(head) - 1 or any(line[place] for line in lines)]
    shown: list[list[TableCell]] = [[line[place] or "–" for place in wanted] for line in lines]
    return ReportTable(key, data, "", [head[place] or "row" for place in wanted], shown)


def group_missing_rows(names: Sequence[str], reasons: Sequence[tuple[str, str, str]]) -> list[list[TableCell]]:
    """A line for each reason, corpus and cost: what they are, how many rows it holds for, and the first of them."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, reason in zip(names, reasons, strict=True):
        found.setdefault(reason, []).append(name)
    lines: list[list[TableCell]] = []
    for (why, data, cost), those in found.items():
        first = "; ".join(those[:MAX_LISTED_ROWS]) + (" …" if len(those) > MAX_LISTED_ROWS else "")
        lines.append([why, data, len(those), first, cost or "–"])
    return lines


def explain_missing_result(
    job: ExperimentRow, jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord], place: ExperimentContext
) -> str:
    """Why a job has no figures."""
    if job.name in results:
        return f"failed: {results[job.name]['failed']}"
    try:
        plan_corpora(job, place)
    except ExperimentFailed:
        return f"no data: `xmtc data get {job.settings['data']}` says where to put them"
    return (
        GPU_REQUIRED
        if any(each.settings.get("wants") == "GPU" for each in [job, *find_members(job, jobs)])
        else NOT_RUN_YET
    )


def format_commands(job: ExperimentRow, result: ResultRecord) -> tuple[str, str]:
    """A row's name, and its commands with where and when they ran."""
    versions = ", ".join(f"{name} {number}" for name, number in result.get("versions", {}).items())
    seed = "" if job.seed is None else f"seed {job.seed}"
    others = ", ".join(f"{name}={value}" for name, value in result.get("overrides", {}).items())
    where = [seed, result.get("machine", ""), versions, f"commit {result.get('commit', 'unknown')}"]
    where += [f"with {others}"] if others else []
    return job.name, "\n".join([*result.get("command", []), f"# {'; '.join(filter(None, where))}"])


def build_summary_table(sections: Sequence[PageSection]) -> ReportTable:
    """How far each table has come."""
    lines: list[list[TableCell]] = []
    for each in sections:
        reasons = "; ".join(dict.fromkeys(str(line[0]).partition(":")[0] for line in each.missing))
        lines.append([each.title, len(each.commands), each.n_missing, reasons or "–"])
    return ReportTable("all", "All tables", "", ["table", "run", "not run", "why not"], lines)


# The forms


def choose_renderer(path: str) -> Callable[[Sequence[PageSection]], str]:
    """What makes the page of that name; refused where it would write over something else."""
    folder = Path(path).absolute().parent
    forms = {".html": partial(render_page, folder=folder), ".md": partial(render_markdown, folder=folder)}
    kind = ".html" if path == "-" else Path(path).suffix.lower()
    if kind not in forms:
        raise XmtcError(f"-o {path} does not say what to write; expected a name that ends with .html or .md.")
    if path != "-" and Path(path).is_file() and Path(path).stat().st_size:
        head = Path(path).read_bytes()[:1000].decode("utf-8", "replace")
        if MARKDOWN_MARKER not in head and GENERATOR not in head:
            raise XmtcError(f"{path} exists and is no page of xmtc reproduce; choose another name or move it away.")
    if path != "-" and not Path(path).absolute().parent.is_dir():
        raise XmtcError(f"The folder of {path} is not there; make it, or choose another.")
    return forms[kind]


def render_markdown(sections: Sequence[PageSection], folder: Path) -> str:
    parts = [MARKDOWN_MARKER, f"# {PAGE_TITLE}", PAGE_NOTE, render_table_rows(build_summary_table(sections))]
    for each in sections:
        more = ", ".join(f"[{page.name}]({link})" for page, link in find_links(each, folder))
        parts += [f"## {each.title}", f"{each.note} More: {more}." if more else each.note]
        for table in each.tables:
            parts += [f"{table.title}:", render_table_rows(table)]
        if each.missing:
            parts += [
                render_details(format_missing_count(each.n_missing), render_table_rows(build_missing_table(each)))
            ]
        if each.commands:
            parts += [render_details("The commands, and where they ran", render_commands(each))]
    return "\n\n".join([*parts, ""])


def find_links(section: PageSection, folder: Path) -> list[tuple[Path, str]]:
    """The pages on a table that are there, and the way to them."""
    return [(page, os.path.relpath(page, folder)) for page in section.pages if page.is_file()]


def render_details(title: str, body: str) -> str:
    return f'<details markdown="1"><summary>{title}</summary>\n\n{body}\n\n</details>'


def render_table_rows(table: ReportTable) -> str:
    return render_markdown_rows(table.columns, table.rows)


def render_commands(section: PageSection) -> str:
    lines = "\n\n".join(f"# {name}\n{told}" for name, told in section.commands)
    return f"<pre>\n{escape_text(lines)}\n</pre>"


def format_missing_count(n: int) -> str:
    return "1 row not run" if n == 1 else f"{n} rows not run"


def build_missing_table(section: PageSection) -> ReportTable:
    title = f"Rows of {section.title} that have not been run"
    columns = ["why", "corpus", "rows", "they are", "expected cost of one"]
    return ReportTable(f"{section.key}-missing", title, "", columns, section.missing)


def render_page(sections: Sequence[PageSection], folder: Path) -> str:
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        GENERATOR,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{PAGE_TITLE}</title>",
        f"<style>\n{PAGE_STYLE}\n{WIDE_STYLE}\n</style>",
        "</head>",
        "<body>",
        f"<header><h1>{PAGE_TITLE}</h1><p>{escape_text(PAGE_NOTE)}</p></header>",
        f"<main>{render_contents(sections)}",
        *(render_section(each, folder) for each in sections),
        "</main>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(parts)


def render_contents(sections: Sequence[PageSection]) -> str:
    """The summary, whose titles lead to the tables."""
    table = render_table(build_summary_table(sections))
    for each in sections:
        title = escape_text(each.title)
        table = table.replace(f">{title}</th>", f'><a href="#{each.key}">{convert_code_marks(title)}</a></th>')
    return table


def insert_nonbreaking_spaces(table: str) -> str:
    """Without a new line within a figure and its deviation, or within brackets."""
    return re.sub(r"(?<=\d) ± (?=\d)", "&nbsp;±&nbsp;", re.sub(r"(\(\d+\.\d+,) ", r"\1&nbsp;", table))


def convert_code_marks(text: str) -> str:
    """What is code in Markdown, in HTML."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", text)


def render_section(each: PageSection, folder: Path) -> str:
    tables = "".join(
        f"<h3>{escape_text(table.title)}</h3>{insert_nonbreaking_spaces(render_table(table))}" for table in each.tables
    )
    missing, told = "", ""
    if each.missing:
        body = render_table(build_missing_table(each))
        missing = f"<details><summary>{format_missing_count(each.n_missing)}</summary>{body}</details>"
    if each.commands:
        told = f"<details><summary>The commands, and where they ran</summary>{render_commands(each)}</details>"
    note = convert_code_marks(escape_text(each.note))
    more = ", ".join(
        f'<a href="{escape_text(link)}">{escape_text(page.name)}</a>' for page, link in find_links(each, folder)
    )
    note += f" More: {more}." if more else ""
    head = f"<h2>{convert_code_marks(escape_text(each.title))}</h2>\n<p>{note}</p>"
    return f'<section id="{each.key}">\n{head}\n{tables}{missing}{told}\n</section>'

"""One page of many tables: what was published, what was measured, the difference, by whom and with which commands; and
what has not been run, and why."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from xmtc.analysis.report.files import markdown_rows
from xmtc.analysis.report.page import STYLE, rows
from xmtc.analysis.report.shown import Cell, Table
from xmtc.errors import XmtcError
from xmtc.experiments.commands import Failed, Place, preparing
from xmtc.experiments.keeping import Result
from xmtc.experiments.rows import FOLDER, Experiment, Job, members
from xmtc.experiments.tables import COSTS, by_row, groups, lines_of, short_name
from xmtc.explain.highlights import escaped

TITLE = "Published and measured"
NOTE = (
    "Figures in percent, of test documents unless a table says otherwise: measured (published, difference); several "
    "seeds are mean ± deviation. A dash is a figure that was published and not measured. Where data differ from the "
    "paper's, the source says so, and the difference is no verdict."
)
MARK = "<!-- xmtc reproduce -->"  # by which a page of ours is known
GENERATOR = '<meta name="generator" content="xmtc reproduce">'
# Tables of many columns: figures are not broken, and what is too wide scrolls.
WIDER = """
@page { size: landscape }
body { max-width: 80rem }
th, td { overflow-wrap: normal }
pre { white-space: pre-wrap; font-size: .8rem }
""".strip()
NOT_YET, WANTS_GPU = "not run yet", "a GPU wanted"
SOME = 6  # names of rows that are told of many


@dataclass(frozen=True)
class Section:
    """A table, and what stands around it."""

    key: str
    title: str
    note: str
    tables: list[Table]
    n_missing: int
    missing: list[list[Cell]]  # rows without a result, by why there is none
    pages: list[Path] = field(default_factory=list)  # that speak of it
    commands: list[tuple[str, str]] = field(default_factory=list)  # of a row; what they are and where they ran


def sections_of(experiment: Experiment, results: dict[str, Result], place: Place) -> list[Section]:
    """The section of a table."""
    tables = []
    for number, (data, jobs) in enumerate(groups(experiment), 1):
        if any(is_measured(job, results) or job.row.get("published") for job in jobs):
            tables.append(table_of(f"{experiment.name}-{number}", data, jobs, results))
    left = [job for job in experiment.jobs if not is_measured(job, results)]
    reasons = [
        (why_not(job, experiment.jobs, results, place), job.row["data"], job.row.get("cost", "")) for job in left
    ]
    missing = grouped([job.name for job in left], reasons)
    told = [command_of(job, results[job.name]) for job in experiment.jobs if is_measured(job, results)]
    note = f"{experiment.note} Run by `xmtc reproduce {shown_path(experiment.path)}`.".strip()
    pages = [experiment.path.resolve().parent.parent / page for page in experiment.pages]
    return [Section(experiment.name, experiment.title, note, tables, len(left), missing, pages, told)]


def shown_path(path: Path) -> str:
    """Without the folders of this machine."""
    return f"{path.parent.name}/{path.name}" if path.parent.name == FOLDER else path.name


def is_measured(job: Job, results: dict[str, Result]) -> bool:
    return "failed" not in results.get(job.name, {"failed": ""})


def table_of(key: str, data: str, jobs: Sequence[Job], results: dict[str, Result]) -> Table:
    """Costs that no row has are left out, and rows that have neither been run nor published."""
    head, *lines = lines_of(jobs, results)
    kept, published = by_row(jobs, results), {short_name(job.row): job.row.get("published") for job in jobs}
    done = {short_name(job.row) for job in jobs if any("failed" not in each for each in kept[job.row["name"]])}
    lines = [line for line in lines if line[0] in done or published[line[0]]]
    costs = range(len(head) - 1 - len(COSTS), len(head) - 1)
    for line in lines:
        if line[0] not in done:
            line[costs[0]] = ""  # the reason stands among what was not run
    wanted = [place for place in range(len(head)) if place not in costs or any(line[place] for line in lines)]
    wanted = [place for place in wanted if place < len(head) - 1 or any(line[place] for line in lines)]
    shown: list[list[Cell]] = [[line[place] or "–" for place in wanted] for line in lines]
    return Table(key, data, "", [head[place] or "row" for place in wanted], shown)


def grouped(names: Sequence[str], reasons: Sequence[tuple[str, str, str]]) -> list[list[Cell]]:
    """A line for each reason, corpus and cost: what they are, how many rows it holds for, and the first of them."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, reason in zip(names, reasons, strict=True):
        found.setdefault(reason, []).append(name)
    lines: list[list[Cell]] = []
    for (why, data, cost), those in found.items():
        first = "; ".join(those[:SOME]) + (" …" if len(those) > SOME else "")
        lines.append([why, data, len(those), first, cost or "–"])
    return lines


def why_not(job: Job, jobs: Sequence[Job], results: dict[str, Result], place: Place) -> str:
    """Why a job has no figures."""
    if job.name in results:
        return f"failed: {results[job.name]['failed']}"
    try:
        preparing(job, place)
    except Failed:
        return f"no data: `xmtc data get {job.row['data']}` says where to put them"
    return WANTS_GPU if any(each.row.get("wants") == "GPU" for each in [job, *members(job, jobs)]) else NOT_YET


def command_of(job: Job, result: Result) -> tuple[str, str]:
    """A row's name, and its commands with where and when they ran."""
    versions = ", ".join(f"{name} {number}" for name, number in result.get("versions", {}).items())
    seed = "" if job.seed is None else f"seed {job.seed}"
    others = ", ".join(f"{name}={value}" for name, value in result.get("overrides", {}).items())
    where = [seed, result.get("machine", ""), versions, f"commit {result.get('commit', 'unknown')}"]
    where += [f"with {others}"] if others else []
    return job.name, "\n".join([*result.get("command", []), f"# {'; '.join(filter(None, where))}"])


def summary(sections: Sequence[Section]) -> Table:
    """How far each table has come."""
    lines: list[list[Cell]] = []
    for each in sections:
        reasons = "; ".join(dict.fromkeys(str(line[0]).partition(":")[0] for line in each.missing))
        lines.append([each.title, len(each.commands), each.n_missing, reasons or "–"])
    return Table("all", "All tables", "", ["table", "run", "not run", "why not"], lines)


# The forms


def form_of(path: str) -> Callable[[Sequence[Section]], str]:
    """What makes the page of that name; refused where it would write over something else."""
    folder = Path(path).absolute().parent
    forms = {".html": partial(page, folder=folder), ".md": partial(markdown, folder=folder)}
    kind = ".html" if path == "-" else Path(path).suffix.lower()
    if kind not in forms:
        raise XmtcError(f"-o {path} does not say what to write; expected a name that ends with .html or .md.")
    if path != "-" and Path(path).is_file() and Path(path).stat().st_size:
        head = Path(path).read_bytes()[:1000].decode("utf-8", "replace")
        if MARK not in head and GENERATOR not in head:
            raise XmtcError(f"{path} exists and is no page of xmtc reproduce; choose another name or move it away.")
    if path != "-" and not Path(path).absolute().parent.is_dir():
        raise XmtcError(f"The folder of {path} is not there; make it, or choose another.")
    return forms[kind]


def markdown(sections: Sequence[Section], folder: Path) -> str:
    parts = [MARK, f"# {TITLE}", NOTE, markdown_lines(summary(sections))]
    for each in sections:
        more = ", ".join(f"[{page.name}]({link})" for page, link in links(each, folder))
        parts += [f"## {each.title}", f"{each.note} More: {more}." if more else each.note]
        for table in each.tables:
            parts += [f"{table.title}:", markdown_lines(table)]
        if each.missing:
            parts += [folded(rows_of(each.n_missing), markdown_lines(not_run(each)))]
        if each.commands:
            parts += [folded("The commands, and where they ran", commands(each))]
    return "\n\n".join([*parts, ""])


def links(section: Section, folder: Path) -> list[tuple[Path, str]]:
    """The pages on a table that are there, and the way to them."""
    return [(page, os.path.relpath(page, folder)) for page in section.pages if page.is_file()]


def folded(title: str, body: str) -> str:
    return f'<details markdown="1"><summary>{title}</summary>\n\n{body}\n\n</details>'


def markdown_lines(table: Table) -> str:
    return markdown_rows(table.columns, table.rows)


def commands(section: Section) -> str:
    lines = "\n\n".join(f"# {name}\n{told}" for name, told in section.commands)
    return f"<pre>\n{escaped(lines)}\n</pre>"


def rows_of(n: int) -> str:
    return "1 row not run" if n == 1 else f"{n} rows not run"


def not_run(section: Section) -> Table:
    title = f"Rows of {section.title} that have not been run"
    columns = ["why", "corpus", "rows", "they are", "expected cost of one"]
    return Table(f"{section.key}-missing", title, "", columns, section.missing)


def page(sections: Sequence[Section], folder: Path) -> str:
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        GENERATOR,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{TITLE}</title>",
        f"<style>\n{STYLE}\n{WIDER}\n</style>",
        "</head>",
        "<body>",
        f"<header><h1>{TITLE}</h1><p>{escaped(NOTE)}</p></header>",
        f"<main>{contents(sections)}",
        *(section(each, folder) for each in sections),
        "</main>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(parts)


def contents(sections: Sequence[Section]) -> str:
    """The summary, whose titles lead to the tables."""
    table = rows(summary(sections))
    for each in sections:
        title = escaped(each.title)
        table = table.replace(f">{title}</th>", f'><a href="#{each.key}">{without_marks(title)}</a></th>')
    return table


def unbroken(table: str) -> str:
    """Without a new line within a figure and its deviation, or within brackets."""
    return re.sub(r"(?<=\d) ± (?=\d)", "&nbsp;±&nbsp;", re.sub(r"(\(\d+\.\d+,) ", r"\1&nbsp;", table))


def without_marks(text: str) -> str:
    """What is code in Markdown, in HTML."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", text)


def section(each: Section, folder: Path) -> str:
    tables = "".join(f"<h3>{escaped(table.title)}</h3>{unbroken(rows(table))}" for table in each.tables)
    missing, told = "", ""
    if each.missing:
        body = rows(not_run(each))
        missing = f"<details><summary>{rows_of(each.n_missing)}</summary>{body}</details>"
    if each.commands:
        told = f"<details><summary>The commands, and where they ran</summary>{commands(each)}</details>"
    note = without_marks(escaped(each.note))
    more = ", ".join(f'<a href="{escaped(link)}">{escaped(page.name)}</a>' for page, link in links(each, folder))
    note += f" More: {more}." if more else ""
    head = f"<h2>{without_marks(escaped(each.title))}</h2>\n<p>{note}</p>"
    return f'<section id="{each.key}">\n{head}\n{tables}{missing}{told}\n</section>'

"""Markdown of results: published and measured figures, their difference, commands, and rows that were not run."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.commands import ExperimentContext, ExperimentFailed, plan_corpora
from experiments.rows import TABLES_FOLDER, Experiment, ExperimentRow, find_members, load_experiment
from xmtc.analysis.report.files import render_markdown_rows
from xmtc.analysis.result_files import ResultRecord, load_results
from xmtc.explain.html import escape_text

PAGE_TITLE = "Published and measured"
PAGE_NOTE = (
    "Percent on test documents unless a table says otherwise: measured (published, difference); several "
    "seeds are mean ± standard deviation. Published seconds in parentheses are of the paper's machine. "
    "A dash marks a published figure that was not measured. Where the data "
    "differ from the paper's, the source column says so."
)
COST_COLUMNS = {
    "train_s": "training s",
    "train_cpu_s": "CPU s",
    "evaluate_s": "evaluation s",
    "peak_mb": "peak MB",
    "model_mb": "model MB",
}
SIDE_BY_SIDE_METRICS = ("P@1", "P@3", "P@5")
NOT_RUN_YET, GPU_REQUIRED = "not run yet", "needs a GPU"
MAX_LISTED_ROWS = 6


@dataclass(frozen=True)
class ExperimentSection:
    """Section of the page: one experiment."""

    key: str
    title: str
    note: str
    tables: list[tuple[str, list[str], list[list[str]]]]  # title, header, rows
    n_missing: int
    missing: list[list[str]]  # rows without a result, by reason
    pages: list[Path] = field(default_factory=list)  # documentation pages about it
    commands: list[tuple[str, str]] = field(default_factory=list)  # row name, commands with machine and versions


def build_sections(
    experiment: Experiment, results: dict[str, ResultRecord], place: ExperimentContext
) -> ExperimentSection:
    """Return the section of an experiment."""
    tables = []
    for data, jobs in group_rows(experiment):
        if any(is_measured(job, results) or job.settings.get("published") for job in jobs):
            tables.append((data, *build_results_table(jobs, results)))
    tables += [build_ranks_table(experiment)] if experiment.ranks else []
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
    note = f"{experiment.note} Run with `python -m experiments run {experiment.name}`.".strip()
    pages = [experiment.path.resolve().parent.parent / page for page in experiment.pages]
    return ExperimentSection(experiment.name, experiment.title, note, tables, len(left), missing, pages, told)


def is_measured(job: ExperimentRow, results: dict[str, ResultRecord]) -> bool:
    return "failed" not in results.get(job.name, {"failed": ""})


def build_results_table(
    jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord]
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows, without cost columns that are empty and rows that were neither run nor published."""
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
    timed = {make_short_name(job.settings) for job in jobs if "published_minutes" in job.settings}
    for line in lines:
        if line[0] not in done | timed:
            line[costs[0]] = ""  # the list of missing rows has the reason
    wanted = [place for place in range(len(head)) if place not in costs or any(line[place] for line in lines)]
    wanted = [place for place in wanted if place < len(head) - 1 or any(line[place] for line in lines)]
    shown = [[line[place] or "–" for place in wanted] for line in lines]
    return [head[place] or "row" for place in wanted], shown


def build_ranks_table(experiment: Experiment) -> tuple[str, list[str], list[list[str]]]:
    """Return title, header and rows of published average ranks, beside those of the published figures."""
    header, columns = [""], []
    for kind in experiment.ranks:
        paths = [experiment.path.with_name(f"{name}.toml") for name in kind["tables"]]
        header += [f"{kind['name']}, printed", f"{kind['name']}, of the printed figures"]
        columns += [kind["published"], compute_published_ranks(paths, kind["measures"])]
    lines = [[name, *(f"{column[name]:.2f}" for column in columns)] for name in columns[0]]
    return "Average ranks of the published figures", header, lines


def compute_published_ranks(paths: Sequence[Path], measures: Sequence[str]) -> dict[str, float]:
    """Return each method's average rank over corpora and metrics; of equal figures, each has the better rank."""
    found: dict[str, dict[str, list[float]]] = {}  # published figures by corpus, then by method
    for job in (job for path in paths for job in load_experiment(path).rows):
        if "method" in job.settings and "published" in job.settings:
            figures = [job.settings["published"][name] for name in measures]
            found.setdefault(job.settings["data"], {}).setdefault(job.settings["method"], figures)
    ranks: dict[str, list[float]] = {}
    for by_method in found.values():
        columns = list(zip(*by_method.values(), strict=True))
        for method, figures in by_method.items():
            placed = zip(figures, columns, strict=True)
            ranks.setdefault(method, []).extend(1 + sum(other > own for other in column) for own, column in placed)
    return {method: statistics.mean(values) for method, values in ranks.items()}


def group_missing_rows(names: Sequence[str], reasons: Sequence[tuple[str, str, str]]) -> list[list[str]]:
    """Return one line per reason, corpus and cost, with the number of rows and the names of the first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, reason in zip(names, reasons, strict=True):
        found.setdefault(reason, []).append(name)
    lines: list[list[str]] = []
    for (why, data, cost), those in found.items():
        first = "; ".join(those[:MAX_LISTED_ROWS]) + (" …" if len(those) > MAX_LISTED_ROWS else "")
        lines.append([why, data, str(len(those)), first, cost or "–"])
    return lines


def explain_missing_result(
    job: ExperimentRow, jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord], place: ExperimentContext
) -> str:
    """Return why a row has no figures."""
    if job.name in results:
        return f"failed: {results[job.name]['failed']}"
    try:
        plan_corpora(job, place)
    except ExperimentFailed:
        return f"no data; see `python -m experiments get {job.settings['data']}`"
    return (
        GPU_REQUIRED
        if any(each.settings.get("wants") == "GPU" for each in [job, *find_members(job, jobs)])
        else NOT_RUN_YET
    )


def format_commands(job: ExperimentRow, result: ResultRecord) -> tuple[str, str]:
    """Return a row's name and its commands with machine and versions."""
    versions = ", ".join(f"{name} {number}" for name, number in result.get("versions", {}).items())
    seed = "" if job.seed is None else f"seed {job.seed}"
    others = ", ".join(f"{name}={value}" for name, value in result.get("overrides", {}).items())
    where = [seed, result.get("machine", ""), versions, f"commit {result.get('commit', 'unknown')}"]
    where += [f"with {others}"] if others else []
    return job.name, "\n".join([*result.get("command", []), f"# {'; '.join(filter(None, where))}"])


def render_page(sections: Sequence[ExperimentSection], folder: Path) -> str:
    """Return the page in Markdown; links are relative to `folder`."""
    summary = [[s.title, str(len(s.commands)), str(s.n_missing), summarize_reasons(s)] for s in sections]
    parts = [f"# {PAGE_TITLE}", PAGE_NOTE, render_markdown_rows(["table", "run", "not run", "why not"], summary)]
    for section in sections:
        links = ", ".join(f"[{page.name}]({os.path.relpath(page, folder)})" for page in section.pages if page.is_file())
        parts += [f"## {section.title}", f"{section.note} More: {links}." if links else section.note]
        for title, header, rows in section.tables:
            parts += [f"{title}:", render_markdown_rows(header, rows)]
        if section.missing:
            parts.append(render_details(f"Rows not run: {section.n_missing}", render_missing_rows(section)))
        if section.commands:
            parts.append(render_details("Commands and machines", render_commands(section)))
    return "\n\n".join([*parts, ""])


def summarize_reasons(section: ExperimentSection) -> str:
    return "; ".join(dict.fromkeys(line[0].partition(":")[0] for line in section.missing)) or "–"


def render_missing_rows(section: ExperimentSection) -> str:
    return render_markdown_rows(["why", "corpus", "rows", "names", "expected cost of one"], section.missing)


def render_details(title: str, body: str) -> str:
    return f'<details markdown="1"><summary>{title}</summary>\n\n{body}\n\n</details>'


def render_commands(section: ExperimentSection) -> str:
    lines = "\n\n".join(f"# {name}\n{commands}" for name, commands in section.commands)
    return f"<pre>\n{escape_text(lines)}\n</pre>"


def render_table_markdown(experiment: Experiment, results: dict[str, ResultRecord]) -> str:
    """Return the results of one experiment as Markdown tables, one per corpus."""
    parts = [experiment.title]
    corpora = {job.settings["data"] for job in experiment.rows}
    for data, jobs in group_rows(experiment):
        head, *lines = build_lines(jobs, results)
        parts += [f"{data}:"] if len(corpora) > 1 else []
        parts.append(render_markdown_rows(head, lines))
    return "\n\n".join(parts)


def group_rows(experiment: Experiment) -> list[tuple[str, list[ExperimentRow]]]:
    """Return the rows by corpus; comparisons, which have other metrics, apart."""
    corpora = dict.fromkeys(job.settings["data"] for job in experiment.rows)
    found = []
    for data, is_comparison in ((data, each) for data in corpora for each in (False, True)):
        of_data = [job for job in experiment.rows if job.settings["data"] == data]
        if jobs := [job for job in of_data if ("compare" in job.settings) == is_comparison]:
            found.append((data, jobs))
    return found


def build_lines(jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord]) -> list[list[str]]:
    """Return the header and one line per row."""
    found = group_results(jobs, results)
    columns = list_metric_columns(jobs, results)
    rows = {job.settings["name"]: job.settings for job in jobs}
    head = ["", *columns, *COST_COLUMNS.values(), "source"]
    return [head, *(build_row_cells(rows[name], kept, columns) for name, kept in found.items())]


def render_side_by_side(entries: Sequence[dict[str, Any]], folder: Path | None = None) -> str:
    """Return a table per system: label, P@k, cost and command of published and measured rows."""
    parts = []
    for entry in entries:
        lines = [build_side_by_side_cells(row, folder or TABLES_FOLDER) for row in entry["rows"]]
        header = ["", *SIDE_BY_SIDE_METRICS, "training s", "machine", "command"]
        parts += [f"**{entry['title']}.** {entry['note']}", render_markdown_rows(header, lines)]
    return "\n\n".join(parts)


def build_side_by_side_cells(row: dict[str, Any], folder: Path) -> list[str]:
    experiment = load_experiment(folder / f"{row['table']}.toml")
    jobs = [job for job in experiment.rows if job.settings["name"] == row["row"]]
    if not jobs:
        raise ExperimentFailed(f"{experiment.path}: there is no row {row['row']!r}")
    if row.get("is_published"):
        published = jobs[0].settings["published"]
        return [row["label"], *(f"{published[name]:.2f}" for name in SIDE_BY_SIDE_METRICS), "", "", ""]
    stored = load_results(folder / "results" / f"{row['table']}.json")
    good = [result for result in group_results(jobs, stored)[row["row"]] if "failed" not in result]
    if not good:
        command = f"`python -m experiments run {row['table']} --only '{row['row']}'`"
        return [row["label"], *["not run"] * len(SIDE_BY_SIDE_METRICS), "", "", command]
    figures = [format_metric([result["figures"].get(name) for result in good], None) for name in SIDE_BY_SIDE_METRICS]
    seconds = format_mean_and_deviation([result["train_s"] for result in good], 0)
    command = re.sub(r" -o \S+", "", good[0]["command"][0])
    return [row["label"], *figures, seconds, good[0].get("machine", ""), f"`{command}`"]


def group_results(jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord]) -> dict[str, list[ResultRecord]]:
    """Return the stored results of each row, of all its seeds."""
    found: dict[str, list[ResultRecord]] = {job.settings["name"]: [] for job in jobs}
    for job in jobs:
        found[job.settings["name"]] += [results[job.name]] if job.name in results else []
    return found


def list_metric_columns(jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord]) -> list[str]:
    """Return the names of the measured and published metrics, in the order of the table."""
    kept = [results[job.name].get("figures", {}) for job in jobs if job.name in results]
    published = [job.settings.get("published", {}) for job in jobs]
    found = dict.fromkeys(name for figures in [*kept, *published] for name in figures)
    asked = [name for job in jobs for name in job.settings["measures"] if name in found]
    return list(dict.fromkeys([*asked, *found]))


def build_row_cells(row: dict[str, Any], kept: Sequence[ResultRecord], columns: Sequence[str]) -> list[str]:
    good, published = [result for result in kept if "failed" not in result], row.get("published", {})
    name, source = make_short_name(row), row.get("source", "")
    if not good and not published:
        return [name, format_missing_reason(kept), *[""] * (len(columns) + len(COST_COLUMNS))]
    figures = [
        format_metric([result["figures"].get(column) for result in good], published.get(column)) for column in columns
    ]
    minutes = row.get("published_minutes", {})
    costs = [
        format_cost([result[cost] for result in good if result.get(cost) is not None], minutes.get(cost))
        for cost in COST_COLUMNS
    ]
    if not good and not minutes:
        costs[0] = format_missing_reason(kept)
    return [name, *figures, *costs, source]


def format_missing_reason(kept: Sequence[ResultRecord]) -> str:
    return f"failed: {kept[0]['failed']}" if kept else "not run"


def make_short_name(row: dict[str, Any]) -> str:
    """Return the name without the corpus, which the table's title has."""
    return row["name"].removesuffix(f", {row['data']}")


def format_metric(values: Sequence[float | None], published: float | None) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "" if published is None else f"– ({published:.2f})"
    measured = format_mean_and_deviation(known, 2)
    return measured if published is None else f"{measured} ({published:.2f}, {statistics.mean(known) - published:+.2f})"


def format_cost(values: Sequence[float], published_minutes: float | None) -> str:
    measured = format_mean_and_deviation(values, 1)
    return measured if published_minutes is None else f"{measured or '–'} ({60 * published_minutes:,.0f})"


def format_mean_and_deviation(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"

"""The results of a table as rows of cells: measured figures in percent, in brackets what was published and the
difference; of several seeds the mean and the deviation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from xmtc.analysis.report.files import render_markdown_rows
from xmtc.analysis.result_files import ResultRecord
from xmtc.experiments.rows import Experiment, ExperimentRow

COST_COLUMNS = {
    "train_s": "training s",
    "train_cpu_s": "CPU s",
    "evaluate_s": "evaluation s",
    "peak_mb": "peak MB",
    "model_mb": "model MB",
}
TableLine = list[str]


def render_table_markdown(experiment: Experiment, results: dict[str, ResultRecord]) -> str:
    """Each corpus has a table of its own, and comparisons, which have other figures."""
    parts = [experiment.title]
    corpora = {job.settings["data"] for job in experiment.rows}
    for data, jobs in group_rows(experiment):
        head, *lines = build_lines(jobs, results)
        parts += [f"{data}:"] if len(corpora) > 1 else []
        parts.append(render_markdown_rows(head, lines))
    return "\n\n".join(parts)


def group_rows(experiment: Experiment) -> list[tuple[str, list[ExperimentRow]]]:
    """The jobs whose figures stand in one table, and their corpus."""
    corpora = dict.fromkeys(job.settings["data"] for job in experiment.rows)
    found = []
    for data, is_comparison in ((data, each) for data in corpora for each in (False, True)):
        of_data = [job for job in experiment.rows if job.settings["data"] == data]
        if jobs := [job for job in of_data if ("compare" in job.settings) == is_comparison]:
            found.append((data, jobs))
    return found


def build_lines(jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord]) -> list[TableLine]:
    """The head, and a line for each row."""
    found = group_results(jobs, results)
    columns = list_metric_columns(jobs, results)
    rows = {job.settings["name"]: job.settings for job in jobs}
    head = ["", *columns, *COST_COLUMNS.values(), "source"]
    return [head, *(build_row_cells(rows[name], kept, columns) for name, kept in found.items())]


def group_results(jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord]) -> dict[str, list[ResultRecord]]:
    """What is kept of each row, of all its seeds."""
    found: dict[str, list[ResultRecord]] = {job.settings["name"]: [] for job in jobs}
    for job in jobs:
        found[job.settings["name"]] += [results[job.name]] if job.name in results else []
    return found


def list_metric_columns(jobs: Sequence[ExperimentRow], results: dict[str, ResultRecord]) -> list[str]:
    """The names of figures that were measured; and before any was, of those that were published."""
    kept = [results[job.name].get("figures", {}) for job in jobs if job.name in results]
    published = [job.settings.get("published", {}) for job in jobs]
    found = dict.fromkeys(name for figures in [*kept, *published] for name in figures)
    asked = [name for job in jobs for name in job.settings["measures"] if name in found]
    return list(dict.fromkeys([*asked, *found]))  # in the order in which the table asks for them


def build_row_cells(row: dict[str, Any], kept: Sequence[ResultRecord], columns: Sequence[str]) -> TableLine:
    """A row of the table."""
    good, published = [result for result in kept if "failed" not in result], row.get("published", {})
    name, source = make_short_name(row), row.get("source", "")
    if not good and not published:
        return [name, format_missing_reason(kept), *[""] * (len(columns) + len(COST_COLUMNS))]
    figures = [
        format_metric([result["figures"].get(column) for result in good], published.get(column)) for column in columns
    ]
    costs = [
        format_mean_and_deviation([result[cost] for result in good if result.get(cost) is not None], 1)
        for cost in COST_COLUMNS
    ]
    if not good:
        costs[0] = format_missing_reason(kept)
    return [name, *figures, *costs, source]


def format_missing_reason(kept: Sequence[ResultRecord]) -> str:
    return f"failed: {kept[0]['failed']}" if kept else "not run"


def make_short_name(row: dict[str, Any]) -> str:
    """Without the corpus, which stands above its table."""
    return row["name"].removesuffix(f", {row['data']}")


def format_metric(values: Sequence[float | None], published: float | None) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "" if published is None else f"– ({published:.2f})"
    measured = format_mean_and_deviation(known, 2)
    return measured if published is None else f"{measured} ({published:.2f}, {statistics.mean(known) - published:+.2f})"


def format_mean_and_deviation(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"

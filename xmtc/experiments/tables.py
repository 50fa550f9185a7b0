"""The results of a table as rows of cells: measured figures in percent, in brackets what was published and the
difference; of several seeds the mean and the deviation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from xmtc.analysis.report.files import markdown_rows
from xmtc.experiments.keeping import Result
from xmtc.experiments.rows import Experiment, Job

COSTS = {
    "train_s": "training s",
    "train_cpu_s": "CPU s",
    "evaluate_s": "evaluation s",
    "peak_mb": "peak MB",
    "model_mb": "model MB",
}
Line = list[str]


def markdown(experiment: Experiment, results: dict[str, Result]) -> str:
    """Each corpus has a table of its own, and comparisons, which have other figures."""
    parts = [experiment.title]
    corpora = {job.row["data"] for job in experiment.jobs}
    for data, jobs in groups(experiment):
        head, *lines = lines_of(jobs, results)
        parts += [f"{data}:"] if len(corpora) > 1 else []
        parts.append(markdown_rows(head, lines))
    return "\n\n".join(parts)


def groups(experiment: Experiment) -> list[tuple[str, list[Job]]]:
    """The jobs whose figures stand in one table, and their corpus."""
    corpora = dict.fromkeys(job.row["data"] for job in experiment.jobs)
    found = []
    for data, is_comparison in ((data, each) for data in corpora for each in (False, True)):
        of_data = [job for job in experiment.jobs if job.row["data"] == data]
        if jobs := [job for job in of_data if ("compare" in job.row) == is_comparison]:
            found.append((data, jobs))
    return found


def lines_of(jobs: Sequence[Job], results: dict[str, Result]) -> list[Line]:
    """The head, and a line for each row."""
    found = by_row(jobs, results)
    columns = columns_of(jobs, results)
    rows = {job.row["name"]: job.row for job in jobs}
    head = ["", *columns, *COSTS.values(), "source"]
    return [head, *(cells(rows[name], kept, columns) for name, kept in found.items())]


def by_row(jobs: Sequence[Job], results: dict[str, Result]) -> dict[str, list[Result]]:
    """What is kept of each row, of all its seeds."""
    found: dict[str, list[Result]] = {job.row["name"]: [] for job in jobs}
    for job in jobs:
        found[job.row["name"]] += [results[job.name]] if job.name in results else []
    return found


def columns_of(jobs: Sequence[Job], results: dict[str, Result]) -> list[str]:
    """The names of figures that were measured; and before any was, of those that were published."""
    kept = [results[job.name].get("figures", {}) for job in jobs if job.name in results]
    published = [job.row.get("published", {}) for job in jobs]
    found = dict.fromkeys(name for figures in [*kept, *published] for name in figures)
    asked = [name for job in jobs for name in job.row["measures"] if name in found]
    return list(dict.fromkeys([*asked, *found]))  # in the order in which the table asks for them


def cells(row: dict[str, Any], kept: Sequence[Result], columns: Sequence[str]) -> Line:
    """A row of the table."""
    good, published = [result for result in kept if "failed" not in result], row.get("published", {})
    name, source = short_name(row), row.get("source", "")
    if not good and not published:
        return [name, why_not(kept), *[""] * (len(columns) + len(COSTS))]
    figures = [cell([result["figures"].get(column) for result in good], published.get(column)) for column in columns]
    costs = [spread([result[cost] for result in good if result.get(cost) is not None], 1) for cost in COSTS]
    if not good:
        costs[0] = why_not(kept)
    return [name, *figures, *costs, source]


def why_not(kept: Sequence[Result]) -> str:
    return f"failed: {kept[0]['failed']}" if kept else "not run"


def short_name(row: dict[str, Any]) -> str:
    """Without the corpus, which stands above its table."""
    return row["name"].removesuffix(f", {row['data']}")


def cell(values: Sequence[float | None], published: float | None) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "" if published is None else f"– ({published:.2f})"
    measured = spread(known, 2)
    return measured if published is None else f"{measured} ({published:.2f}, {statistics.mean(known) - published:+.2f})"


def spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"

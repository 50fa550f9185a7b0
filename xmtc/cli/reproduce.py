"""xmtc reproduce: the tables of papers, run with the commands that a user has, beside what was published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.experiments.commands import ExperimentContext
    from xmtc.experiments.rows import Experiment
    from xmtc.experiments.runner import ExperimentOutcome


def reproduce(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE…]", help="tables: .toml files, or names of the repository's")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="ROW …", help="rows to run, by their names")] = None,
    report: Annotated[bool, typer.Option("--report", help="run nothing: a page of what is kept (all tables)")] = False,
    table: Annotated[bool, typer.Option("--table", help="run nothing: print what is kept, in Markdown")] = False,
    output: Annotated[str, typer.Option("-o", "--output", help="page to write: .html or .md")] = "reproduced.html",
    data: Annotated[
        Path | None,
        typer.Option(help="folder of the corpora's folders (../shared/data beside the checkout, or the cache)"),
    ] = None,
    work: Annotated[Path, typer.Option(help="folder for models")] = Path("build/experiments"),
    results: Annotated[Path | None, typer.Option(help="folder for results (results, beside FILE)")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="rows at a time")] = 1,
    param: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, instead of what rows have; repeatable")] = None,
    device: Annotated[str | None, typer.Option(help="for every command: cpu, cuda, cuda:1")] = None,
    threads: Annotated[int | None, typer.Option(min=0, help="for every command")] = None,
    limit: Annotated[float | None, typer.Option(min=0, help="seconds after which a training is ended")] = None,
    machine: Annotated[str | None, typer.Option(help="what results say of the machine")] = None,
    commit: Annotated[str | None, typer.Option(help="what they say of the commit, where git cannot tell")] = None,
) -> None:
    """Run the rows of a paper's table that have no result yet; or make a page: published, measured, difference."""
    from xmtc.errors import XmtcError
    from xmtc.experiments.rows import find_table, load_experiment

    names, rows = split_files_and_rows(files or [], only or [])
    if not names and not report:
        raise XmtcError("Which table? Give its file, such as experiments/rivals.toml, or --report for a page of all.")
    if report:
        write_report(names, output, results, data)
        return
    said = {"--device": device, "--threads": None if threads is None else str(threads)}
    options = tuple(word for name, value in said.items() if value for word in (name, value))
    went_well = True
    for name in names:
        experiment = load_experiment(find_table(name))
        place = build_place(experiment.path, data, work, results)
        if table:
            print_markdown_table(experiment, place)
        else:
            place = configure_place(place, param or [], options, limit, machine, commit)
            went_well &= report_outcome(run_rows(experiment, rows, jobs, place))
    if not went_well:
        raise typer.Exit(1)


def split_files_and_rows(words: list[str], only: list[str]) -> tuple[list[str], list[str]]:
    """`FILE --only ONE OTHER`: after --only, what is no file is a row."""
    if not only:
        return words, []
    files = [word for word in words if word.endswith(".toml")] or words[:1]
    return files, [*only, *(word for word in words if word not in files)]


def build_place(path: Path, data: Path | None, work: Path, results: Path | None) -> ExperimentContext:
    """Corpora lie beside the checkout that the table is of, or where `xmtc data get` has them."""
    import os

    from xmtc.data.catalogue import corpora_folder
    from xmtc.experiments.commands import SHARED_DATA_FOLDER, ExperimentContext

    beside = Path(os.path.normpath(path.resolve().parent.parent / SHARED_DATA_FOLDER))
    folders = (beside, corpora_folder()) if data is None else (Path(os.path.normpath(data)),)
    return ExperimentContext(folders, work, results or path.parent / "results")


def configure_place(
    place: ExperimentContext,
    param: list[str],
    options: tuple[str, ...],
    limit: float | None,
    machine: str | None,
    commit: str | None,
) -> ExperimentContext:
    from dataclasses import replace

    from xmtc.analysis.result_files import describe_environment, list_gpus
    from xmtc.errors import XmtcError

    if wrong := [pair for pair in param if "=" not in pair]:
        raise XmtcError(f"--param {wrong[0]} must be NAME=VALUE.")
    overrides = dict(pair.split("=", 1) for pair in param)
    has_gpu = "--device" in options or bool(list_gpus())
    here = describe_environment(machine, commit)
    return replace(place, overrides=overrides, options=options, limit_seconds=limit, environment=here, has_gpu=has_gpu)


def run_rows(experiment: Experiment, rows: list[str], jobs: int, place: ExperimentContext) -> ExperimentOutcome:
    from xmtc.experiments.runner import run_missing_rows

    return run_missing_rows(experiment, rows, jobs, place, lambda line: echo(line, err=": failed: " in line))


def report_outcome(outcome: ExperimentOutcome) -> bool:
    """Say what was not run; whether all is well."""
    if n := len(outcome.reused):
        which = "1 row has a stored result, which is" if n == 1 else f"{n} rows have stored results, which are"
        echo(f"{which} taken; --table prints all.", err=True)
    for why in dict.fromkeys(outcome.skipped.values()):
        left = [name for name, reason in outcome.skipped.items() if reason == why]
        echo(f"Not run: {', '.join(left)}: {why}", err=True)
    return not outcome.failed and not outcome.skipped


def print_markdown_table(experiment: Experiment, place: ExperimentContext) -> None:
    from xmtc.analysis.result_files import load_results
    from xmtc.experiments.tables import render_table_markdown

    echo(render_table_markdown(experiment, load_results(place.get_results_path(experiment.name))))


def write_report(names: list[str], output: str, results: Path | None, data: Path | None) -> None:
    from xmtc.analysis.result_files import load_results
    from xmtc.data.file_streams import open_output
    from xmtc.errors import XmtcError, escape_controls
    from xmtc.experiments.page import build_sections, choose_renderer
    from xmtc.experiments.rows import TABLES_FOLDER, find_table, list_tables, load_experiment

    form = choose_renderer(output)
    paths = [find_table(name) for name in names] or list_tables()
    if not paths:
        raise XmtcError(
            f"There are no tables here; give their files, or go to the checkout of xmtc's repository: its folder "
            f"{TABLES_FOLDER} has those of the papers."
        )
    sections = []
    for path in paths:
        experiment, place = load_experiment(path), build_place(path, data, Path(), results)
        sections += build_sections(experiment, load_results(place.get_results_path(experiment.name)), place)
    with open_output(output) as stream:
        stream.write(form(sections).encode())
    if output != "-":
        echo(f"{escape_controls(output)} written; tables: {len(paths)}.", err=True)

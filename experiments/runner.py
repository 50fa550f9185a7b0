"""Run the rows of a table that have no current result, and store each result at once."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.commands import (
    NOISE_COMMAND,
    ExperimentContext,
    ExperimentFailed,
    build_evaluation_command,
    build_model_command,
    list_commands,
    list_overridable,
    plan_corpora,
)
from experiments.noise import write_noisy_corpus
from experiments.rows import Experiment, ExperimentRow, find_members
from xmtc.analysis.measured_process import MeasuredCommand, run_measured
from xmtc.analysis.result_files import ResultRecord, load_results, measure_folder_mb, save_result
from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError, find_similar_names
from xmtc.storage.atomic import atomic_file

MAX_SUGGESTED_NAMES = 5  # names of rows, where one is wrong
ProgressFunction = Callable[[str], None]


@dataclass(frozen=True)
class ExperimentOutcome:
    """Names of the rows, by outcome."""

    reused: list[str]  # had a current result
    completed: list[str]
    failed: list[str]
    skipped: dict[str, str]  # with the reason


def run_missing_rows(
    experiment: Experiment,
    only: Sequence[str],
    n_jobs: int,
    place: ExperimentContext,
    report_progress: ProgressFunction,
) -> ExperimentOutcome:
    """Run every selected row without a current result, `n_jobs` at a time.

    An interruption loses only the rows that were running."""
    jobs = experiment.rows
    check_row_names(only, experiment)
    wanted = [job for job in jobs if not only or {job.name, job.settings["name"]} & set(only)]
    stored = [job for job in wanted if has_current_result(job, jobs, place)]
    left = find_missing_requirements([job for job in wanted if job not in stored], jobs, place, bool(only))
    todo = add_members([job for job in wanted if job not in stored and job not in left], jobs, place)
    waiting: dict[ExperimentRow, Future[None]] = {}
    pool = ThreadPoolExecutor(n_jobs)
    try:
        for job in todo:
            waiting[job] = pool.submit(run_row, job, jobs, place, waiting, report_progress)
        for future in waiting.values():
            future.result()  # raise unexpected errors
    except BaseException:
        place.stop_event.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    results = load_results(place.get_results_path(experiment.name))
    failed = [job.name for job in todo if "failed" in results[job.name]]
    run = [job.name for job in todo if job.name not in failed]
    return ExperimentOutcome([job.name for job in stored], run, failed, {job.name: why for job, why in left.items()})


def check_row_names(only: Sequence[str], experiment: Experiment) -> None:
    rows = list(dict.fromkeys(job.settings["name"] for job in experiment.rows))
    known = {*rows, *(job.name for job in experiment.rows)}
    for name in only:
        if name in known:
            continue
        near = ", ".join(
            map(repr, find_similar_names(name, rows, MAX_SUGGESTED_NAMES, cutoff=0))
        )  # those that are far off show how names look
        expected = (
            f"one of {near}" if len(rows) <= MAX_SUGGESTED_NAMES else f"one of {len(rows):,} names, such as {near}"
        )
        raise XmtcError(
            f"--only {name!r}: not a row of {experiment.path}; expected {expected}; "
            f"`python -m experiments table {experiment.path}` prints all."
        )


def has_current_result(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> bool:
    """Return True if the stored result is of the row's present commands, or its corpus is missing here."""
    result = load_results(place.get_results_path(job.table)).get(job.name, {"failed": "not run"})
    if "failed" in result:
        return False
    try:
        return [update_command(command) for command in result["command"]] == list_commands(job, jobs, place)
    except ExperimentFailed:
        return True


def update_command(command: str) -> str:
    """Return a stored command in the present syntax of the command line."""
    command = command.replace("xmtc data noise", shlex.join(NOISE_COMMAND))
    return re.sub(r"^(xmtc compare (?:(?!--test).)+) (\S+ --json)$", r"\1 --test \2", command)


def find_missing_requirements(
    todo: Sequence[ExperimentRow], jobs: Sequence[ExperimentRow], place: ExperimentContext, has_selection: bool
) -> dict[ExperimentRow, str]:
    """Return the rows that cannot run here, with the reason. A row selected by --only runs without a GPU."""
    missing: dict[ExperimentRow, str] = {}
    for job in todo:
        for each in [job, *find_members(job, jobs)]:
            try:
                plan_corpora(each, place)
            except ExperimentFailed as error:
                missing.setdefault(job, str(error))
        if not has_selection and not place.has_gpu and is_gpu_required(job, jobs, place):
            missing.setdefault(job, "it needs a GPU and none was found; run it anyway with --only or --device cpu")
    return missing


def is_gpu_required(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> bool:
    """Return True if the row, or a member without a model, should run on a GPU."""
    if job.settings.get("wants") == "GPU":
        return True
    return any(
        each.settings.get("wants") == "GPU" and not has_current_model(each, jobs, place)
        for each in find_members(job, jobs)
    )


def add_members(
    todo: Sequence[ExperimentRow], jobs: Sequence[ExperimentRow], place: ExperimentContext
) -> list[ExperimentRow]:
    """Return the rows with the members that must be trained, members first."""
    found: list[ExperimentRow] = []

    def add(job: ExperimentRow) -> None:
        for member in find_members(job, jobs):
            if member not in found and not has_current_model(member, jobs, place):
                add(member)
        if job not in found:
            found.append(job)

    for job in todo:
        add(job)
    return found


def run_row(
    job: ExperimentRow,
    jobs: Sequence[ExperimentRow],
    place: ExperimentContext,
    waiting: dict[ExperimentRow, Future[None]],
    report_progress: ProgressFunction,
) -> None:
    """Run a row and store its result or its failure."""
    for member in find_members(job, jobs):
        if member in waiting:
            waiting[member].result()
    result: ResultRecord = {
        "row": job.settings["name"],
        "seed": job.seed,
        "command": list_commands(job, jobs, place),
        **place.environment,
    }
    applied = {name: value for name, value in place.overrides.items() if name in list_overridable(job)}
    if applied:
        result["overrides"] = {name: Path(value).name for name, value in applied.items()}
    try:
        result |= evaluate_row(job, jobs, place)
        figures = ", ".join(f"{name} {value}" for name, value in result["figures"].items())
        said = f"{job.name}: {result.get('train_s', 0)} s, {figures}"
    except ExperimentFailed as error:
        if place.stop_event.is_set():
            return  # stopped, not failed
        result["failed"] = str(error)
        said = f"{job.name}: failed: {error}"
    save_result(place.get_results_path(job.table), job.name, result)
    report_progress(said)


def evaluate_row(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> ResultRecord:
    """Return the metrics of a row in percent, with times and memory."""
    took = {} if "compare" in job.settings else make_model(job, jobs, place)
    words = [*build_evaluation_command(job, jobs, place), "--quiet", *place.options]
    done = raise_if_failed(
        run_measured(words, Path(f"{place.get_model_path(job)}.evaluate"), stop_event=place.stop_event)
    )
    figures = json.loads(done.output)
    figures = figures.get("overlap", figures)  # of a comparison
    return {
        **{name: value for name, value in took.items() if name != "command"},
        "evaluate_s": done.seconds,
        "evaluate_cpu_s": done.cpu_seconds,
        "evaluate_peak_mb": done.peak_mb,
        "figures": {name: None if value is None else round(100 * value, 2) for name, value in figures.items()},
    }


def raise_if_failed(done: MeasuredCommand) -> MeasuredCommand:
    if done.failure_message:
        raise ExperimentFailed(done.failure_message)
    return done


def make_corpora(job: ExperimentRow, place: ExperimentContext) -> None:
    """Make the missing corpora of a row; one row at a time, as rows share corpora."""
    with place.lock:
        for words in plan_corpora(job, place)[0]:
            is_noise = words[: len(NOISE_COMMAND)] == NOISE_COMMAND
            source, output, *options = words[len(NOISE_COMMAND) if is_noise else 2 :]
            if Path(output).exists():
                continue
            if is_noise:
                kind, rate, seed = options[1::2]
                write_noisy_corpus(open_corpus(source), output, float(rate), kind, int(seed))
            else:
                raise_if_failed(run_measured(words, place.work / "corpora" / job.slug, stop_event=place.stop_event))


def make_model(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> dict[str, Any]:
    """Train or combine the model unless it is current, and return its cost."""
    words, stamp = build_model_command(job, jobs, place, place.overrides), Path(f"{place.get_model_path(job)}.json")
    if has_current_model(job, jobs, place):
        return json.loads(stamp.read_text())
    for member in find_members(job, jobs):
        if not has_current_model(member, jobs, place):
            raise ExperimentFailed(f"its member {member.name!r} has no model")
    make_corpora(job, place)
    watched = ["--log-json", f"{place.get_model_path(job)}.events"] if words[0] == "train" else []
    command, log = [*words, "--quiet", *watched, *place.options], Path(f"{place.get_model_path(job)}.log")
    done = raise_if_failed(run_measured(command, log, place.limit_seconds, place.stop_event))
    took: dict[str, Any] = {"train_s": done.seconds, "train_cpu_s": done.cpu_seconds, "peak_mb": done.peak_mb}
    took |= {"model_mb": measure_folder_mb(place.get_model_path(job)), "command": place.format_command(words)}
    with atomic_file(stamp) as file:
        file.write(json.dumps(took).encode())
    return took


def has_current_model(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> bool:
    stamp = Path(f"{place.get_model_path(job)}.json")
    if "compare" in job.settings or not stamp.exists() or not place.get_model_path(job).exists():
        return False
    return json.loads(stamp.read_text())["command"] == place.format_command(
        build_model_command(job, jobs, place, place.overrides)
    )

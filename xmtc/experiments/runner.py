"""Runs the rows of a table that have no result yet, and keeps what comes of each at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmtc.analysis.measured_process import MeasuredCommand, run_measured
from xmtc.analysis.result_files import ResultRecord, load_results, measure_folder_mb, save_result
from xmtc.errors import XmtcError, find_similar_names
from xmtc.experiments.commands import (
    ExperimentContext,
    ExperimentFailed,
    build_evaluation_command,
    build_model_command,
    list_commands,
    list_overridable,
    plan_corpora,
)
from xmtc.experiments.rows import Experiment, ExperimentRow, find_members
from xmtc.storage.atomic import atomic_file

MAX_SUGGESTED_NAMES = 5  # names of rows, where one is wrong
ProgressFunction = Callable[[str], None]


@dataclass(frozen=True)
class ExperimentOutcome:
    """How the jobs of a table stand, by their names."""

    reused: list[str]  # were finished before
    completed: list[str]
    failed: list[str]
    skipped: dict[str, str]  # could not be run here, and why


def run_missing_rows(
    experiment: Experiment,
    only: Sequence[str],
    n_jobs: int,
    place: ExperimentContext,
    report_progress: ProgressFunction,
) -> ExperimentOutcome:
    """Every job that has no result yet, as far as this machine can; `say` hears a line for each. Whoever stops it
    loses the rows that were running, and no other."""
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
            future.result()  # a fault of ours is not kept silent
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
            f"--only {name!r}: no row of {experiment.path} is called so, expected {expected}; "
            f"`xmtc reproduce {experiment.path} --table` prints all."
        )


def has_current_result(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> bool:
    """Whether there is a result that its commands still ask for; where its corpus is not here, whatever was kept."""
    result = load_results(place.get_results_path(job.table)).get(job.name, {"failed": "not run"})
    if "failed" in result:
        return False
    try:
        return result["command"] == list_commands(job, jobs, place)
    except ExperimentFailed:
        return True


def find_missing_requirements(
    todo: Sequence[ExperimentRow], jobs: Sequence[ExperimentRow], place: ExperimentContext, has_selection: bool
) -> dict[ExperimentRow, str]:
    """The jobs that cannot be run here, and why. What wants a GPU is run without one if somebody names it."""
    missing: dict[ExperimentRow, str] = {}
    for job in todo:
        for each in [job, *find_members(job, jobs)]:
            try:
                plan_corpora(each, place)
            except ExperimentFailed as error:
                missing.setdefault(job, str(error))
        if not has_selection and not place.has_gpu and is_gpu_required(job, jobs, place):
            missing.setdefault(job, "it wants a GPU, and none was found; --only or --device cpu has it run without")
    return missing


def is_gpu_required(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> bool:
    """Whether it, or a member that must be trained first, is a network that takes hours elsewhere."""
    if job.settings.get("wants") == "GPU":
        return True
    return any(
        each.settings.get("wants") == "GPU" and not has_current_model(each, jobs, place)
        for each in find_members(job, jobs)
    )


def add_members(
    todo: Sequence[ExperimentRow], jobs: Sequence[ExperimentRow], place: ExperimentContext
) -> list[ExperimentRow]:
    """The jobs, and the members of which they need models; members come first."""
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
    """Run what is missing of a job, and keep the result, or why there is none."""
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
        result["overrides"] = {name: Path(value).name for name, value in applied.items()}  # no folders of here
    try:
        result |= evaluate_row(job, jobs, place)
        figures = ", ".join(f"{name} {value}" for name, value in result["figures"].items())
        said = f"{job.name}: {result.get('train_s', 0)} s, {figures}"
    except ExperimentFailed as error:
        if place.stop_event.is_set():
            return  # it did not fail: it was stopped
        result["failed"] = str(error)
        said = f"{job.name}: failed: {error}"
    save_result(place.get_results_path(job.table), job.name, result)
    report_progress(said)


def evaluate_row(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> ResultRecord:
    """Figures in percent, and what they took."""
    took = {} if "compare" in job.settings else make_model(job, jobs, place)
    words = [*build_evaluation_command(job, jobs, place), "--quiet", *place.options]
    done = raise_if_failed(
        run_measured(words, Path(f"{place.get_model_path(job)}.evaluate"), stop_event=place.stop_event)
    )
    figures = json.loads(done.output)
    figures = figures.get("overlap", figures)  # what a comparison is about
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
    """Those that are not there yet; one job at a time, since others may want the same."""
    with place.lock:
        for words in plan_corpora(job, place)[0]:
            if not Path(words[3]).exists():
                raise_if_failed(run_measured(words, place.work / "corpora" / job.slug, stop_event=place.stop_event))


def make_model(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> dict[str, Any]:
    """Train or combine, if the model is not there; what it took."""
    words, stamp = build_model_command(job, jobs, place, place.overrides), Path(f"{place.get_model_path(job)}.json")
    if has_current_model(job, jobs, place):
        return json.loads(stamp.read_text())
    for member in find_members(job, jobs):
        if not has_current_model(member, jobs, place):
            raise ExperimentFailed(f"its member {member.name!r} has no model")
    make_corpora(job, place)
    watched = ["--log-json", f"{place.get_model_path(job)}.events"] if words[0] == "train" else []  # how far it is
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

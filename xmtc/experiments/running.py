"""Runs the rows of a table that have no result yet, and keeps what comes of each at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmtc.errors import XmtcError, find_similar_names
from xmtc.experiments.commands import Failed, Place, asked, judging, making, overridable, preparing
from xmtc.experiments.keeping import Result, keep, kept_in, size_of
from xmtc.experiments.process import Measured, measure
from xmtc.experiments.rows import Experiment, Job, members
from xmtc.storage.atomic import atomic_file

SHOWN = 5  # names of rows, where one is wrong
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How the jobs of a table stand, by their names."""

    stored: list[str]  # were finished before
    run: list[str]
    failed: list[str]
    left: dict[str, str]  # could not be run here, and why


def run_all(experiment: Experiment, only: Sequence[str], n_jobs: int, place: Place, say: Say) -> Outcome:
    """Every job that has no result yet, as far as this machine can; `say` hears a line for each. Whoever stops it
    loses the rows that were running, and no other."""
    jobs = experiment.jobs
    check_names(only, experiment)
    wanted = [job for job in jobs if not only or {job.name, job.row["name"]} & set(only)]
    stored = [job for job in wanted if is_done(job, jobs, place)]
    left = what_is_missing([job for job in wanted if job not in stored], jobs, place, bool(only))
    todo = with_members([job for job in wanted if job not in stored and job not in left], jobs, place)
    waiting: dict[Job, Future[None]] = {}
    pool = ThreadPoolExecutor(n_jobs)
    try:
        for job in todo:
            waiting[job] = pool.submit(finish, job, jobs, place, waiting, say)
        for future in waiting.values():
            future.result()  # a fault of ours is not kept silent
    except BaseException:
        place.stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    results = kept_in(place.kept(experiment.name))
    failed = [job.name for job in todo if "failed" in results[job.name]]
    run = [job.name for job in todo if job.name not in failed]
    return Outcome([job.name for job in stored], run, failed, {job.name: why for job, why in left.items()})


def check_names(only: Sequence[str], experiment: Experiment) -> None:
    rows = list(dict.fromkeys(job.row["name"] for job in experiment.jobs))
    known = {*rows, *(job.name for job in experiment.jobs)}
    for name in only:
        if name in known:
            continue
        near = ", ".join(map(repr, find_similar_names(name, rows, SHOWN, cutoff=0)))  # those that are far off show how names look
        expected = f"one of {near}" if len(rows) <= SHOWN else f"one of {len(rows):,} names, such as {near}"
        raise XmtcError(
            f"--only {name!r}: no row of {experiment.path} is called so, expected {expected}; "
            f"`xmtc reproduce {experiment.path} --table` prints all."
        )


def is_done(job: Job, jobs: Sequence[Job], place: Place) -> bool:
    """Whether there is a result that its commands still ask for; where its corpus is not here, whatever was kept."""
    result = kept_in(place.kept(job.table)).get(job.name, {"failed": "not run"})
    if "failed" in result:
        return False
    try:
        return result["command"] == asked(job, jobs, place)
    except Failed:
        return True


def what_is_missing(todo: Sequence[Job], jobs: Sequence[Job], place: Place, is_named: bool) -> dict[Job, str]:
    """The jobs that cannot be run here, and why. What wants a GPU is run without one if somebody names it."""
    missing: dict[Job, str] = {}
    for job in todo:
        for each in [job, *members(job, jobs)]:
            try:
                preparing(each, place)
            except Failed as error:
                missing.setdefault(job, str(error))
        if not is_named and not place.has_gpu and wants_gpu(job, jobs, place):
            missing.setdefault(job, "it wants a GPU, and none was found; --only or --device cpu has it run without")
    return missing


def wants_gpu(job: Job, jobs: Sequence[Job], place: Place) -> bool:
    """Whether it, or a member that must be trained first, is a network that takes hours elsewhere."""
    if job.row.get("wants") == "GPU":
        return True
    return any(each.row.get("wants") == "GPU" and not is_made(each, jobs, place) for each in members(job, jobs))


def with_members(todo: Sequence[Job], jobs: Sequence[Job], place: Place) -> list[Job]:
    """The jobs, and the members of which they need models; members come first."""
    found: list[Job] = []

    def add(job: Job) -> None:
        for member in members(job, jobs):
            if member not in found and not is_made(member, jobs, place):
                add(member)
        if job not in found:
            found.append(job)

    for job in todo:
        add(job)
    return found


def finish(job: Job, jobs: Sequence[Job], place: Place, waiting: dict[Job, Future[None]], say: Say) -> None:
    """Run what is missing of a job, and keep the result, or why there is none."""
    for member in members(job, jobs):
        if member in waiting:
            waiting[member].result()
    result: Result = {"row": job.row["name"], "seed": job.seed, "command": asked(job, jobs, place), **place.made_here}
    applied = {name: value for name, value in place.overrides.items() if name in overridable(job)}
    if applied:
        result["overrides"] = {name: Path(value).name for name, value in applied.items()}  # no folders of here
    try:
        result |= measured(job, jobs, place)
        figures = ", ".join(f"{name} {value}" for name, value in result["figures"].items())
        said = f"{job.name}: {result.get('train_s', 0)} s, {figures}"
    except Failed as error:
        if place.stop.is_set():
            return  # it did not fail: it was stopped
        result["failed"] = str(error)
        said = f"{job.name}: failed: {error}"
    keep(place.kept(job.table), job.name, result)
    say(said)


def measured(job: Job, jobs: Sequence[Job], place: Place) -> Result:
    """Figures in percent, and what they took."""
    took = {} if "compare" in job.row else make_model(job, jobs, place)
    words = [*judging(job, jobs, place), "--quiet", *place.options]
    done = well_done(measure(words, Path(f"{place.model(job)}.evaluate"), stop=place.stop))
    figures = json.loads(done.output)
    figures = figures.get("overlap", figures)  # what a comparison is about
    return {
        **{name: value for name, value in took.items() if name != "command"},
        "evaluate_s": done.seconds,
        "evaluate_cpu_s": done.cpu_seconds,
        "evaluate_peak_mb": done.peak_mb,
        "figures": {name: None if value is None else round(100 * value, 2) for name, value in figures.items()},
    }


def well_done(done: Measured) -> Measured:
    if done.failed:
        raise Failed(done.failed)
    return done


def make_corpora(job: Job, place: Place) -> None:
    """Those that are not there yet; one job at a time, since others may want the same."""
    with place.lock:
        for words in preparing(job, place)[0]:
            if not Path(words[3]).exists():
                well_done(measure(words, place.work / "corpora" / job.slug, stop=place.stop))


def make_model(job: Job, jobs: Sequence[Job], place: Place) -> dict[str, Any]:
    """Train or combine, if the model is not there; what it took."""
    words, stamp = making(job, jobs, place, place.overrides), Path(f"{place.model(job)}.json")
    if is_made(job, jobs, place):
        return json.loads(stamp.read_text())
    for member in members(job, jobs):
        if not is_made(member, jobs, place):
            raise Failed(f"its member {member.name!r} has no model")
    make_corpora(job, place)
    watched = ["--log-json", f"{place.model(job)}.events"] if words[0] == "train" else []  # how far it is
    command, log = [*words, "--quiet", *watched, *place.options], Path(f"{place.model(job)}.log")
    done = well_done(measure(command, log, place.limit, place.stop))
    took: dict[str, Any] = {"train_s": done.seconds, "train_cpu_s": done.cpu_seconds, "peak_mb": done.peak_mb}
    took |= {"model_mb": size_of(place.model(job)), "command": place.shown(words)}
    with atomic_file(stamp) as file:
        file.write(json.dumps(took).encode())
    return took


def is_made(job: Job, jobs: Sequence[Job], place: Place) -> bool:
    stamp = Path(f"{place.model(job)}.json")
    if "compare" in job.row or not stamp.exists() or not place.model(job).exists():
        return False
    return json.loads(stamp.read_text())["command"] == place.shown(making(job, jobs, place, place.overrides))

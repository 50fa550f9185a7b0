"""Methods trained and measured on the same documents, each with each seed in a process of its own. What came of a run
is kept at once in the work folder, so that a comparison that was interrupted goes on where it was.

A work folder holds results.json, the answers of each run, and what each process said; models are deleted once they have
answered, since the commands that make them are in the results."""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from xmtc.analysis.compare.comparison import Candidate, Cost
from xmtc.analysis.compare.saved_predictions import SavedPredictions, TrainingStatistics
from xmtc.analysis.measured_process import MeasuredCommand, run_measured
from xmtc.analysis.method_specs import MethodSpec
from xmtc.analysis.result_files import ResultRecord, load_results, measure_folder_mb, save_result
from xmtc.cluster.scheduling import map_on_cluster
from xmtc.data.corpus import Corpus, open_corpus_writer
from xmtc.data.formats.paired import find_pair
from xmtc.errors import XmtcError

# Documents of a training that nobody measures: what it compiles is kept for the others. With fewer, no analyzer is
# chosen (choice.FEWEST), nothing is calibrated (calibration.ENOUGH) and labels may be too few for a tree.
WARM_UP_DOCUMENTS = 1_000
WARM_UP_SECONDS = 120.0  # seconds that it may take
MARKER_FILE = "xmtc-compare.txt"  # by which a work folder is known
WARMED_UP_SPECS: set[MethodSpec] = set()  # of which everything is compiled
ProgressFunction = Callable[[str], None]
PrepareFunction = Callable[["TrialContext", MethodSpec], None]


@dataclass(frozen=True)
class TrialContext:
    """The documents of a comparison, and where its runs are kept."""

    corpus_name: str  # what the corpus is called
    train: tuple[str, ...]
    test: str
    work: Path
    reading_options: tuple[str, ...] = ()  # options of `xmtc` that say how the corpora are read
    machine_options: tuple[str, ...] = ()  # threads, device
    limit_seconds: float | None = None  # seconds that a training may take, and as long again its answers
    cluster: str = ""  # whose machines train, each with so many CPUs
    n_cpus: int = 1
    warm_up_path: str = ""  # a few documents of the corpus, to have everything compiled on

    @property
    def results_path(self) -> Path:
        return self.work / "results.json"


def run_methods(
    place: TrialContext, specs: Sequence[MethodSpec], n_seeds: int, report_progress: ProgressFunction
) -> list[Candidate]:
    """Every method with every seed that has no result yet, all methods with the first seed first; those that fail are
    not tried with another. A cluster has all other seeds at once."""
    place.work.mkdir(parents=True, exist_ok=True)
    held: dict[str, list[ResultRecord]] = {spec.name: [] for spec in specs}
    others = range(1, n_seeds)
    for seeds in ([0], *([others] if place.cluster else [[seed] for seed in others])):
        good = [spec for spec in specs if not any("failed" in each for each in held[spec.name])]
        jobs = [
            make_training_run(place, spec, seed if spec.has_free_seed else None)
            for seed in seeds
            for spec in good
            if spec.has_free_seed or seed == 0
        ]
        for job, result in run_or_load_all(place, jobs, report_progress):
            held[job.spec.name].append(result)
    return [make_candidate(place, spec, held[spec.name]) for spec in specs]


@dataclass(frozen=True)
class TrainingRun:
    """A method to be trained, and asked."""

    spec: MethodSpec
    name: str
    model: Path
    arguments: tuple[str, ...]
    identity: ResultRecord  # by which a result of the same command on the same files is known

    def load_result(self, place: TrialContext) -> ResultRecord | None:
        """Its result, where it need not be made anew."""
        found = load_results(place.results_path).get(self.name, {})
        is_same = all(found.get(key) == value for key, value in self.identity.items())
        return found if is_same and is_reusable(found, place) else None

    def compute_result(self, place: TrialContext) -> ResultRecord:
        warm_up(place, self.spec)
        result = {
            **self.identity,
            "budget": place.limit_seconds,
            **train_and_predict(place, self.name, self.model, self.arguments),
        }
        shutil.rmtree(self.model, ignore_errors=True)
        return result


def make_training_run(place: TrialContext, spec: MethodSpec, seed: int | None) -> TrainingRun:
    name = spec.name if seed is None else f"{spec.name}, seed {seed}"
    model = place.work / "models" / make_slug(name)
    words = (
        "train",
        *place.train,
        *spec.as_arguments(seed),
        "-o",
        str(model),
        *place.reading_options,
        *place.machine_options,
    )
    asked = {"command": shlex.join(["xmtc", *words]), "files": fingerprint_files([*place.train, place.test])}
    return TrainingRun(spec, name, model, words, asked)


def run_or_load(
    place: TrialContext,
    spec: MethodSpec,
    seed: int | None,
    report_progress: ProgressFunction,
    prepare: PrepareFunction | None = None,
) -> ResultRecord:
    """The result of a run: the one that is kept, if it is of the same command on the same files; else a new one, for
    which everything is compiled before, by `prepare` or `warm_up`."""
    job = make_training_run(place, spec, seed)
    if prepare is not None and job.load_result(place) is None:
        prepare(place, spec)
    ((_, result),) = run_or_load_all(place, [job], report_progress)
    return result


def run_or_load_all(
    place: TrialContext, jobs: Sequence[TrainingRun], report_progress: ProgressFunction
) -> Iterator[tuple[TrainingRun, ResultRecord]]:
    """Every job and its result: the one that is kept, or a new one, which is kept at once."""
    kept = [job.load_result(place) for job in jobs]
    new = [job for job, result in zip(jobs, kept, strict=True) if result is None]
    results = run_on_cluster(place, new) if place.cluster else run_sequentially(place, new, report_progress)
    for job, result in zip(jobs, kept, strict=True):
        if result is None:
            result = next(results)
            save_result(place.results_path, job.name, result)
            report_progress(
                f"{place.corpus_name}: {job.name}: {result.get('failed') or f'''{result['train_s']:.1f} s'''}"
            )
        yield job, result


def run_sequentially(
    place: TrialContext, jobs: Sequence[TrainingRun], report_progress: ProgressFunction
) -> Iterator[ResultRecord]:
    for job in jobs:
        report_progress(f"{place.corpus_name}: {job.name}")
        yield job.compute_result(place)


def run_on_cluster(place: TrialContext, jobs: Sequence[TrainingRun]) -> Iterator[ResultRecord]:
    """Each on a machine that sees the same folders."""
    here = os.getcwd()

    def work(job: TrainingRun) -> ResultRecord:
        paths = [
            here,
            *(os.path.join(here, path) for path in (place.work, *(file[0] for file in job.identity["files"]))),
        ]
        if missing := [path for path in paths if not os.path.exists(path)]:
            raise XmtcError(
                f"{platform.node()}, a machine of the cluster, does not see {missing[0]}; a comparison needs the "
                "corpora and --work in folders that all machines share."
            )
        with chdir(here):
            return job.compute_result(place)

    return (result for result, _ in map_on_cluster(place.cluster, work, jobs, n_cpus=place.n_cpus))


def is_reusable(result: ResultRecord, place: TrialContext) -> bool:
    """Whether a run need not be repeated: it went well, or took longer than it would have now."""
    if "failed" not in result:
        return (place.work / result["answers"]).is_file()
    return (
        bool(result.get("ended"))
        and place.limit_seconds is not None
        and place.limit_seconds <= (result.get("budget") or 0)
    )


def train_and_predict(place: TrialContext, name: str, model: Path, words: Sequence[str]) -> ResultRecord:
    """Train, answer, and say what both took, or what went wrong."""
    log, answers = place.work / "logs" / make_slug(name), Path("answers") / f"{make_slug(name)}.npz"
    shutil.rmtree(model, ignore_errors=True)
    trained = run_measured([*words, "--quiet"], Path(f"{log}.train"), place.limit_seconds)
    if trained.failure_message:
        return make_failure_record(trained)
    (place.work / answers).parent.mkdir(parents=True, exist_ok=True)
    asked = [
        "answers",
        str(model),
        place.test,
        "-o",
        str(place.work / answers),
        *place.reading_options,
        *place.machine_options,
    ]
    answered = run_measured([*asked, "--quiet"], Path(f"{log}.answers"), place.limit_seconds)
    if answered.failure_message:
        return make_failure_record(answered)
    peaks = [each.peak_mb for each in (trained, answered) if each.peak_mb is not None]
    return {
        "answers": answers.as_posix(),
        "train_s": trained.seconds,
        "train_cpu_s": trained.cpu_seconds,
        "peak_mb": max(peaks) if peaks else None,
        "model_mb": measure_folder_mb(model),
    }


def make_failure_record(found: MeasuredCommand) -> ResultRecord:
    """In a sentence; the complaint of a command that ends by itself is one."""
    said = (
        found.error_output.removeprefix("xmtc: ") if found.status == 2 and found.error_output else found.failure_message
    )
    return {"failed": said, "ended": found.stop_reason}


def warm_up(place: TrialContext, spec: MethodSpec) -> None:
    """Have everything compiled that a training uses, on a few documents; once, and whatever comes of it."""
    if spec in WARMED_UP_SPECS or not place.warm_up_path:
        return
    WARMED_UP_SPECS.add(spec)
    with TemporaryDirectory(prefix="xmtc-warm-") as folder:
        words = [
            "train",
            place.warm_up_path,
            *spec.as_arguments(),
            "-o",
            f"{folder}/model",
            "--quiet",
            *place.machine_options,
        ]
        run_measured(words, Path(folder) / "log", min(WARM_UP_SECONDS, place.limit_seconds or WARM_UP_SECONDS))


def write_warm_up_corpus(corpus: Corpus, work: Path) -> str:
    """A file of the first documents of a corpus that have labels, for `warm_up`."""
    form, ending = ("sparse", "txt") if corpus.has_features else ("jsonl", "jsonl")
    path = work / f"few.{ending}"
    with open_corpus_writer(str(path), form, corpus) as add:
        for document in islice((each for each in corpus if each.labels), WARM_UP_DOCUMENTS):
            add(document)
    return str(path)


def make_candidate(place: TrialContext, spec: MethodSpec, results: Sequence[ResultRecord]) -> Candidate:
    """What is compared of a method's runs."""
    commands = tuple(each["command"] for each in results)
    failed = next((each["failed"] for each in results if "failed" in each), "")
    if failed:
        return Candidate(spec.name, (), failed=failed, commands=commands)
    cost = Cost(**{name: average_cost(results, name) for name in ("train_s", "train_cpu_s", "peak_mb", "model_mb")})
    load = tuple(partial(SavedPredictions.load, place.work / each["answers"]) for each in results)
    return Candidate(spec.name, load, cost, commands=commands)


def load_training_statistics(place: TrialContext, specs: Sequence[MethodSpec]) -> Iterator[TrainingStatistics]:
    """What the kept models of these methods were trained on; not those of files as they were before."""
    files = fingerprint_files([*place.train, place.test])
    kept = {name: each for name, each in load_results(place.results_path).items() if each.get("files") == files}
    for spec in specs:
        found = [each for name, each in kept.items() if name == spec.name or name.startswith(f"{spec.name}, seed ")]
        yield from (TrainingStatistics.load(place.work / each["answers"]) for each in found if "answers" in each)


def average_cost(results: Sequence[ResultRecord], name: str) -> float | None:
    values = [each[name] for each in results if each.get(name) is not None]
    return float(np.mean(values)) if values else None


def fingerprint_files(paths: Sequence[str]) -> list[list[Any]]:
    """By which a file that was changed is known, and one that was only copied is not taken for another: its size and a
    digest of its bytes; of a folder, those of all files in it."""
    found: dict[str, list[Any]] = {}
    for path in (file for listed in paths for named in find_pair(listed) if named for file in expand_pattern(named)):
        size, whole = 0, hashlib.blake2b(digest_size=16)
        for file in sorted(filter(Path.is_file, Path(path).rglob("*"))) or [Path(path)]:
            about = file.stat()
            size += about.st_size
            whole.update(os.fsencode(file.relative_to(path)) + b"\0")
            whole.update(digest_file(os.path.abspath(file), about.st_size, about.st_mtime_ns))
        found[path] = [path, size, whole.hexdigest()]
    return list(found.values())


@cache
def digest_file(path: str, size: int, changed: int) -> bytes:
    """Of the bytes of a file, which is read once for all runs as long as its size and date stay."""
    if not os.path.isfile(path):
        return str(changed).encode()  # a pipe can be read only once, and not for this
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def expand_pattern(path: str) -> list[str]:
    """The file itself, or those that fit the pattern; none where nothing is there."""
    return [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))


def make_slug(name: str) -> str:
    """The name of a run's files: readable, and no two alike."""
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    readable = re.sub(r"[^\w.=-]+", "-", name).strip("-").lower()
    return f"{readable[:80]}-{digest}"


def make_corpus_name(path: str) -> str:
    """What a corpus is called: its file, or its folder where the file is called train."""
    first = path.split(",")[0]
    stem = Path(first).name.split(".")[0]
    parent = Path(first).resolve().parent.name
    return parent if stem in ("train", "training") and parent else stem or first


def claim_work_folder(work: Path) -> None:
    """Make the folder, or refuse one that holds something else."""
    if work.exists() and not work.is_dir():
        raise XmtcError(f"{work} is a file; expected a folder for the runs of a comparison: name another with --work.")
    if work.is_dir() and any(work.iterdir()) and not (work / MARKER_FILE).exists():
        raise XmtcError(
            f"{work} holds other things than runs of a comparison; name another folder with --work, or empty it."
        )
    work.mkdir(parents=True, exist_ok=True)
    (work / MARKER_FILE).write_text("Runs of a comparison by xmtc; the folder can be deleted.\n")

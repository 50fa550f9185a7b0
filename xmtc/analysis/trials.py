"""Trials: one training and its predictions, with run time, peak memory and reason of failure.

`compare` and `recommend` run trials in child processes (`xmtc.analysis.trial_worker`), `tune` in this process. Results
of child processes are saved in the work folder as soon as they exist, so that an interrupted comparison resumes there.
A work folder holds results.json, the predictions of each trial and the logs of its processes. Models are deleted after
their predictions are saved; results.json has the commands that train them again.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Generic, TypeVar

import xmtc
from xmtc.analysis.measured_process import run_measured_module
from xmtc.analysis.method_specs import MethodSpec
from xmtc.analysis.result_files import ResultRecord, load_results, measure_folder_mb, save_result
from xmtc.cluster.scheduling import map_on_cluster
from xmtc.data.corpus import Corpus, open_corpus_writer
from xmtc.data.formats.paired import find_pair
from xmtc.errors import XmtcError

WORKER_MODULE = "xmtc.analysis.trial_worker"
FAILURE_STATUS = 2  # exit status of a worker that failed with a message
# A warm-up trains on few documents to fill the cache of compiled code. With fewer documents no analyzer is selected, no
# calibration is fitted, and there may be too few labels for a tree.
WARM_UP_DOCUMENTS = 1_000
MAX_WARM_UP_SECONDS = 120.0
MARKER_FILE = "xmtc-compare.txt"  # identifies a work folder
WARMED_UP_SPECS: set[MethodSpec] = set()  # by this process, or by this worker of a cluster
ProgressFunction = Callable[[str], None]
Value = TypeVar("Value")


@dataclass(frozen=True)
class TrialResult(Generic[Value]):
    """Value of a trial, or the reason why it has none, and its cost."""

    value: Value | None
    seconds: float  # wall-clock time
    cpu_seconds: float | None = None
    peak_mb: float | None = None
    failure: str = ""  # empty after success
    timeout_seconds: float | None = None  # the limit that it exceeded


def run_in_process(function: Callable[[], Value]) -> TrialResult[Value]:
    """Call a function; report XmtcError and lack of memory as a failure."""
    start = perf_counter()
    value, failure = None, ""
    try:
        value = function()
    except XmtcError as error:
        failure = str(error)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        failure = "Not enough memory for this trial; search smaller sizes."
    return TrialResult(value, perf_counter() - start, failure=failure)


def is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Return True if memory was exhausted, also that of a GPU (PyTorch raises its own error, and may be missing)."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def run_in_child(
    request: Mapping[str, Any], log_path: Path, limit_seconds: float | None = None
) -> TrialResult[Mapping[str, Any]]:
    """Send a request to a worker process and return its answer; end the worker after `limit_seconds`."""
    answer_path = Path(f"{log_path}.answer.json")
    answer_path.unlink(missing_ok=True)
    process = run_measured_module(
        WORKER_MODULE,
        [str(answer_path.absolute())],
        log_path,
        limit_seconds,
        standard_input=json.dumps(request).encode(),
    )
    answer, failure = None, ""
    if not process.stop_reason and process.status in (0, FAILURE_STATUS) and answer_path.exists():
        answer = json.loads(answer_path.read_text(encoding="utf-8"))
        failure = answer.get("error", "")
    elif process.status or process.stop_reason:
        failure = process.describe_failure(request["task"])
    return TrialResult(
        answer,
        process.seconds,
        process.cpu_seconds,
        process.peak_mb,
        failure,
        limit_seconds if process.stop_reason else None,
    )


@dataclass(frozen=True)
class TrialContext:
    """Documents of a comparison, and where and how its trials run."""

    corpus_name: str
    train: tuple[str, ...]
    test: str
    work: Path
    reading: Mapping[str, Any] = field(default_factory=dict)  # reading options of `xmtc train` that were set
    threads: int = 0
    device: str = "auto"
    limit_seconds: float | None = None  # of a training, and again of its predictions
    cluster: str = ""
    n_cpus: int = 1  # CPUs of the cluster for each trial
    warm_up_path: str = ""  # corpus of few documents, see warm_up

    @property
    def results_path(self) -> Path:
        return self.work / "results.json"

    def make_train_request(
        self, spec: MethodSpec, seed: int | None, corpus: Sequence[str], output: Path
    ) -> dict[str, Any]:
        return {
            "task": "train",
            "corpus": list(corpus),
            "reading": dict(self.reading),
            "method": spec.method,
            "parameters": [*spec.parameters, *([] if seed is None else [("seed", str(seed))])],
            "output": str(output),
            "threads": self.threads,
            "device": self.device,
        }

    def make_predict_request(self, model: Path, output: Path) -> dict[str, Any]:
        return {
            "task": "predict",
            "corpus": self.test,
            "reading": dict(self.reading),
            "model": str(model),
            "output": str(output),
            "threads": self.threads,
            "device": self.device,
        }


@dataclass(frozen=True)
class TrainingRun:
    """Training of a method with one seed, and its predictions."""

    spec: MethodSpec
    name: str
    model: Path
    request: Mapping[str, Any]
    identity: ResultRecord  # a saved result with the same values is reused

    def load_result(self, context: TrialContext) -> ResultRecord | None:
        """Return the saved result, unless it has to be computed again."""
        result = load_results(context.results_path).get(self.name, {})
        is_same = all(result.get(key) == value for key, value in self.identity.items())
        is_same_version = result.get("xmtc", xmtc.__version__) == xmtc.__version__  # older files have no version
        return result if is_same and is_same_version and is_reusable(result, context) else None

    def compute_result(self, context: TrialContext) -> ResultRecord:
        warm_up(context, self.spec)
        result = {
            **self.identity,
            "xmtc": xmtc.__version__,
            "budget": context.limit_seconds,
            **train_and_predict(context, self),
        }
        shutil.rmtree(self.model, ignore_errors=True)
        return result


def make_training_run(context: TrialContext, spec: MethodSpec, seed: int | None) -> TrainingRun:
    name = spec.name if seed is None else f"{spec.name}, seed {seed}"
    model = context.work / "models" / make_slug(name)
    options = {"threads": context.threads or None, "device": context.device if context.device != "auto" else None}
    words = ["xmtc", "train", *context.train, *spec.as_arguments(seed), "-o", str(model)]
    command = shlex.join([*words, *format_options(context.reading), *format_options(options)])
    identity = {"command": command, "files": fingerprint_files([*context.train, context.test])}
    return TrainingRun(spec, name, model, context.make_train_request(spec, seed, context.train, model), identity)


def format_options(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of a command line; flags are True, options that are not set are None."""
    words: list[str] = []
    for name, value in options.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


def run_or_load(context: TrialContext, run: TrainingRun, report_progress: ProgressFunction) -> ResultRecord:
    ((_, result),) = run_or_load_all(context, [run], report_progress)
    return result


def run_or_load_all(
    context: TrialContext, runs: Sequence[TrainingRun], report_progress: ProgressFunction
) -> Iterator[tuple[TrainingRun, ResultRecord]]:
    """Yield each run with its result, in order; a result that is not saved yet is computed and saved."""
    saved = [run.load_result(context) for run in runs]
    missing = [run for run, result in zip(runs, saved, strict=True) if result is None]
    results = run_on_cluster(context, missing) if context.cluster else run_one_by_one(context, missing, report_progress)
    for run, result in zip(runs, saved, strict=True):
        if result is None:
            result = next(results)
            save_result(context.results_path, run.name, result)
            outcome = result.get("failed") or f"{result['train_s']:.1f} s"
            report_progress(f"{context.corpus_name}: {run.name}: {outcome}")
        yield run, result


def run_one_by_one(
    context: TrialContext, runs: Sequence[TrainingRun], report_progress: ProgressFunction
) -> Iterator[ResultRecord]:
    for run in runs:
        report_progress(f"{context.corpus_name}: {run.name}")
        yield run.compute_result(context)


def run_on_cluster(context: TrialContext, runs: Sequence[TrainingRun]) -> Iterator[ResultRecord]:
    """Yield the results of runs on a cluster whose machines share the folders of the comparison."""
    working_directory = os.getcwd()

    def compute(run: TrainingRun) -> ResultRecord:
        files = [file[0] for file in run.identity["files"]]
        paths = [working_directory, *(os.path.join(working_directory, path) for path in (context.work, *files))]
        for path in paths:
            if not os.path.exists(path):
                raise XmtcError(
                    f"{path} does not exist on {platform.node()}, a machine of the cluster; put the corpora and "
                    "--checkpoint into folders that all machines share."
                )
        with chdir(working_directory):
            return run.compute_result(context)

    return (result for result, _ in map_on_cluster(context.cluster, compute, runs, n_cpus=context.n_cpus))


def is_reusable(result: ResultRecord, context: TrialContext) -> bool:
    """Return True if a run succeeded, or exceeded a time limit that is not shorter than the present one."""
    if "failed" not in result:
        return (context.work / result["answers"]).is_file()
    limit = context.limit_seconds
    return bool(result.get("ended")) and limit is not None and limit <= (result.get("budget") or 0)


def train_and_predict(context: TrialContext, run: TrainingRun) -> ResultRecord:
    """Train and predict in two child processes; return their costs, or the reason of a failure."""
    slug = make_slug(run.name)
    log_path, predictions = context.work / "logs" / slug, Path("answers") / f"{slug}.npz"
    shutil.rmtree(run.model, ignore_errors=True)
    training = run_in_child(run.request, Path(f"{log_path}.train"), context.limit_seconds)
    if training.failure:
        return make_failure_record(training)
    (context.work / predictions).parent.mkdir(parents=True, exist_ok=True)
    request = context.make_predict_request(run.model, context.work / predictions)
    prediction = run_in_child(request, Path(f"{log_path}.answers"), context.limit_seconds)
    if prediction.failure:
        return make_failure_record(prediction)
    peaks = [result.peak_mb for result in (training, prediction) if result.peak_mb is not None]
    return {
        "answers": predictions.as_posix(),
        "train_s": training.seconds,
        "train_cpu_s": training.cpu_seconds,
        "peak_mb": max(peaks, default=None),
        "model_mb": measure_folder_mb(run.model),
    }


def make_failure_record(result: TrialResult[Any]) -> ResultRecord:
    timeout = "" if result.timeout_seconds is None else f"after {result.timeout_seconds:g} s"
    return {"failed": result.failure, "ended": timeout}


def warm_up(context: TrialContext, spec: MethodSpec) -> float:
    """Train once on few documents, so that no trial includes the time of compilation; return the seconds."""
    if spec in WARMED_UP_SPECS or not context.warm_up_path:
        return 0.0
    WARMED_UP_SPECS.add(spec)
    start = perf_counter()
    limit = min(MAX_WARM_UP_SECONDS, context.limit_seconds or MAX_WARM_UP_SECONDS)
    with TemporaryDirectory(prefix="xmtc-warm-") as folder:
        request = context.make_train_request(spec, None, [context.warm_up_path], Path(folder) / "model")
        run_in_child(request | {"reading": {}}, Path(folder) / "log", limit)
    return perf_counter() - start


def write_warm_up_corpus(corpus: Corpus, work: Path) -> str:
    """Write the first labelled documents of a corpus to a file for `warm_up`; return its path."""
    format, extension = ("sparse", "txt") if corpus.has_features else ("jsonl", "jsonl")
    path = work / f"few.{extension}"
    with open_corpus_writer(str(path), format, corpus) as write:
        for document in islice((document for document in corpus if document.labels), WARM_UP_DOCUMENTS):
            write(document)
    return str(path)


def fingerprint_files(paths: Sequence[str]) -> list[list[Any]]:
    """Return path, size and digest of each file of corpora; of a folder, those of all files in it.

    A copy of a file has the same fingerprint, a changed file another one.
    """
    fingerprints: dict[str, list[Any]] = {}
    for path in (file for corpus in paths for part in find_pair(corpus) if part for file in expand_pattern(part)):
        size, digest = 0, hashlib.blake2b(digest_size=16)
        for file in sorted(filter(Path.is_file, Path(path).rglob("*"))) or [Path(path)]:
            status = file.stat()
            size += status.st_size
            digest.update(os.fsencode(file.relative_to(path)) + b"\0")
            digest.update(digest_file(os.path.abspath(file), status.st_size, status.st_mtime_ns))
        fingerprints[path] = [path, size, digest.hexdigest()]
    return list(fingerprints.values())


@cache
def digest_file(path: str, size: int, modified: int) -> bytes:
    """Return a digest of a file's bytes; the cache reads a file once while its size and time stay the same."""
    if not os.path.isfile(path):
        return str(modified).encode()  # a pipe can be read only once
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def expand_pattern(path: str) -> list[str]:
    return [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))


def make_slug(name: str) -> str:
    """Return a readable and unique file name for a trial."""
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    readable = re.sub(r"[^\w.=-]+", "-", name).strip("-").lower()
    return f"{readable[:80]}-{digest}"


def make_corpus_name(path: str) -> str:
    """Return the name of a corpus: its file name, or that of its folder if the file is called train."""
    first = path.split(",")[0]
    stem = Path(first).name.split(".")[0]
    parent = Path(first).resolve().parent.name
    return parent if stem in ("train", "training") and parent else stem or first


def claim_work_folder(work: Path) -> None:
    """Create a work folder; raise XmtcError if the folder holds something else."""
    if work.exists() and not work.is_dir():
        raise XmtcError(f"--checkpoint {work} is a file; expected a folder.")
    if work.is_dir() and any(work.iterdir()) and not (work / MARKER_FILE).exists():
        raise XmtcError(f"--checkpoint {work} contains other files; choose another folder or empty it.")
    work.mkdir(parents=True, exist_ok=True)
    (work / MARKER_FILE).write_text("Trials of xmtc compare or recommend; the folder can be deleted.\n")

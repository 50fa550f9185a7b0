"""Run one training or one prediction in its own process, with the interpreter of the measured system.

python runner.py warm_up|train|predict JOB.json

It knows nothing of xmtc: a module with_SYSTEM.py beside it drives each system through its public API. Input is brought
into the form a system takes before the clock starts, answers are brought into arrays after it stops."""

from __future__ import annotations

import json
import os
import resource
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter

K = 5  # number of requested labels
N_SINGLE, N_WARM = 500, 20  # number of single-document calls, and of calls before measuring
N_BATCHES, LONG_ENOUGH = 5, 5.0  # maximum number of passes over the test set, and maximum seconds


def main(stage: str, path: str) -> None:
    job = json.loads(Path(path).read_text())
    # before any library starts threads: all systems get the same cores
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job["threads"]])
    started = perf_counter()
    module = import_module(f"with_{job['system']}")
    system = module.System(job["kind"], job["parameters"], job["threads"], job["seed"])
    seconds = {"import": perf_counter() - started}
    report = {"warm_up": warm_up, "train": train, "predict": predict}[stage](system, job, seconds)
    report |= {"seconds": seconds, "versions": find_versions(module.PACKAGES)}
    Path(job["reports"], f"{stage}.json").write_text(json.dumps(report))


def warm_up(system, job: dict, seconds: dict) -> dict:
    """Compile and load everything before measuring."""
    time_work(seconds, "warm_up", system.warm_up, Path(job["data"]))
    return {}


def train(system, job: dict, seconds: dict) -> dict:
    folder, model_folder = Path(job["data"]), Path(job["model"])
    time_work(seconds, "warm_up", system.warm_up, folder)
    data = time_work(seconds, "read", system.read, folder)
    before = forget_peak()
    model = time_work(seconds, "train", system.train, data, model_folder)
    memory = {"before": before, "peak": read_peak_bytes(), "peak_of_process": read_process_peak_bytes()}
    time_work(seconds, "save", system.save, model, model_folder)
    return {"memory": memory, "model_bytes": sum(f.stat().st_size for f in model_folder.rglob("*") if f.is_file())}


def predict(system, job: dict, seconds: dict) -> dict:
    import numpy as np
    from scipy.sparse import csr_matrix, load_npz

    X = csr_matrix(load_npz(Path(job["data"], "X_test.npz")))
    before = forget_peak()
    model = time_work(seconds, "load", system.load, Path(job["model"]))
    batch = system.batch(X)
    time_work(seconds, "first_batch", system.predict_batch, model, batch, K)
    seconds["batch"], found = repeat_work(system.predict_batch, model, batch, K)
    labels, scores = system.arrays(found, K)
    np.savez(Path(job["reports"], "predictions.npz"), labels=labels, scores=scores)
    singles = time_single_documents(system, model, X)
    memory = {"before": before, "peak": read_peak_bytes(), "peak_of_process": read_process_peak_bytes()}
    return {"memory": memory, "n_docs": X.shape[0], "single_seconds": singles}


def time_single_documents(system, model, X) -> list[float]:
    """Return the seconds of each call with one document."""
    system.prepare_singles(model)
    documents = [system.single(X[i : i + 1]) for i in range(min(N_SINGLE, X.shape[0]))]
    for document in documents[:N_WARM]:
        system.predict_single(model, document, K)
    seconds = []
    for document in documents:
        started = perf_counter()
        system.predict_single(model, document, K)
        seconds.append(perf_counter() - started)
    return seconds


def repeat_work(work, *arguments):
    """Return the seconds and the result of repeated work: the median of the runs that fit in LONG_ENOUGH, without the
    first, at most N_BATCHES.

    A small test set takes only milliseconds, so one run would be noisy.
    """
    each: dict[str, float] = {}
    result = None
    while len(each) < N_BATCHES and (not each or sum(each.values()) < LONG_ENOUGH):
        result = time_work(each, str(len(each)), work, *arguments)
    return median(each.values()), result


def time_work(seconds: dict, name: str, work, *arguments):
    started = perf_counter()
    result = work(*arguments)
    seconds[name] = perf_counter() - started
    return result


def forget_peak() -> int:
    """Return the resident bytes, and reset the peak if the kernel allows it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return read_status("VmRSS")


def read_peak_bytes() -> int:
    """Return the peak of resident bytes since `forget_peak`, including data and libraries."""
    return read_status("VmHWM") or read_process_peak_bytes()


def read_process_peak_bytes() -> int:
    """Return the peak of resident bytes since the process started; on Linux, it includes the parent at the fork."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read_status(name: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def find_versions(packages: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import version

    return {package: version(package) for package in packages}


if __name__ == "__main__":
    main(*sys.argv[1:])

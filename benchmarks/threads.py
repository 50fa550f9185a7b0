"""Measure how training scales with threads: seconds of reading (documents one by one, and in batches as in `xmtc
train`), tf-idf and `fit`, whether the models have the same bytes, and the whole command with its wall and processor
seconds, page faults and stages.

Compiled code is loaded before tf-idf and `fit` are measured; how long that takes for tf-idf is "loading".

PYTHONPATH=. python benchmarks/threads.py ../shared/data/eurlex57k --threads 1 2 4 8 16 --methods parabel -o out.json

Every measurement is a process of its own; numbers of threads and methods take turns, and the best of --repeats counts.
The first round, which may compile, is not counted. The results are written after every measurement."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "numba", "scikit-learn")
STAGES = ("reading", "in batches", "loading", "tf-idf", "fit")
LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="a folder with train.jsonl.gz")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--methods", nargs="+", default=["parabel", "bonsai", "plt", "dismec"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--no-command", action="store_true", help="leave out the whole `xmtc train`")
    parser.add_argument("-o", "--out", type=Path, help="where to write the results, as JSON")
    parser.add_argument("--here", help=argparse.SUPPRESS)  # METHOD: measure in this process (used by the script itself)
    return parser.parse_args()


def main() -> None:
    args = parse_options()
    corpus = args.corpus / "train.jsonl.gz" if args.corpus.is_dir() else args.corpus
    if args.here:
        print(json.dumps(measure_stages(corpus, args.here, args.threads[0])))
        return
    result: dict[str, Any] = {"about": describe_machine(corpus), "runs": []}
    for method in args.methods:
        run_in_process(corpus, method, max(args.threads))  # compile first
    for repeat in range(args.repeats):
        for method in args.methods:
            for threads in args.threads:
                found = run_in_process(corpus, method, threads)
                if not args.no_command:
                    found["command"] = measure_command(corpus, method, threads)
                result["runs"].append({"repeat": repeat, "method": method, "threads": threads, **found})
                print(format_line(result["runs"][-1]), flush=True)
                store(args.out, result)
    for method in args.methods:
        print(summarize(method, [run for run in result["runs"] if run["method"] == method]))


def describe_machine(corpus: Path) -> dict[str, Any]:
    versions = {name: version(name) for name in PACKAGES}
    return {"corpus": corpus.parent.name, "cpus": os.cpu_count(), "python": platform.python_version(), **versions}


def measure_stages(corpus: Path, name: str, threads: int) -> dict[str, Any]:
    """Return wall and processor seconds of each stage and of the parts of `fit`, and the fingerprint of the model."""
    from xmtc.core.dataset import Dataset
    from xmtc.core.run import Run
    from xmtc.data.corpus import open_corpus
    from xmtc.data.label_collector import LabelCollector
    from xmtc.features.tfidf import Tfidf
    from xmtc.methods import method_class

    run, history = Run(threads).record_history()
    collector, method = LabelCollector(), method_class(name)()
    texts, reading = time_work(lambda: [document.text for document in collector.collect(open_corpus(str(corpus)))])
    _, in_batches = time_work(
        lambda: sum(1 for _ in LabelCollector().collect(open_corpus(str(corpus)).iter_batches(run)))
    )
    _, loading = time_work(lambda: Tfidf().fit(texts[:100], run))
    (_, bag), tfidf = time_work(lambda: Tfidf().fit(texts, run))
    data = Dataset.from_matrix(bag.matrix, collector.to_matrix(sorted(collector.id_by_label)))
    method.fit(Dataset.from_matrix(data.X[:500], data.Y[:500]))  # loads the compiled code
    history.clear()
    model, fit = time_work(lambda: method.fit(data, run=run))
    parts: dict[str, float] = {}
    for event in history:
        parts[event["title"]] = parts.get(event["title"], 0) + event["seconds"]
    found = {"reading": reading, "in batches": in_batches, "loading": loading, "tf-idf": tfidf, "fit": fit}
    return {**found, "parts": parts, "model": hash_model(model)}


def time_work(work) -> tuple[Any, dict[str, float]]:
    clock, processor = time.perf_counter(), time.process_time()
    found = work()
    return found, {"seconds": time.perf_counter() - clock, "cpu": time.process_time() - processor}


def hash_model(model) -> str:
    found = hashlib.sha256()
    for tree in model.trees:
        for array in tree.arrays:
            found.update(array.tobytes())
    return found.hexdigest()[:16]


def run_in_process(corpus: Path, method: str, threads: int) -> dict[str, Any]:
    words = [__file__, str(corpus), "--threads", str(threads), "--here", method]
    done = subprocess.run(
        [sys.executable, *words], env=limit_threads(threads), stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure_command(corpus: Path, method: str, threads: int) -> dict[str, Any]:
    """Measure a complete `xmtc train`."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        words = ["-m", "xmtc", "train", str(corpus), "-m", method, "-p", "calibrate=false", "-o", f"{folder}/model"]
        words += ["--log-json", str(log)]
        begin, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], env=limit_threads(threads), capture_output=True, check=True)
        end, after = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "seconds": end - begin,
            "user": after.ru_utime - before.ru_utime,
            "system": after.ru_stime - before.ru_stime,
            "faults": after.ru_minflt - before.ru_minflt,
            "parts": split_stages(log, begin, end),
        }


def split_stages(log: Path, begin: float, end: float) -> dict[str, float]:
    """Return the seconds of the stages of a command and between them.

    Before the first stage are the start of Python, imports and the first blocks of the file; after the last are saving
    and the end of the process.
    """
    parts: dict[str, float] = {}
    latest, name = begin, ""
    for event in map(json.loads, log.read_text().splitlines()):
        now = datetime.fromisoformat(event["time"]).timestamp()
        name = event["title"] if event["event"] == "stage" else f"before {event['title']}"
        parts[name] = parts.get(name, 0) + now - latest
        latest = now
    return parts | {"after it": end - latest}


def limit_threads(threads: int) -> dict[str, str]:
    return {**os.environ, **dict.fromkeys(LIMITS, str(threads))}


def format_line(run: dict[str, Any]) -> str:
    measured = [f"{name} {run[name]['seconds']:.2f} (cpu {run[name]['cpu']:.2f})" for name in STAGES]
    found = f"{run['method']:10} {run['threads']:3} threads: {', '.join(measured)}: {format_parts(run['parts'])}"
    if "command" in run:
        whole = run["command"]
        cpu = f"user {whole['user']:.1f}, system {whole['system']:.1f}, {whole['faults']:,} page faults"
        found += f"\n    command {whole['seconds']:.2f} ({cpu}): {format_parts(whole['parts'])}"
    return f"{found}\n    model {run['model']}"


def format_parts(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())


def summarize(method: str, runs: list[dict[str, Any]]) -> str:
    """Return the speed-up over the fewest threads, best run against best, and whether all models are equal."""
    names = [name for name in (*STAGES, "command") if name in runs[0]]
    same = "the same bytes" if len({run["model"] for run in runs}) == 1 else "DIFFERENT BYTES"
    return "\n".join([*(f"{method}: {name} {format_speeds(runs, name)}" for name in names), f"{method}: {same}"])


def format_speeds(runs: list[dict[str, Any]], name: str) -> str:
    best: dict[int, float] = {}
    for run in runs:
        best[run["threads"]] = min(best.get(run["threads"], float("inf")), run[name]["seconds"])
    fewest = best[min(best)]
    return ", ".join(f"{threads}: {fewest / seconds:.1f}x" for threads, seconds in sorted(best.items()))


def store(out: Path | None, result: dict[str, Any]) -> None:
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

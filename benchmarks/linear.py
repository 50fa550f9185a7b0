"""Compare xmtc with omikuji, PECOS, napkinXC and LibMultiLabel on the same tf-idf matrix and cores, in one run.

python benchmarks/linear.py --data eurlex57k tibkat-gnd-en cve-libraries yso-finna-en
python benchmarks/linear.py --data zipf-20000x50000 zipf-80000x200000     made up: documents x labels
python benchmarks/linear.py --data eurlex57k --threads 1 2 4 8

The peers are installed from benchmarks/peers/NAME.txt, each in its own virtual environment. Every training and every
prediction is a process of its own; the systems take turns, and all of them have had theirs before the next repeat. All
answers are judged here, by `xmtc.evaluation`. Writes OUT.json after every run, and OUT.md at the end; of a run that was
broken off, `python benchmarks/peers/report.py OUT.json` prints what OUT.md would say."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zipf
from peers import machine, matrices, measures, report
from peers.environments import NotInstalled, create_ignored_folder, find_interpreter

from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.evaluation import evaluate
from xmtc.methods import METHODS

HERE = Path(__file__).parent
MADE_UP = "zipf-"


@dataclass(frozen=True)
class Row:
    """Row of the table: the trained method, and the row of a peer to compare with."""

    name: str
    system: str  # "xmtc", or a peer, as in benchmarks/peers/NAME.txt
    kind: str  # for xmtc, the name in METHODS
    parameters: dict[str, Any] = field(default_factory=dict)  # other parameters have the default of the system
    against: str | None = None


ROWS = (
    Row("omikuji-parabel-3", "omikuji", "parabel"),
    # Bonsai with the parameters of omikuji's README
    Row("omikuji-bonsai-3", "omikuji", "bonsai", {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}),
    Row(
        "pecos-xr-linear-1",
        "libpecos",
        "xr-linear",
        {"nr_splits": 16, "max_leaf_size": 100, "threshold": 0.1, "Cp": 1.0, "Cn": 1.0, "beam_size": 10},
    ),
    Row("napkinxc-plt-1", "napkinxc", "plt"),
    Row("libmultilabel-tree-1", "libmultilabel", "tree"),
    Row("parabel-3", "xmtc", "parabel", {"preset": "paper"}, against="omikuji-parabel-3"),
    Row("parabel-1", "xmtc", "parabel", {"preset": "paper", "n_trees": 1}, against="pecos-xr-linear-1"),
    # as in PECOS; a single tree gains from more passes, PECOS uses up to 100
    Row(
        "parabel-1-wide",
        "xmtc",
        "parabel",
        {"n_trees": 1, "max_passes": 40},
        against="pecos-xr-linear-1",
    ),
    Row("bonsai-3", "xmtc", "bonsai", {"n_trees": 3}, against="omikuji-bonsai-3"),
    Row("bonsai-1", "xmtc", "bonsai", {"n_trees": 1}, against="libmultilabel-tree-1"),
    Row("plt-1", "xmtc", "plt", {"n_trees": 1}, against="napkinxc-plt-1"),
    Row("dismec", "xmtc", "dismec"),
)
JUDGED_BY = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class RunFailure(Exception):
    """A run has no result; the message is the reason."""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*dict.fromkeys(row.system for row in ROWS), *(row.name for row in ROWS)]
    known = "folders under --corpora, or zipf-DOCSxLABELS"
    parser.add_argument("--data", nargs="+", default=["cve-libraries"], metavar="NAME", help=known)
    parser.add_argument("--systems", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}; all")
    parser.add_argument("--repeats", type=int, default=3, help="of everything, each with its own seed; 3")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="cores for everybody; 2")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds for one training or prediction; 7200")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "linear", help="writes OUT.json and OUT.md")
    parser.add_argument("--corpora", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--work", type=Path, default=HERE / ".peers" / "work", help="for matrices and models")
    parser.add_argument("--peers", type=Path, help="virtual environments DIR/NAME to use as they are; else made here")
    return parser.parse_args()


def main() -> None:
    args = parse_options()
    rows = select_rows(args.systems)
    create_ignored_folder(HERE / ".peers")
    pythons, failures = find_interpreters(rows, args.peers)
    result: dict[str, Any] = {"about": machine.describe_run(args), "data": {}, "runs": []}
    result["rows"] = {row.name: vars(row) for row in rows}
    for name, threads in itertools.product(args.data, args.threads):
        case = name if len(args.threads) == 1 else f"{name}, threads: {threads}"
        folder = args.work / name
        print(f"{case}: preparing the matrices", flush=True)
        result["data"][case] = prepare_corpus(name, args.corpora, folder, threads)
        failed = {row.name: failures[row.system] for row in rows if row.system in failures}
        for repeat in range(-1, args.repeats):
            for row in rows:
                job = describe(row, folder, max(repeat, 0), threads)
                python = pythons.get(row.system)
                record = measure(row, job, python, failed, args.timeout, repeat)
                if record is not None:
                    result["runs"].append({"data": case, "row": row.name, "repeat": repeat, **record})
                    store(args.out, result)
    text = report.render_markdown(result)
    args.out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(f"\n{text}")


def prepare_corpus(name: str, corpora: Path, folder: Path, threads: int) -> dict[str, int]:
    """Return the sizes of the corpus, existing or synthetic, that was written to the folder."""
    if not name.startswith(MADE_UP):
        return matrices.prepare(corpora / name, folder, Run(threads))
    n_docs, n_labels = map(int, name.removeprefix(MADE_UP).split("x"))
    train, test = zipf.corpus(n_docs, n_labels, seed=1), zipf.corpus(zipf.N_TEST, n_labels, seed=2)
    return matrices.write(folder, train.X, train.Y, test.X, test.Y)


def select_rows(names: list[str] | None) -> list[Row]:
    rows = [row for row in ROWS if not names or row.name in names or row.system in names]
    for row in rows:
        if row.system == "xmtc" and row.kind not in METHODS:
            print(f"skipping {row.name}: there is no method {row.kind}")
    return [row for row in rows if row.system != "xmtc" or row.kind in METHODS]


def find_interpreters(rows: list[Row], folder: Path | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the Python of each system, and the reason for systems without one."""
    pythons, failures = {}, {}
    for system in dict.fromkeys(row.system for row in rows):
        try:
            pythons[system] = find_interpreter(system, folder or HERE / ".peers", install=folder is None)
        except NotInstalled as reason:
            failures[system] = str(reason)
            print(f"{system}: {reason}", flush=True)
    return pythons, failures


def describe(row: Row, folder: Path, seed: int, threads: int) -> dict[str, Any]:
    return {
        "system": row.system,
        "kind": row.kind,
        "parameters": row.parameters,
        "seed": seed,
        "threads": threads,
        "data": str(folder.resolve()),
        "model": str((folder / "model").resolve()),
        "reports": str((folder / "reports").resolve()),
    }


def measure(
    row: Row, job: dict, python: str | None, failed: dict[str, str], timeout: float, repeat: int
) -> dict[str, Any] | None:
    """Run a row once; repeat −1 only warms up. Rows in `failed` (with the reason) are skipped."""
    if row.name in failed:
        return {"failed": failed[row.name]} if repeat == 0 else None
    stages = ("warm_up",) if repeat < 0 else ("train", "predict")
    for name in ("model", "reports"):
        shutil.rmtree(job[name], ignore_errors=True)
        Path(job[name]).mkdir(parents=True)
    monitor = machine.LoadMonitor()
    try:
        found = {stage: run_child(python or "", stage, job, timeout) for stage in stages}
        if repeat < 0:
            return None
        record = measures.flatten_run(found["train"], found["predict"], evaluate_job(job)) | {
            "others": monitor.mean_other_cores()
        }
    except RunFailure as reason:
        failed[row.name] = str(reason)
        print(f"  {row.name} failed: {reason}", flush=True)
        return {"failed": str(reason)} if repeat >= 0 else None
    finally:
        shutil.rmtree(job["model"], ignore_errors=True)
    print(f"  {repeat + 1} {row.name:22} {measures.format_run(record)}, others {record['others']} cores", flush=True)
    return record


def run_child(python: str, stage: str, job: dict, timeout: float) -> dict[str, Any]:
    """Return the report of runner.py for one stage, run in its own process."""
    path, log = Path(job["reports"], "job.json"), Path(job["reports"], f"{stage}.log")
    path.write_text(json.dumps(job))
    environment = {**os.environ, **dict.fromkeys(THREAD_LIMITS, str(job["threads"]))}
    command = [python, str(HERE / "peers" / "runner.py"), stage, str(path)]
    with log.open("wb") as output:
        try:
            subprocess.run(command, stdout=output, stderr=output, env=environment, timeout=timeout, check=True)
        except subprocess.TimeoutExpired:
            raise RunFailure(f"{stage} took more than {timeout:g} s") from None
        except subprocess.CalledProcessError as error:
            raise RunFailure(f"{stage}: {measures.find_last_line(log, error.returncode)}") from None
    return json.loads(Path(job["reports"], f"{stage}.json").read_text())


def evaluate_job(job: dict) -> dict[str, float]:
    Y, frequencies, n_train = matrices.load_truth(Path(job["data"]))
    with np.load(Path(job["reports"], "predictions.npz")) as found:
        predictions = Predictions(found["labels"], found["scores"])
    return evaluate(predictions, Y, JUDGED_BY, frequencies, n_train=n_train)


def store(out: Path, result: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    summary = {"summary": measures.summarize(result), "ratios": measures.compute_ratios(result)}
    out.with_suffix(".json").write_text(json.dumps({**result, **summary}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

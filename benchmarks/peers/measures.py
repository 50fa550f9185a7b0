"""Medians and ratios of the results of processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

MB = 1e6
# measure → title in the tables; lower is better for all
COMPARED = {
    "train_s": "training",
    "batch_ms": "batch",
    "single_p50_ms": "one by one p50",
    "single_p99_ms": "p99",
    "model_mb": "model size",
    "train_mb": "memory in training",
}
PRECISIONS, PROPENSITY_SCORED = ("P@1", "P@3", "P@5"), ("PSP@1", "PSP@3", "PSP@5")
BEST_PEER = "best peer"


def flatten_run(train: dict, predict: dict, judged: dict[str, float]) -> dict[str, Any]:
    """Return one run as a flat dictionary."""
    seconds, single = train["seconds"], np.array(predict["single_seconds"]) * 1000
    values = {
        "start_s": seconds["import"] + seconds["warm_up"],
        "read_s": seconds["read"],
        "train_s": seconds["train"],
        "save_s": seconds["save"],
        "load_s": predict["seconds"]["load"],
        "first_batch_ms": predict["seconds"]["first_batch"] * 1000 / predict["n_docs"],
        "batch_ms": predict["seconds"]["batch"] * 1000 / predict["n_docs"],
        "single_mean_ms": single.mean(),
        "single_p50_ms": np.percentile(single, 50),
        "single_p99_ms": np.percentile(single, 99),
        "model_mb": train["model_bytes"] / MB,
        "before_train_mb": train["memory"]["before"] / MB,
        "train_mb": train["memory"]["peak"] / MB,
        "train_process_mb": train["memory"]["peak_of_process"] / MB,
        "predict_mb": predict["memory"]["peak"] / MB,
        **{name: 100 * value for name, value in judged.items()},
    }
    return {**{name: round(float(value), 5) for name, value in values.items()}, "versions": train["versions"]}


def format_run(record: dict[str, Any]) -> str:
    return (
        f"train {record['train_s']:8.2f} s  batch {record['batch_ms']:7.3f} ms  one by one "
        f"{record['single_p50_ms']:7.3f} ms  P@1 {record['P@1']:.2f}  {record['train_mb']:.0f} MB"
    )


def find_last_line(log: Path, code: int) -> str:
    """Return the last line of a process's output, without folders of this machine."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = re.sub(r"(?:/[\w.+-]+)+/", "", lines[-1][:200] if lines else "no output")
    return f"{said.replace('|', ' ')} (exit status {code})"


def select_complete_rows(result: dict[str, Any], data: str, row: str) -> list[dict[str, Any]]:
    return [run for run in result["runs"] if (run["data"], run["row"]) == (data, row) and "failed" not in run]


def list_failures(result: dict[str, Any], data: str, row: str) -> list[str]:
    return [run["failed"] for run in result["runs"] if (run["data"], run["row"]) == (data, row) and "failed" in run]


def summarize(result: dict[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Return data → row → measure → median over the repeats (mean for P and PSP)."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for data in result["data"]:
        for row in result["rows"]:
            runs = select_complete_rows(result, data, row)
            names = [name for name, value in (runs[0] if runs else {}).items() if isinstance(value, float)]
            if runs:
                found.setdefault(data, {})[row] = {name: average(name, runs) for name in names}
    return found


def average(name: str, runs: list[dict[str, Any]]) -> float:
    values = [run[name] for run in runs]
    return float(np.mean(values) if "@" in name else np.median(values))


def compute_ratios(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the measure of the peer divided by ours, for medians and each repeat, and our P minus theirs.

    Each of our rows is compare_rows with its peer, and with the best of all peers in each measure.
    """
    found = []
    for data, rows in summarize(result).items():
        peers = [row for row in rows if result["rows"][row]["system"] != "xmtc"]
        for row in (row for row in rows if row not in peers):
            own = result["rows"][row]["against"]
            if own in peers:
                difference = {name: round(rows[row][name] - rows[own][name], 3) for name in PRECISIONS}
                entry = compare_rows(result, data, row, dict.fromkeys(COMPARED, own))
                found.append({"against": own, **entry, "difference": difference})
            if peers:
                best = {name: min(peers, key=lambda peer: rows[peer][name]) for name in COMPARED}
                found.append({"against": BEST_PEER, **compare_rows(result, data, row, best)})
    return found


def compare_rows(result: dict[str, Any], data: str, row: str, against: dict[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"data": data, "row": row}
    ours = {run["repeat"]: run for run in select_complete_rows(result, data, row)}
    for name, peer in against.items():
        theirs = {run["repeat"]: run for run in select_complete_rows(result, data, peer)}
        each = [round(theirs[repeat][name] / ours[repeat][name], 3) for repeat in sorted(ours.keys() & theirs.keys())]
        ratio = average(name, list(theirs.values())) / average(name, list(ours.values()))
        entry[name] = {"peer": peer, "ratio": round(ratio, 3), "each": each}
    return entry

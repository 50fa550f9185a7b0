"""Results in a JSON file, an object by the name of each: added at once, whole or not at all, and with them where, when
and with what they were made."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import xmtc
from xmtc.analysis.measured_process import SOURCE_ROOT
from xmtc.errors import XmtcError
from xmtc.storage.atomic import LOCK_SUFFIX, atomic_file, hold_lock, to_hidden_path

RECORDED_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "torch", "transformers")
THREAD_LOCK = threading.Lock()  # threads of ours may finish together, also where the system has no locks

ResultRecord = dict[str, Any]


def load_results(path: Path) -> dict[str, ResultRecord]:
    """What a file of results holds; nothing where there is none yet."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise XmtcError(
            f"{path} holds no JSON ({error}); expected results as xmtc keeps them: mend it, or move it away."
        ) from None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise XmtcError(f"{path} holds no results as xmtc keeps them, an object of objects; move it away.")
    return found


def save_result(path: Path, name: str, result: ResultRecord) -> None:
    """Add a result to the file, beside what other threads and processes write meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with THREAD_LOCK, hold_lock(to_hidden_path(path, LOCK_SUFFIX)):
        whole = load_results(path) | {name: result}
        with atomic_file(path) as file:
            file.write((json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode())


def measure_folder_mb(model: Path) -> float:
    """In MB."""
    return round(sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e6, 3)


def describe_environment(machine: str | None = None, commit: str | None = None) -> ResultRecord:
    """What a result says of the machine, the versions and the commit, where the machine can tell."""
    known = {"python": platform.python_version(), "xmtc": xmtc.__version__}
    for name in RECORDED_PACKAGES:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"machine": machine or describe_machine(), "versions": known, "commit": commit or get_commit()}


def describe_machine() -> str:
    return ", ".join([f"{os.cpu_count()} cores", *list_gpus()])


def list_gpus() -> list[str]:
    return get_command_output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()


def get_commit() -> str:
    """Of the checkout that runs, with a + where it was changed since; of an installed xmtc, its version is all."""
    if not (SOURCE_ROOT / ".git").exists():
        return "unknown"
    changed = get_command_output("git", "-C", str(SOURCE_ROOT), "status", "--porcelain", "-uno", "--", "xmtc")
    now = get_command_output("git", "-C", str(SOURCE_ROOT), "rev-parse", "--short=12", "HEAD")
    return f"{now}{'+' if changed else ''}" or "unknown"


def get_command_output(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""

"""JSON files of results, one object per name, and the environment in which a result was computed.

A result is added as soon as it exists; the file is replaced atomically.
"""

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
THREAD_LOCK = threading.Lock()  # for systems without file locks

ResultRecord = dict[str, Any]


def load_results(path: Path) -> dict[str, ResultRecord]:
    """Return the results of a file by name; an empty dict if there is no file."""
    if not path.exists():
        return {}
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise XmtcError(f"{path} is not valid JSON ({error}); repair it or move it away.") from None
    if not isinstance(results, dict) or not all(isinstance(result, dict) for result in results.values()):
        raise XmtcError(f"{path} is not a file of xmtc results (expected a JSON object of objects); move it away.")
    return results


def save_result(path: Path, name: str, result: ResultRecord) -> None:
    """Add or replace a result; other threads and processes may write to the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with THREAD_LOCK, hold_lock(to_hidden_path(path, LOCK_SUFFIX)):
        results = load_results(path) | {name: result}
        with atomic_file(path) as file:
            file.write((json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode())


def measure_folder_mb(folder: Path) -> float:
    """Return the size of all files in a folder, in MB."""
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 3)


def describe_environment(machine: str | None = None, commit: str | None = None) -> ResultRecord:
    """Return machine, package versions and commit."""
    versions = {"python": platform.python_version(), "xmtc": xmtc.__version__}
    for name in RECORDED_PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"machine": machine or describe_machine(), "versions": versions, "commit": commit or get_commit()}


def describe_machine() -> str:
    return ", ".join([f"{os.cpu_count()} cores", *list_gpus()])


def list_gpus() -> list[str]:
    return get_command_output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()


def get_commit() -> str:
    """Return the commit of the checkout, with a + if the package was changed since; "unknown" if installed."""
    if not (SOURCE_ROOT / ".git").exists():
        return "unknown"
    changes = get_command_output("git", "-C", str(SOURCE_ROOT), "status", "--porcelain", "-uno", "--", "xmtc")
    commit = get_command_output("git", "-C", str(SOURCE_ROOT), "rev-parse", "--short=12", "HEAD")
    return f"{commit}{'+' if changes else ''}" or "unknown"


def get_command_output(*command: str) -> str:
    """Return the standard output of a command; an empty string if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""

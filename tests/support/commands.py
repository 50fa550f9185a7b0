"""Helpers that run the commands, and a corpus for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path

from planted import make_planted_corpus
from typer.testing import CliRunner

from xmtc.analysis.measured_process import MeasuredCommand
from xmtc.analysis.trial_worker import run_task
from xmtc.analysis.trials import TrialResult
from xmtc.errors import XmtcError

# The installed command, or the module if tests run from the source tree.
SCRIPT = Path(sys.executable).parent / "xmtc"
XMTC = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "xmtc"]


def xmtc(*words, input: bytes | None = None, cwd=None, env=None) -> subprocess.CompletedProcess:
    if env is not None and "PYTHONPATH" in os.environ:
        env = {"PYTHONPATH": os.environ["PYTHONPATH"], **env}  # not installed
    return subprocess.run([*XMTC, *map(str, words)], input=input, capture_output=True, cwd=cwd, env=env, timeout=120)


def invoke(*words, input: bytes | None = None, cwd=".") -> subprocess.CompletedProcess:
    """Run `xmtc` in this process, which is much faster than a new process."""
    from xmtc.cli import app

    with chdir(cwd):
        done = CliRunner().invoke(app, list(map(str, words)), input=input)
    if done.exception is None or isinstance(done.exception, SystemExit):
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout_bytes, done.stderr_bytes)
    if not isinstance(done.exception, XmtcError):
        raise done.exception
    return subprocess.CompletedProcess(
        words, 2, done.stdout_bytes, done.stderr_bytes + f"xmtc: {done.exception}\n".encode()
    )


def measured_here(words, log, limit=None, stop=None) -> MeasuredCommand:
    """Replace xmtc.analysis.measured_process.run_measured by a call in this process, for tests that do not measure."""
    begin = time.perf_counter()
    done = invoke(*words)
    seconds = time.perf_counter() - begin
    return MeasuredCommand(
        tuple(words), done.returncode, done.stdout.decode(), done.stderr.decode(), seconds, seconds, 50.0
    )


def run_trial_here(request, log, limit=None) -> TrialResult:
    """Run a trial as `xmtc.analysis.trials.run_in_child` does, but in this process and with made-up memory."""
    start = time.perf_counter()
    failure = run_task(request)
    seconds = time.perf_counter() - start
    return TrialResult({}, seconds, seconds, 50.0, failure)


def lines_of(n_docs: int, seed: int) -> str:
    pairs = zip(*make_planted_corpus(n_docs, seed), strict=True)
    return "".join(json.dumps({"id": f"d{i}", "text": t, "labels": y}) + "\n" for i, (t, y) in enumerate(pairs))


def make_place(folder: Path) -> Path:
    """Create a folder with train.jsonl, test.jsonl and a model."""
    (folder / "train.jsonl").write_text(lines_of(400, seed=0))
    (folder / "test.jsonl").write_text(lines_of(60, seed=1))
    done = invoke("train", "train.jsonl", "-m", "parabel", "-o", "model", "-p", "max_leaf=10", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder

"""Commands from a corpus to an explanation: as installed, as on Windows, and without packages they do not need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import XMTC, lines_of
from planted import planted_words

# Names that Windows lacks. Other packages check before they use them; xmtc must do so too.
AS_ON_WINDOWS = """
import os, signal, sys

gone = '''fork forkpty register_at_fork getuid geteuid getgid getegid getgroups getpgid getpgrp getsid setsid
    getloadavg getpriority nice sched_getaffinity sched_setaffinity sched_yield chown fchown lchown chroot mkfifo
    mknod pread pwrite preadv pwritev readv writev sendfile posix_fadvise posix_fallocate posix_spawn posix_spawnp
    killpg wait3 wait4 waitid statvfs fstatvfs sync fdatasync ttyname openpty pipe2 O_DIRECTORY O_NOFOLLOW O_NOCTTY
    O_SYNC O_DSYNC O_TMPFILE O_PATH'''
signals = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN"}

for name in set(gone.split()) & set(dir(os)):
    delattr(os, name)
for name in {name for name in dir(signal) if name.startswith("SIG")} - signals:
    delattr(signal, name)
for name in ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None

from xmtc.cli import main
main()
"""
# pyarrow is an extra; scikit-learn is only needed by the estimator and a few methods.
WITHOUT_PACKAGES = """
import sys

for name in ("pyarrow", "sklearn", "pandas", "torch"):
    sys.modules[name] = None

from xmtc.cli import main
main()
"""
WAYS = {
    "installed": XMTC,
    "as on Windows": [sys.executable, "-c", AS_ON_WINDOWS],
    "without packages": [sys.executable, "-c", WITHOUT_PACKAGES],
}
Run = Callable[..., str]


@pytest.fixture(scope="module", params=WAYS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a command in a folder with a corpus and a model; return its output."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "corpus.jsonl").write_text(lines_of(400, seed=0), encoding="utf-8")

    def run(*words: str) -> str:
        done = subprocess.run([*WAYS[request.param], *words], cwd=folder, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    run("data", "split", "corpus.jsonl", "train.jsonl", "test.jsonl")
    for _ in range(2):  # the second training replaces the first model
        run("train", "train.jsonl", "-o", "model", "-p", "max_leaf=10", "--checkpoint", "pieces")
    return run


def test_data_commands_run(run: Run) -> None:
    assert json.loads(run("data", "stats", "train.jsonl", "--json"))["documents"] == 320
    run("data", "convert", "test.jsonl", "test.csv")


def test_evaluate_runs(run: Run) -> None:
    assert json.loads(run("evaluate", "model", "test.jsonl", "P@1", "--json"))["P@1"] > 0.9


def test_predict_runs(run: Run) -> None:
    assert len(run("predict", "model", "test.jsonl", "-k", "2").splitlines()) == 80


def test_explain_runs(run: Run) -> None:
    text = " ".join(planted_words(3))
    assert planted_words(3)[0] in run("explain", "model", "--string", text, "--label", "label-03", "--html", "why.html")


def test_info_runs(run: Run) -> None:
    assert json.loads(run("info", "model", "--verify"))["method"] == "parabel"


def test_export_runs(run: Run, tmp_path: Path) -> None:
    assert " labels, " in run("export", "model", "-o", str(tmp_path / "arrays"))
    assert {"reader.py", "weights.npy"} <= {path.name for path in (tmp_path / "arrays").iterdir()}


def test_bad_line_is_saved_to_rejects(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("no JSON\n" + lines_of(5, seed=2), encoding="utf-8")
    assert len(run("predict", "model", str(tmp_path / "bad.jsonl"), "--on-error", "skip").splitlines()) == 5
    assert (tmp_path / "bad.jsonl.rejects").exists()

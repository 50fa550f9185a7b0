"""The commands as people run them, and a corpus to run them on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from planted import planted

# The installed command; where tests run from the tree alone, what it starts.
SCRIPT = Path(sys.executable).parent / "xmtc"
XMTC = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "xmtc"]


def xmtc(*words, input: bytes | None = None, cwd=None, env=None) -> subprocess.CompletedProcess:
    if env is not None and "PYTHONPATH" in os.environ:
        env = {"PYTHONPATH": os.environ["PYTHONPATH"], **env}  # where it is not installed
    return subprocess.run([*XMTC, *map(str, words)], input=input, capture_output=True, cwd=cwd, env=env, timeout=120)


def lines_of(n_docs: int, seed: int) -> str:
    pairs = zip(*planted(n_docs, seed), strict=True)
    return "".join(json.dumps({"id": f"d{i}", "text": t, "labels": y}) + "\n" for i, (t, y) in enumerate(pairs))


def make_place(folder: Path) -> Path:
    """A folder with train.jsonl, test.jsonl and a model."""
    (folder / "train.jsonl").write_text(lines_of(400, seed=0))
    (folder / "test.jsonl").write_text(lines_of(60, seed=1))
    done = xmtc("train", "train.jsonl", "-m", "parabel", "-o", "model", "-p", "max_leaf=10", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder

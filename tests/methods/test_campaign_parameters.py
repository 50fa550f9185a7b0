"""A bounded part of the parameter campaign; `python -m tests.campaigns.parameters --minutes 60` runs all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])}


def run_python(arguments: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process, because a fork of one with threads may hang."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every case runs in a forked process")
def test_parameters_at_their_extremes():
    arguments = ["-m", "tests.campaigns.parameters", "--seed", "0", "--cases", "40", "--minutes", "5"]
    done = run_python(arguments, timeout=500)
    assert "40 of " in done.stdout, done.stdout + done.stderr
    assert "0 findings" in done.stdout, done.stdout
    assert done.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every case runs in a forked process")
def test_the_campaign_reports_failures():
    """An unexpected exception, too much memory, a timeout and a crash are findings."""
    code = """
import os, time
from tests.campaigns import parameters
from tests.campaigns.parameters import ParameterCase, run_in_process
for work in (lambda *_: 1 / 0, lambda *_: bytearray(2**40), lambda *_: time.sleep(60), lambda *_: os._exit(3)):
    parameters.run_case = work
    print(run_in_process(ParameterCase("parabel", "C", 1.0, "texts"), seconds=2))
"""
    done = run_python(["-c", code], timeout=120)
    first, second, third, fourth = done.stdout.splitlines()
    assert first.startswith("ZeroDivisionError: division by zero")
    assert second.startswith("MemoryError")
    assert third == "takes longer than 2 seconds"
    assert fourth.startswith("ended without a word")

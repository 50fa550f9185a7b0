"""A bounded part of the campaign of parameters; `python -m tests.campaigns.parameters --minutes 60` tries them all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every case is a process of its own, which needs fork")
def test_parameters_at_their_extremes():
    """In a process that has no threads yet: what a test before has started would not survive a fork."""
    words = ["-m", "tests.campaigns.parameters", "--seed", "0", "--cases", "40", "--minutes", "5"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert "40 of " in done.stdout, done.stdout + done.stderr
    assert "0 findings" in done.stdout, done.stdout
    assert done.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every case is a process of its own, which needs fork")
def test_the_campaign_finds_what_is_wrong():
    """Another exception, memory, time, a process that dies: each is a finding."""
    code = """
import os, time
from tests.campaigns import parameters
from tests.campaigns.parameters import Case, apart
for work in (lambda *_: 1 / 0, lambda *_: bytearray(2**40), lambda *_: time.sleep(60), lambda *_: os._exit(3)):
    parameters.run_case = work
    print(apart(Case("parabel", "C", 1.0, "texts"), seconds=2))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    first, second, third, fourth = done.stdout.splitlines()
    assert first.startswith("ZeroDivisionError: division by zero")
    assert second.startswith("MemoryError")
    assert third == "takes longer than 2 seconds"
    assert fourth.startswith("ended without a word")

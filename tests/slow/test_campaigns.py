"""Some minutes of the campaigns, each with a seed of its own day by day. Run with `make slow`."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

CAMPAIGNS = Path(__file__).parents[1] / "campaigns"


@pytest.mark.parametrize("name", ["readers", "folders", "kills", "faults", "parameters", "soak", "server"])
def test_a_campaign_finds_nothing(name):
    command = [sys.executable, CAMPAIGNS / f"{name}.py", "--minutes", "3", "--seed", str(date.today().toordinal())]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr

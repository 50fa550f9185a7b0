"""Short runs of the campaigns with a seed that changes daily. Run with `make slow`."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

CAMPAIGNS = Path(__file__).parents[1] / "campaigns"


@pytest.mark.parametrize("name", ["readers", "folders", "kills", "faults", "parameters", "soak", "server"])
def test_campaign_has_no_findings(name):
    command = [sys.executable, CAMPAIGNS / f"{name}.py", "--minutes", "3", "--seed", str(date.today().toordinal())]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr

"""Short runs of the campaigns with kill -9 and with machine faults (`tests/campaigns`)."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from campaigns import faults, kills

pytestmark = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform != "linux", reason="needs fork and ulimit")


def test_killed_processes_leave_valid_models() -> None:
    n_cases, findings = kills.run_campaign(seed=0, cases=16, networks=False)
    assert not findings
    assert n_cases == 16


def careless(new: Path, target: Path) -> bool:
    """Remove the old model before the new one is in its place."""
    shutil.rmtree(target)
    os.rename(new, target)
    os.mkdir(new)
    return True


def test_campaign_detects_a_missing_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which cases meet the moment without a model depends on the Python version; among 60, some do."""
    monkeypatch.setattr(kills.disk, "exchange", careless)
    findings = kills.run_campaign(seed=0, cases=60, networks=False)[1]
    assert any("the model does not open" in finding for finding in findings)


def test_machine_faults_leave_valid_models() -> None:
    n_cases, findings = faults.run_campaign(seed=0, cases=len(faults.FAULTS))
    assert not findings
    assert n_cases == len(faults.FAULTS)

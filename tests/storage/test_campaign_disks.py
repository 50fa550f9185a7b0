"""A small part of the campaigns with kill -9 and with faults of the machine; `tests/campaigns` has the whole."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from campaigns import faults, kills

pytestmark = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform != "linux", reason="needs fork and ulimit")


def test_kills() -> None:
    n_cases, findings = kills.campaign(seed=0, cases=16, networks=False)
    assert not findings
    assert n_cases == 16


def careless(new: Path, target: Path) -> bool:
    """Removes the old model before the new one is in its place."""
    shutil.rmtree(target)
    os.rename(new, target)
    os.mkdir(new)
    return True


def test_kills_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign can fail. Which cases meet the moment without a model depends on the Python: among 60 some do."""
    monkeypatch.setattr(kills.disk, "exchange", careless)
    findings = kills.campaign(seed=0, cases=60, networks=False)[1]
    assert any("the model does not open" in finding for finding in findings)


def test_faults() -> None:
    n_cases, findings = faults.campaign(seed=0, cases=len(faults.FAULTS))
    assert not findings
    assert n_cases == len(faults.FAULTS)

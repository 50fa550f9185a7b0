"""A small part of the campaigns with kill -9 and with faults of the machine; `tests/campaigns` has the whole."""

from __future__ import annotations

import os
import sys

import pytest
from campaigns import faults, kills

pytestmark = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform != "linux", reason="needs fork and ulimit")


def test_kills() -> None:
    n_cases, findings = kills.campaign(seed=0, cases=16, networks=False)
    assert not findings
    assert n_cases == 16


def test_kills_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign can fail: here nobody puts back what was moved aside."""
    monkeypatch.setattr(kills.disk, "put_back", lambda old, target: None)
    monkeypatch.setattr(kills.disk, "exchange", lambda one, other: False)
    findings = kills.campaign(seed=0, cases=16, networks=False)[1]  # which case it is depends on the Python
    assert any("model is not there" in finding for finding in findings)


def test_faults() -> None:
    n_cases, findings = faults.campaign(seed=0, cases=len(faults.FAULTS))
    assert not findings
    assert n_cases == len(faults.FAULTS)

"""Short run (20 seconds) of the campaign against the service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_service_campaign_has_no_findings():
    script = Path(__file__).parents[1] / "campaigns" / "server.py"
    command = [sys.executable, str(script), "--minutes", "0.3", "--seed", "1", "--max-p99", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "normal client: p50" in done.stdout

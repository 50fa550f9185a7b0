"""Traces of a service that `opentelemetry-instrument` starts; xmtc has no code for them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.instrumentation.fastapi", reason="OpenTelemetry is not installed")
INSTRUMENT = shutil.which("opentelemetry-instrument", path=str(Path(sys.executable).parent))
if INSTRUMENT is None:
    pytest.skip("the command opentelemetry-instrument is not installed", allow_module_level=True)

from serving import TEXTS, ServiceProcess, make_model  # noqa: E402


@pytest.mark.parametrize("workers", [1, 2])
def test_requests_have_traces_without_texts(workers, tmp_path):
    output = tmp_path / "traces"
    folder = str(make_model(tmp_path / "model"))
    command = [INSTRUMENT, "--traces_exporter", "console", "--metrics_exporter", "none", "--logs_exporter", "none"]
    command += [sys.executable, "-m", "xmtc", "serve", folder, "--port", "0", "--workers", str(workers)]
    environment = {**os.environ, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with output.open("wb") as traces:
        process = subprocess.Popen(
            command, stdout=traces, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        service = ServiceProcess(process)
        try:
            assert service.ready.wait(60)
            body = json.dumps({"text": TEXTS[0]}).encode()
            headers = {"Content-Type": "application/json"}
            urllib.request.urlopen(urllib.request.Request(f"{service.url}/v1/models/model/predict", body, headers))
            end = time.monotonic() + 30
            while '"name": "POST /v1/models/{name}/predict"' not in output.read_text() and time.monotonic() < end:
                time.sleep(0.1)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)
            process.stderr.close()
    assert '"name": "POST /v1/models/{name}/predict"' in output.read_text()
    assert TEXTS[0] not in output.read_text()

"""Dead worker processes are replaced and logged, and the service recovers."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

import httpx
from serving import TEXTS, make_model, running

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "m")


def workers_of(service) -> list[int]:
    pid = service.process.pid
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def status_of(service, path: str = "/v1/models/m/predict") -> int:
    """Return the status of a response, or 0 if there was none."""
    try:
        return httpx.post(f"{service.url}{path}", json={"text": TEXTS[0]}, timeout=10).status_code
    except httpx.HTTPError:
        return 0


def wait_until(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_worker_that_dies_during_start_is_replaced(folder):
    with running(folder, "--workers", "2") as service:
        wait_until(lambda: len(workers_of(service)) == 2)
        for _ in range(2):  # the second worker dies before it can answer a ping
            known = set(workers_of(service))
            victim = max(known)
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda known=known: set(workers_of(service)) - known, 5)
        known = set(workers_of(service))
        for each in known:
            os.kill(each, signal.SIGKILL)
        wait_until(lambda: status_of(service) == 200, 15)
        deaths = service.events("worker died")
        assert len(deaths) == 4
        assert {each["cause"] for each in deaths} == {"SIGKILL"}
        assert known <= {each["pid"] for each in deaths}
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(20) == 0


def test_truncated_model_file_does_not_end_the_service(folder, tmp_path):
    for name in ("m", "other"):
        shutil.copytree(folder, tmp_path / name)
    with running(tmp_path / "m", tmp_path / "other", "--workers", "2") as service:
        wait_until(lambda: status_of(service) == 200)
        os.truncate(tmp_path / "m" / "arrays.safetensors", 0)
        wait_until(lambda: status_of(service) == 503, 30)  # both workers died and were replaced
        wait_until(lambda: status_of(service, "/v1/models/other/predict") == 200)
        assert {each["cause"] for each in service.events("worker died")} == {"SIGBUS"}
        refused = service.events("model refused")
        assert {each["model"] for each in refused} == {"m"}
        assert "arrays.safetensors" in refused[0]["message"]
        shutil.copytree(folder, tmp_path / "new")
        os.rename(tmp_path / "m", tmp_path / "old")
        os.rename(tmp_path / "new", tmp_path / "m")
        wait_until(lambda: all(status_of(service) == 200 for _ in range(5)))


def test_repeatedly_dying_workers_are_replaced_with_delay(monkeypatch):
    from types import SimpleNamespace

    from xmtc.server import workers

    events = []
    monkeypatch.setattr(workers.log, "write_event", lambda name, **fields: events.append(fields))
    monkeypatch.setattr(workers.WorkerSupervisor, "discard_old_metrics", lambda self, pid: None)
    supervisor = workers.WorkerSupervisor.__new__(workers.WorkerSupervisor)
    supervisor.n_early_deaths = 0

    def dead(lived: float, code: int) -> SimpleNamespace:
        return SimpleNamespace(
            process=SimpleNamespace(is_alive=lambda: False),
            kill=lambda: None,
            join=lambda: None,
            pid=1,
            exitcode=code,
            started=time.monotonic() - lived,
        )

    delays = [supervisor.remove_worker(dead(lived, -9)) for lived in (100, 1, 1, 1, 1, 1, 1, 1, 100, 1)]
    assert delays == [0, 0, 0.5, 1, 2, 4, 8, 8, 0, 0]
    supervisor.remove_worker(dead(1, 3))
    supervisor.remove_worker(dead(1, -7))
    assert [each["cause"] for each in events[-3:]] == ["SIGKILL", "exit status 3", "SIGBUS"]


def test_metrics_of_dead_workers_are_removed(monkeypatch, tmp_path):
    from collections import deque

    from xmtc.server import workers

    monkeypatch.setenv(workers.METRICS_FOLDER_VARIABLE, str(tmp_path))
    supervisor = workers.WorkerSupervisor.__new__(workers.WorkerSupervisor)
    supervisor.dead_pids = deque()
    for pid in range(1, 101):
        for name in ("counter", "histogram", "gauge_livesum"):
            (tmp_path / f"{name}_{pid}.db").write_bytes(b"")
        supervisor.discard_old_metrics(pid)
    kept = {f"{name}_{pid}.db" for name in ("counter", "histogram") for pid in range(81, 101)}
    assert {file.name for file in tmp_path.iterdir()} == kept

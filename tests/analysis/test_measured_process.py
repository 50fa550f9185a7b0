"""Tests of measured child processes and of result files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from xmtc.analysis import measured_process as process
from xmtc.analysis.measured_process import run_measured
from xmtc.analysis.result_files import describe_environment, load_results, save_result
from xmtc.errors import XmtcError


def test_command_reports_time_and_memory(tmp_path):
    result = run_measured(["methods"], tmp_path / "deep" / "log")
    assert result.status == 0
    assert not result.failure_message
    assert "parabel" in result.output
    assert result.output == (tmp_path / "deep" / "log.out").read_text()
    assert 0 < result.cpu_seconds < 60
    assert 0 < result.seconds < 60
    assert 10 < result.peak_mb < 2000


def test_failed_command_reports_status_and_error(tmp_path):
    result = run_measured(["info", "nowhere"], tmp_path / "log")
    assert result.failure_message.startswith("xmtc info ended with status 2: xmtc: ")
    assert "nowhere" in result.failure_message


@pytest.fixture
def waiting_command(tmp_path):
    """Arguments of a command that waits for input from a FIFO without a writer."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("named pipes are not available")
    os.mkfifo(tmp_path / "corpus.jsonl")
    return ["data", "stats", str(tmp_path / "corpus.jsonl")]


def test_time_limit_terminates_a_command(waiting_command, tmp_path):
    result = run_measured(waiting_command, tmp_path / "log", limit_seconds=2.5)
    assert result.failure_message == "xmtc data was ended after 2.5 s"
    assert 2.5 <= result.seconds < 2.5 + process.GRACE_SECONDS


def test_command_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    script = tmp_path / "ignore_sigterm"
    script.write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.1; done\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    result = run_measured(["train"], tmp_path / "log", limit_seconds=0.3, grace_seconds=0.3)
    assert result.status == -9
    assert result.failure_message == "xmtc train was ended after 0.3 s"


def test_command_killed_by_the_system_reports_the_signal(tmp_path, monkeypatch):
    script = tmp_path / "killed"
    script.write_text("#!/bin/sh\nkill -9 $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    failure = run_measured(["train"], tmp_path / "log").failure_message
    assert failure == "xmtc train was ended by signal 9 (possibly out of memory)"


def test_stop_event_terminates_a_command(waiting_command, tmp_path):
    stop = threading.Event()
    threading.Timer(1.5, stop.set).start()
    result = run_measured(waiting_command, tmp_path / "log", stop_event=stop)
    assert result.failure_message == "xmtc data was ended with the other processes"


def test_interrupted_parent_terminates_its_command(waiting_command, tmp_path):
    code = "import sys; from pathlib import Path; from xmtc.analysis.measured_process import run_measured; "
    code += f"run_measured({waiting_command!r}, Path({str(tmp_path / 'log')!r}))"
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    if not children.exists():
        parent.kill()
        pytest.skip("/proc does not list child processes")
    while not (pids := children.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    parent.send_signal(2)  # Ctrl-C, in this process alone
    parent.wait(30)
    assert pids
    assert not os.path.exists(f"/proc/{pids[0]}")


def test_memory_of_the_parent_is_not_counted(tmp_path):
    mine = np.ones(100_000_000)  # 800 MB
    result = run_measured(["methods"], tmp_path / "log")
    assert 10 < result.peak_mb < 500
    assert mine[0] == 1


def test_xmtc_package_in_the_working_directory_is_ignored(tmp_path, monkeypatch):
    (tmp_path / "xmtc").mkdir()
    (tmp_path / "xmtc" / "__main__.py").write_text("print('the wrong one')")
    monkeypatch.chdir(tmp_path)
    assert "the wrong one" not in run_measured(["--version"], tmp_path / "log").output


def test_results_are_appended_and_damage_is_reported(tmp_path):
    path = tmp_path / "deep" / "results.json"
    assert load_results(path) == {}
    save_result(path, "one", {"P@1": 50.0})
    save_result(path, "zwei, größer", {"failed": "so"})
    assert json.loads(path.read_text()) == {"one": {"P@1": 50.0}, "zwei, größer": {"failed": "so"}}
    assert [each.name for each in path.parent.iterdir()] == ["results.json"]
    path.write_text("[1]")
    with pytest.raises(XmtcError, match="expected a JSON object of objects"):
        load_results(path)
    path.write_text("{")
    with pytest.raises(XmtcError, match="is not valid JSON"):
        load_results(path)


def test_results_of_concurrent_threads_are_all_stored(tmp_path):
    path = tmp_path / "results.json"
    threads = [threading.Thread(target=save_result, args=(path, str(number), {"n": number})) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(load_results(path)) == {str(number) for number in range(20)}


def test_result_records_the_machine():
    here = describe_environment()
    assert here["versions"]["xmtc"]
    assert "cores" in here["machine"]
    assert here["commit"]
    assert describe_environment("mine", "abc") | {"versions": {}} == {
        "machine": "mine",
        "versions": {},
        "commit": "abc",
    }

"""Measured child processes, and files of results."""

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


def test_a_command_says_what_it_took(tmp_path):
    found = run_measured(["methods"], tmp_path / "deep" / "log")
    assert found.status == 0
    assert not found.failure_message
    assert "parabel" in found.output
    assert found.output == (tmp_path / "deep" / "log.out").read_text()
    assert 0 < found.cpu_seconds < 60
    assert 0 < found.seconds < 60
    assert 10 < found.peak_mb < 2000


def test_a_command_that_fails_says_how(tmp_path):
    found = run_measured(["info", "nowhere"], tmp_path / "log")
    assert found.failure_message.startswith("xmtc info ended with status 2: xmtc: ")
    assert "nowhere" in found.failure_message


@pytest.fixture
def endless(tmp_path):
    """A command that waits for a corpus that never comes."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes with names here")
    os.mkfifo(tmp_path / "corpus.jsonl")
    return ["data", "stats", str(tmp_path / "corpus.jsonl")]


def test_a_limit_ends_a_command(endless, tmp_path):
    found = run_measured(endless, tmp_path / "log", limit_seconds=2.5)
    assert found.failure_message == "xmtc data was ended after 2.5 s"
    assert 2.5 <= found.seconds < 2.5 + process.GRACE_SECONDS


def test_one_that_will_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    stubborn = tmp_path / "stubborn"
    stubborn.write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.1; done\n")
    stubborn.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stubborn))
    found = run_measured(["train"], tmp_path / "log", limit_seconds=0.3)
    assert found.status == -9
    assert found.failure_message == "xmtc train was ended after 0.3 s"


def test_one_that_the_system_killed_says_so(tmp_path, monkeypatch):
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    failed = run_measured(["train"], tmp_path / "log").failure_message
    assert failed == "xmtc train was ended by signal 9 (possibly out of memory)"


def test_a_command_is_ended_with_all_others(endless, tmp_path):
    stop = threading.Event()
    threading.Timer(1.5, stop.set).start()
    found = run_measured(endless, tmp_path / "log", stop_event=stop)
    assert found.failure_message == "xmtc data was ended with the other processes"


def test_whoever_is_stopped_leaves_no_command_behind(endless, tmp_path):
    code = "import sys; from pathlib import Path; from xmtc.analysis.measured_process import run_measured; "
    code += f"run_measured({endless!r}, Path({str(tmp_path / 'log')!r}))"
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    if not children.exists():
        parent.kill()
        pytest.skip("the system does not tell who the children are")
    while not (found := children.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    parent.send_signal(2)  # Ctrl-C, in this process alone
    parent.wait(30)
    assert found
    assert not os.path.exists(f"/proc/{found[0]}")


def test_the_memory_of_who_measures_is_not_counted(tmp_path):
    mine = np.ones(100_000_000)  # 800 MB
    found = run_measured(["methods"], tmp_path / "log")
    assert 10 < found.peak_mb < 500
    assert mine[0] == 1


def test_another_xmtc_in_the_current_folder_is_not_taken(tmp_path, monkeypatch):
    (tmp_path / "xmtc").mkdir()
    (tmp_path / "xmtc" / "__main__.py").write_text("print('the wrong one')")
    monkeypatch.chdir(tmp_path)
    assert "the wrong one" not in run_measured(["--version"], tmp_path / "log").output


def test_results_are_added_and_damage_is_said(tmp_path):
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


def test_results_threads_keep_are_all_there(tmp_path):
    path = tmp_path / "results.json"
    threads = [threading.Thread(target=save_result, args=(path, str(number), {"n": number})) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(load_results(path)) == {str(number) for number in range(20)}


def test_where_a_result_was_made():
    here = describe_environment()
    assert here["versions"]["xmtc"]
    assert "cores" in here["machine"]
    assert here["commit"]
    assert describe_environment("mine", "abc") | {"versions": {}} == {
        "machine": "mine",
        "versions": {},
        "commit": "abc",
    }

"""Progress display: a bar on a terminal and in a notebook, lines elsewhere, nothing if it is disabled."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rich.progress
from commands import invoke, lines_of, make_place

from xmtc.cli.log import make_json_log
from xmtc.core import progress
from xmtc.core.events import Stage
from xmtc.core.progress import (
    FIRST_LINE_SECONDS,
    MAX_LINE_INTERVAL_SECONDS,
    LineSchedule,
    ProgressLines,
    format_duration,
    show_lines,
    show_progress,
)
from xmtc.core.run import Run

STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", re.MULTILINE)


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory) -> Path:
    return make_place(tmp_path_factory.mktemp("progress"))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def run_steps(
    n_steps: int, clock: Clock, schedule: LineSchedule, title: str = "training", has_status: bool = False
) -> None:
    """Show progress of work with this number of steps of one second each."""
    with show_lines(title, n_steps, schedule) as display:
        for step in range(n_steps):
            clock.now += 1
            display.advance()
            if has_status and step % 50 == 49:
                display.set_status(f"pass {step // 50 + 1}")


def test_lines_appear_after_ten_seconds_and_then_at_growing_intervals(capsys):
    clock = Clock()
    run_steps(200, clock, LineSchedule(clock))
    message = capsys.readouterr().err
    assert len(STAMP.findall(message)) == 6
    assert STAMP.sub("", message).splitlines() == [
        "training: 5 % after 10 s, 3 min 10 s left",
        "training: 15 % after 30 s, 2 min 50 s left",
        "training: 35 % after 1 min 10 s, 2 min 10 s left",
        "training: 65 % after 2 min 10 s, 1 min 10 s left",
        "training: 95 % after 3 min 10 s, 10 s left",
        "training: done after 3 min 20 s",
    ]


def test_short_work_prints_nothing(capsys):
    clock = Clock()
    schedule = LineSchedule(clock)
    run_steps(int(FIRST_LINE_SECONDS) - 1, clock, schedule, has_status=True)
    assert capsys.readouterr() == ("", "")


def test_many_short_stages_print_lines_and_a_pause_resets_the_schedule(capsys):
    clock = Clock()
    schedule = LineSchedule(clock)
    for _ in range(5):
        run_steps(4, clock, schedule, "growing trees")
    message = STAMP.sub("", capsys.readouterr().err).splitlines()
    assert message == ["growing trees: 50 % after 2 s, 2 s left", "growing trees: done after 4 s"]
    clock.now += 2 * MAX_LINE_INTERVAL_SECONDS
    run_steps(9, clock, schedule)
    assert capsys.readouterr().err == ""


def test_every_epoch_of_long_work_has_a_line(capsys):
    clock = Clock()
    run_steps(150, clock, LineSchedule(clock), has_status=True)
    message = STAMP.sub("", capsys.readouterr().err)
    assert [line for line in message.splitlines() if "pass" in line] == [
        "training: 33 % after 50 s, 1 min 40 s left (pass 1)",
        "training: 67 % after 1 min 40 s, 50 s left (pass 2)",
        "training: 100 % after 2 min 30 s (pass 3)",
    ]


def test_status_set_before_the_first_line_is_printed_with_it(capsys):
    clock = Clock()
    with show_lines("training", 30, LineSchedule(clock)) as display:
        clock.now += 6
        display.set_status("pass 1")
        assert capsys.readouterr().err == ""
        clock.now += 6
        display.advance(10)
        assert "33 % after 12 s, 24 s left (pass 1)" in capsys.readouterr().err


def test_progress_is_at_most_100_percent(capsys):
    clock = Clock()
    for total in (0, 2):
        display = ProgressLines("reading", total, LineSchedule(clock))
        clock.now += 20
        display.advance(3)
        assert "reading: 100 % after 20 s\n" in capsys.readouterr().err


def test_the_last_moments_show_no_time_left(capsys):
    clock = Clock()
    told = ProgressLines("training", 1000, LineSchedule(clock))
    clock.now += 20
    told.advance(990)
    assert "training: 99 % after 20 s\n" in capsys.readouterr().err
    clock.now += 60
    told.advance(1)
    assert "training: 99 % after 1 min 20 s, 1 s left\n" in capsys.readouterr().err


def test_durations():
    assert [format_duration(seconds) for seconds in (0.4, 42, 59.6)] == ["0 s", "42 s", "1 min 0 s"]
    assert [format_duration(seconds) for seconds in (200, 3599, 7500)] == ["3 min 20 s", "59 min 59 s", "2 h 5 min"]


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("nobody listens")


@pytest.mark.parametrize("stream", ["none", "closed", "broken"])
def test_work_continues_without_standard_error(stream, monkeypatch):
    streams = {"none": None, "closed": io.StringIO(), "broken": Broken()}
    if stream == "closed":
        streams[stream].close()
    monkeypatch.setattr(sys, "stderr", streams[stream])
    clock = Clock()
    monkeypatch.setattr(progress, "show_lines", lambda title, total: show_lines(title, total, LineSchedule(clock)))
    with Run(progress=True).stage("training", 10) as display:
        clock.now += 30
        display.advance(5)
        display.set_status("pass 1")
    assert sys.stderr is streams[stream]  # the stream is not replaced


def test_python_shows_progress_on_request(capsys, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "show_lines", lambda title, total: show_lines(title, total, LineSchedule(clock)))
    for expected in (False, True):
        with Run(progress=expected).stage("training", 10) as display:
            clock.now += 30
            display.advance(5)
        assert ("training: 50 %" in capsys.readouterr().err) == expected


def test_only_the_first_of_several_processes_shows_progress_and_notifies(capsys, monkeypatch):
    clock, events = Clock(), []
    monkeypatch.setattr(progress, "show_lines", lambda title, total: show_lines(title, total, LineSchedule(clock)))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, expected in (("1", 0), ("0", 2)):
        monkeypatch.setenv("RANK", rank)
        with Run(progress=True, callbacks=events.append).stage("training", 10) as display:
            clock.now += 30
            display.advance(5)
        assert len(events) == len(capsys.readouterr().err.splitlines()) == expected


def test_notebook_shows_a_bar_if_rich_supports_it(monkeypatch):
    pytest.importorskip("IPython")
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert not progress.is_notebook()
    monkeypatch.setattr(progress, "find_spec", lambda name: name)
    assert not progress.is_notebook()  # IPython is imported, but this is not a notebook
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert progress.is_notebook()
    monkeypatch.setattr(progress, "show_bar", lambda title, total: "a bar")
    assert show_progress("training", 10) == "a bar"


def capture_terminal_output(code: str) -> bytes:
    """Return what Python code prints to standard error if that is a terminal."""
    terminal, end = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stderr=end, env={**os.environ, "TERM": "xterm"})
    os.close(end)
    events = b""
    with contextlib.suppress(OSError):  # raised when the other end of the terminal is closed
        while chunk := os.read(terminal, 4096):
            events += chunk
    assert process.wait(60) == 0
    return events


WORK = """
import sys, time
from xmtc.core import progress
from xmtc.core.events import Stage
progress.BAR_DELAY_SECONDS = {patience}
with progress.show_progress("training", 4) as bar:
    for _ in range(4):
        time.sleep(0.15)
        bar.advance()
"""


def test_terminal_shows_a_bar_for_long_work():
    events = capture_terminal_output(WORK.format(patience=0.1))
    assert b"training" in events
    assert b"time left" in events
    assert b"50%" in events
    assert capture_terminal_output(WORK.format(patience=30)) == b""


def test_pipe_shows_no_bar():
    code = WORK.format(patience=0.1)
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr == b""


# A command with a fake clock: every step takes some seconds.
SLOW_CLOCK = """
import sys
import time
from xmtc.core import progress
from xmtc.core.events import Stage
seconds = iter(range(0, 10**9, 20))
progress.LINE_SCHEDULE.clock = lambda: next(seconds)
from xmtc.cli import main
sys.argv = ["xmtc", *{words}]
main()
"""


def slow_command(corpus_folder: Path, *words: str) -> subprocess.CompletedProcess:
    code = SLOW_CLOCK.format(words=list(words))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=corpus_folder, check=True, text=True)


TRAIN = ("train", "train.jsonl", "-m", "parabel", "-p", "max_leaf=10", "-o", "slow")


@pytest.mark.integration
def test_slow_training_without_a_terminal_prints_lines(corpus_folder):
    message = slow_command(corpus_folder, *TRAIN).stderr.splitlines()
    assert STAMP.match(message[0])
    assert any(" training: " in line and " % after " in line for line in message)
    assert message[-1].startswith("slow: parabel trained on 400 documents")


@pytest.mark.integration
def test_quiet_is_silent(corpus_folder):
    done = slow_command(corpus_folder, *TRAIN, "--quiet")
    assert (done.stdout, done.stderr) == ("", "")
    assert (corpus_folder / "slow" / "about.json").exists()
    done = slow_command(corpus_folder, "combine", "model", "slow", "-o", "both", "--valid", "test.jsonl", "-q")
    assert (done.stdout, done.stderr) == ("", "")
    done = slow_command(corpus_folder, "evaluate", "model", "test.jsonl", "P@1", "-q")
    assert done.stdout.startswith("P@1")
    assert done.stderr == ""
    for words, silent in ((["-q"], True), ([], False)):
        done = slow_command(corpus_folder, "predict", "model", "train.jsonl", "-k", "1", *words)
        assert len(done.stdout.splitlines()) == 400
        assert (done.stderr == "") == silent


def read_log(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.integration
def test_a_log_has_a_json_line_for_each_event_in_order(corpus_folder):
    words = ("train", "train.jsonl", "-p", "max_leaf=10", "-o", "logged", "--log-json", "log.jsonl", "-q")
    assert invoke(*words, cwd=corpus_folder).returncode == 0
    result = read_log(corpus_folder / "log.jsonl")
    assert [entry["time"] for entry in result] == sorted(entry["time"] for entry in result)
    ended = [entry["title"] for entry in result if entry["event"] == "stage"]
    assert ended == [entry["title"] for entry in result if entry["event"] == "begin"]
    expected = ["reading texts", "weighing words", "summing labels", "growing trees", "training"]
    assert list(dict.fromkeys(ended)) == expected
    for entry in result:
        del entry["time"]
    *history, command = read_log(corpus_folder / "logged" / "history.jsonl")
    assert [entry for entry in result if entry["event"] in ("stage", "pass")] == history
    assert command == {"event": "command", "command": f"xmtc {' '.join(words)}"}

    assert invoke("evaluate", "model", "test.jsonl", "--log-json", "log.jsonl", cwd=corpus_folder).returncode == 0
    more = read_log(corpus_folder / "log.jsonl")
    assert [entry["title"] for entry in more[len(result) :: 2]] == ["reading texts", "predicting"]


@pytest.mark.integration
def test_log_overwrites_only_logs(corpus_folder):
    def run_rejected(*words) -> str:
        done = invoke(*words, cwd=corpus_folder)
        assert done.returncode == 2
        return done.stderr.decode()

    words = ("train", "train.jsonl", "-o", "other", "--log-json")
    before = (corpus_folder / "train.jsonl").read_bytes()
    assert "train.jsonl exists and is not a log of xmtc" in run_rejected(*words, "train.jsonl")
    assert (corpus_folder / "train.jsonl").read_bytes() == before
    assert "nowhere/log.jsonl cannot be written (No such file or directory)" in run_rejected(
        *words, "nowhere/log.jsonl"
    )
    assert "--log-json - is not a file" in run_rejected(*words, "-")
    (corpus_folder / "own").mkdir()
    done = invoke("train", "train.jsonl", "-p", "max_leaf=10", "-o", "own", cwd=corpus_folder)
    assert done.returncode == 0
    inside = ("train", "train.jsonl", "-o", "own", "--log-json", "own/log.jsonl")
    assert "own/log.jsonl lies in the folder of a model" in run_rejected(*inside)  # reported before the training


def test_truncated_log_continues_on_a_new_line(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"time": "now", "event": "begin"}\n{"time": "la')
    make_json_log(path)(Stage("training"))
    assert path.read_text().splitlines()[1] == '{"time": "la'
    assert json.loads(path.read_text().splitlines()[2])["title"] == "training"


def test_bar_that_starts_during_the_end_is_removed(monkeypatch):
    calls = []

    class SlowBars(rich.progress.Progress):
        def start(self):
            time.sleep(0.2)
            calls.append("start")

        def stop(self):
            calls.append("stop")

    monkeypatch.setattr(rich.progress, "Progress", SlowBars)
    with progress.show_bar("training", 4):
        time.sleep(progress.BAR_DELAY_SECONDS + 0.05)
    assert calls == ["start", "stop"]


@pytest.mark.integration
def test_tuning_logs_trials_and_training(corpus_folder):
    pytest.importorskip("optuna")
    (corpus_folder / "few.jsonl").write_text(lines_of(120, seed=2))
    searching = ("--trials", "2", "-s", "n_trees=1,2", "-p", "max_leaf=10", "-o", "tuned")
    done = invoke("tune", "few.jsonl", *searching, "-q", "--log-json", "tune.jsonl", cwd=corpus_folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    result = read_log(corpus_folder / "tune.jsonl")
    trials = [entry for entry in result if entry["event"] == "trial"]
    assert 1 <= len(trials) <= 2
    assert all(trial["parameters"]["n_trees"] in (1, 2) and trial["value"] > 0 for trial in trials)
    titles = [entry["title"] for entry in result if entry["event"] == "stage"]
    assert (titles[0], titles[-1]) == ("tuning parabel", "training")
    history = [entry for entry in read_log(corpus_folder / "tuned" / "history.jsonl") if entry["event"] != "command"]
    assert [entry["title"] for entry in history] == titles[1:]

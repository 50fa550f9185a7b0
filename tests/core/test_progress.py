"""Progress that people see: a bar on a terminal and in a notebook, lines elsewhere, nothing where none is wanted."""

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
from commands import lines_of, make_place, xmtc

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
def place(tmp_path_factory) -> Path:
    return make_place(tmp_path_factory.mktemp("progress"))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def worked(n_steps: int, clock: Clock, pace: LineSchedule, title: str = "training", news: bool = False) -> None:
    """A piece of work of so many steps, each of which takes a second."""
    with show_lines(title, n_steps, pace) as told:
        for step in range(n_steps):
            clock.now += 1
            told.advance()
            if news and step % 50 == 49:
                told.set_status(f"pass {step // 50 + 1}")


def test_lines_come_after_ten_seconds_and_then_after_growing_ones(capsys):
    clock = Clock()
    worked(200, clock, LineSchedule(clock))
    said = capsys.readouterr().err
    assert len(STAMP.findall(said)) == 6
    assert STAMP.sub("", said).splitlines() == [
        "training: 5 % after 10 s, 3 min 10 s left",
        "training: 15 % after 30 s, 2 min 50 s left",
        "training: 35 % after 1 min 10 s, 2 min 10 s left",
        "training: 65 % after 2 min 10 s, 1 min 10 s left",
        "training: 95 % after 3 min 10 s, 10 s left",
        "training: done after 3 min 20 s",
    ]


def test_quick_work_says_nothing(capsys):
    clock = Clock()
    pace = LineSchedule(clock)
    worked(int(FIRST_LINE_SECONDS) - 1, clock, pace, news=True)
    assert capsys.readouterr() == ("", "")


def test_many_short_pieces_are_heard_of_and_after_a_rest_the_pace_begins_anew(capsys):
    clock = Clock()
    pace = LineSchedule(clock)
    for _ in range(5):
        worked(4, clock, pace, "growing trees")
    said = STAMP.sub("", capsys.readouterr().err).splitlines()
    assert said == ["growing trees: 50 % after 2 s, 2 s left", "growing trees: done after 4 s"]
    clock.now += 2 * MAX_LINE_INTERVAL_SECONDS
    worked(9, clock, pace)
    assert capsys.readouterr().err == ""


def test_every_pass_of_long_work_has_a_line(capsys):
    clock = Clock()
    worked(150, clock, LineSchedule(clock), news=True)
    said = STAMP.sub("", capsys.readouterr().err)
    assert [line for line in said.splitlines() if "pass" in line] == [
        "training: 33 % after 50 s, 1 min 40 s left (pass 1)",
        "training: 67 % after 1 min 40 s, 50 s left (pass 2)",
        "training: 100 % after 2 min 30 s (pass 3)",
    ]


def test_news_before_the_first_line_come_with_it(capsys):
    clock = Clock()
    with show_lines("training", 30, LineSchedule(clock)) as told:
        clock.now += 6
        told.set_status("pass 1")
        assert capsys.readouterr().err == ""
        clock.now += 6
        told.advance(10)
        assert "33 % after 12 s, 24 s left (pass 1)" in capsys.readouterr().err


def test_work_of_no_size_and_more_than_was_announced(capsys):
    clock = Clock()
    for total in (0, 2):
        told = ProgressLines("reading", total, LineSchedule(clock))
        clock.now += 20
        told.advance(3)
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
def test_without_standard_error_work_goes_on(stream, monkeypatch):
    streams = {"none": None, "closed": io.StringIO(), "broken": Broken()}
    if stream == "closed":
        streams[stream].close()
    monkeypatch.setattr(sys, "stderr", streams[stream])
    clock = Clock()
    monkeypatch.setattr(progress, "show_lines", lambda title, total: show_lines(title, total, LineSchedule(clock)))
    with Run(progress=True).stage("training", 10) as told:
        clock.now += 30
        told.advance(5)
        told.set_status("pass 1")
    assert sys.stderr is streams[stream]  # and nobody has put another in its place


def test_python_shows_progress_if_asked(capsys, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "show_lines", lambda title, total: show_lines(title, total, LineSchedule(clock)))
    for wanted in (False, True):
        with Run(progress=wanted).stage("training", 10) as told:
            clock.now += 30
            told.advance(5)
        assert ("training: 50 %" in capsys.readouterr().err) == wanted


def test_only_the_first_of_several_processes_shows_and_tells(capsys, monkeypatch):
    clock, seen = Clock(), []
    monkeypatch.setattr(progress, "show_lines", lambda title, total: show_lines(title, total, LineSchedule(clock)))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, expected in (("1", 0), ("0", 2)):
        monkeypatch.setenv("RANK", rank)
        with Run(progress=True, callbacks=seen.append).stage("training", 10) as told:
            clock.now += 30
            told.advance(5)
        assert len(seen) == len(capsys.readouterr().err.splitlines()) == expected


def test_a_notebook_has_bars_where_rich_can_draw_them(monkeypatch):
    pytest.importorskip("IPython")
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert not progress.is_notebook()
    monkeypatch.setattr(progress, "find_spec", lambda name: name)
    assert not progress.is_notebook()  # IPython is imported, and yet this is no notebook
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert progress.is_notebook()
    monkeypatch.setattr(progress, "show_bar", lambda title, total: "a bar")
    assert show_progress("training", 10) == "a bar"


def seen_on_a_terminal(code: str) -> bytes:
    """What Python code prints to standard error where that is a terminal."""
    terminal, end = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stderr=end, env={**os.environ, "TERM": "xterm"})
    os.close(end)
    seen = b""
    with contextlib.suppress(OSError):  # what reading a terminal gives once its other end is closed
        while chunk := os.read(terminal, 4096):
            seen += chunk
    assert process.wait(60) == 0
    return seen


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


def test_a_terminal_sees_a_bar_for_work_that_takes_its_time():
    seen = seen_on_a_terminal(WORK.format(patience=0.1))
    assert b"training" in seen
    assert b"time left" in seen
    assert b"50%" in seen
    assert seen_on_a_terminal(WORK.format(patience=30)) == b""


def test_a_pipe_sees_no_bar():
    code = WORK.format(patience=0.1)
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr == b""


# A command whose every step takes, as its clock says, some seconds.
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


def slow_command(place: Path, *words: str) -> subprocess.CompletedProcess:
    code = SLOW_CLOCK.format(words=list(words))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=place, check=True, text=True)


TRAIN = ("train", "train.jsonl", "-m", "parabel", "-p", "max_leaf=10", "-o", "slow")


def test_a_slow_training_off_a_terminal_tells_how_far_it_is(place):
    said = slow_command(place, *TRAIN).stderr.splitlines()
    assert STAMP.match(said[0])
    assert any(" training: " in line and " % after " in line for line in said)
    assert said[-1].startswith("slow: parabel trained on 400 documents")


def test_quiet_is_silent(place):
    done = slow_command(place, *TRAIN, "--quiet")
    assert (done.stdout, done.stderr) == ("", "")
    assert (place / "slow" / "about.json").exists()
    done = slow_command(place, "combine", "model", "slow", "-o", "both", "--valid", "test.jsonl", "-q")
    assert (done.stdout, done.stderr) == ("", "")
    done = slow_command(place, "evaluate", "model", "test.jsonl", "P@1", "-q")
    assert done.stdout.startswith("P@1")
    assert done.stderr == ""
    for words, silent in ((["-q"], True), ([], False)):
        done = slow_command(place, "predict", "model", "train.jsonl", "-k", "1", *words)
        assert len(done.stdout.splitlines()) == 400
        assert (done.stderr == "") == silent


def logged(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_log_has_a_json_line_for_each_event_in_order(place):
    words = ("train", "train.jsonl", "-p", "max_leaf=10", "-o", "logged", "--log-json", "log.jsonl", "-q")
    assert xmtc(*words, cwd=place).returncode == 0
    found = logged(place / "log.jsonl")
    assert [entry["time"] for entry in found] == sorted(entry["time"] for entry in found)
    ended = [entry["title"] for entry in found if entry["event"] == "stage"]
    assert ended == [entry["title"] for entry in found if entry["event"] == "begin"]
    expected = ["reading texts", "weighing words", "summing labels", "growing trees", "training"]
    assert list(dict.fromkeys(ended)) == expected
    for entry in found:
        del entry["time"]
    assert [entry for entry in found if entry["event"] != "begin"] == logged(place / "logged" / "history.jsonl")

    assert xmtc("evaluate", "model", "test.jsonl", "--log-json", "log.jsonl", cwd=place).returncode == 0
    more = logged(place / "log.jsonl")
    assert [entry["title"] for entry in more[len(found) :: 2]] == ["reading texts", "predicting"]


def test_a_log_is_written_over_nothing_else(place):
    def refused(*words) -> str:
        done = xmtc(*words, cwd=place)
        assert done.returncode == 2
        return done.stderr.decode()

    words = ("train", "train.jsonl", "-o", "other", "--log-json")
    before = (place / "train.jsonl").read_bytes()
    assert "train.jsonl exists and is not a log of xmtc" in refused(*words, "train.jsonl")
    assert (place / "train.jsonl").read_bytes() == before
    assert "nowhere/log.jsonl cannot be written (No such file or directory)" in refused(*words, "nowhere/log.jsonl")
    assert "--log-json - is not a file" in refused(*words, "-")
    (place / "own").mkdir()
    done = xmtc("train", "train.jsonl", "-p", "max_leaf=10", "-o", "own", cwd=place)
    assert done.returncode == 0
    inside = ("train", "train.jsonl", "-o", "own", "--log-json", "own/log.jsonl")
    assert "own/log.jsonl lies in the folder of a model" in refused(*inside)  # before the training, not after it


def test_a_log_that_was_cut_off_goes_on_in_a_line_of_its_own(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"time": "now", "event": "begin"}\n{"time": "la')
    make_json_log(path)(Stage("training"))
    assert path.read_text().splitlines()[1] == '{"time": "la'
    assert json.loads(path.read_text().splitlines()[2])["title"] == "training"


def test_a_bar_that_is_about_to_appear_is_taken_away_again(monkeypatch):
    told = []

    class SlowBars(rich.progress.Progress):
        def start(self):
            time.sleep(0.2)
            told.append("start")

        def stop(self):
            told.append("stop")

    monkeypatch.setattr(rich.progress, "Progress", SlowBars)
    monkeypatch.setattr(progress, "BAR_DELAY_SECONDS", 0.0)
    with progress.show_bar("training", 4):
        time.sleep(0.05)
    assert told == ["start", "stop"]


def test_a_search_logs_its_trials_and_its_training(place):
    pytest.importorskip("optuna")
    (place / "few.jsonl").write_text(lines_of(120, seed=2))
    searching = ("--trials", "2", "-s", "n_trees=1,2", "-p", "max_leaf=10", "-o", "tuned")
    done = xmtc("tune", "few.jsonl", *searching, "-q", "--log-json", "tune.jsonl", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    found = logged(place / "tune.jsonl")
    trials = [entry for entry in found if entry["event"] == "trial"]
    assert 1 <= len(trials) <= 2
    assert all(trial["parameters"]["n_trees"] in (1, 2) and trial["value"] > 0 for trial in trials)
    titles = [entry["title"] for entry in found if entry["event"] == "stage"]
    assert (titles[0], titles[-1]) == ("tuning parabel", "training")
    history = logged(place / "tuned" / "history.jsonl")
    assert [entry["title"] for entry in history] == titles[1:]

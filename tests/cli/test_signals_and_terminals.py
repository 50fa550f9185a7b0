"""Commands under difficult conditions: signals while saving, terminals, unknown labels, bad lines, empty columns."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import XMTC, lines_of, make_place, xmtc
from scipy import sparse


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return make_place(tmp_path_factory.mktemp("corners"))


SLOW_SAVE = """
import sys, time
from xmtc import cli
from xmtc.storage import folder as folders
def compute_path_sha256(path):
    print("saving", flush=True)
    time.sleep(60)
folders.compute_path_sha256 = compute_path_sha256
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("output", ["half", "model"])
def test_signal_during_saving_keeps_the_old_model(place, number, output):
    before = {path: path.read_bytes() for path in (place / "model").iterdir()}
    words = [sys.executable, "-c", SLOW_SAVE, "train", "test.jsonl", "-o", output, "-p", "n_trees=1"]
    process = subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"saving\n"
    process.send_signal(number)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 128 + number
    assert b"Traceback" not in said
    assert {path: path.read_bytes() for path in (place / "model").iterdir()} == before
    assert not [path.name for path in place.iterdir() if path.name.startswith(".") or path.name == "half"]


def test_sighup_is_ignored_under_nohup(place):
    code = "import signal as s; from xmtc import cli; "
    code += "cli.build_app = lambda names: lambda: print(s.getsignal(1) == s.SIG_IGN); cli.main()"
    done = subprocess.run(["nohup", sys.executable, "-c", code], capture_output=True, cwd=place, check=True)
    assert done.stdout == b"True\n"


def test_output_is_utf8_for_any_terminal_encoding(place):
    text = '{"id": "Überfluß 水", "text": "word1alpha"}\n'.encode()
    ascii = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = xmtc("predict", "model", "-", "-k", "1", input=text, cwd=place, env=ascii)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == "Überfluß 水"


BARS = """
import sys
from xmtc.core import progress
from xmtc.cli import app
def show_progress(title, total=None):
    sys.stderr.write("BAR")
    return progress.hide_progress(title)
progress.show_progress = show_progress
app(["predict", "model", "three.jsonl"])
"""


def test_no_progress_bar_between_predictions_on_a_terminal(place):
    (place / "three.jsonl").write_text(lines_of(3, seed=1))
    command = [sys.executable, "-c", BARS]
    assert b"BAR" in subprocess.run(command, cwd=place, capture_output=True, check=True).stderr
    terminal, end = pty.openpty()
    done = subprocess.run(command, cwd=place, stdout=end, stderr=subprocess.PIPE, check=True)
    assert b"d0" in os.read(terminal, 4096)
    assert done.stderr == b""
    os.close(end)
    os.close(terminal)


def test_evaluate_reports_labels_unknown_to_the_model(place):
    assert xmtc("evaluate", "model", "test.jsonl", cwd=place).stderr == b""
    rows = [["label-01", "stranger", "alien"], ["stranger"]]
    lines = [json.dumps({"text": "word1alpha word1beta", "labels": labels}) + "\n" for labels in rows]
    (place / "strange.jsonl").write_text("".join(lines))
    done = xmtc("evaluate", "model", "strange.jsonl", "P@1", "--json", cwd=place)
    assert json.loads(done.stdout) == {"P@1": 0.5}
    said = "2 of the 3 labels in strange.jsonl (75.0 % of all assignments) are unknown to the model"
    assert done.stderr.decode() == f"{said} and count as missed.\n"


def test_propensities_by_name_and_by_number(place):
    def psp(*options) -> float:
        done = xmtc("evaluate", "model", "train.jsonl", "PSP@1", "R@1", "--json", *options, cwd=place)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["PSP@1"]

    amazon = psp("--propensity", "amazon")
    assert psp() == psp("--propensity", "default") == psp("--propensity-a", "0.55", "--propensity-b", "1.5")
    assert amazon == psp("--propensity-a", "0.6", "--propensity-b", "2.6")
    assert amazon == psp("--propensity", "wikipedia", "--propensity-a", "0.6", "--propensity-b", "2.6")


def test_bad_lines_of_both_corpora_are_reported(place):
    for name in ("training", "checking"):
        (place / f"{name}.jsonl").write_text(lines_of(30, seed=3) + "{torn\n")
    words = ("train", "training.jsonl", "-o", "torn", "--valid", "checking.jsonl", "--on-error", "skip")
    said = xmtc(*words, cwd=place).stderr
    for name in (b"training", b"checking"):
        assert b"1 line of %s.jsonl set aside in %s.jsonl.rejects" % (name, name) in said


def test_declared_columns_are_kept(place):
    (place / "wide.txt").write_text("2 9 2\n0 1:1 2:1\n1 3:1\n")
    assert b"with 2 labels and 9 features" in xmtc("train", "wide.txt", "-o", "wide", cwd=place).stderr
    sparse.save_npz(place / "X.npz", sparse.csr_array(np.eye(2, 7)))
    sparse.save_npz(place / "Y.npz", sparse.csr_array(np.eye(2)))
    assert b"with 2 labels and 7 features" in xmtc("train", "X.npz", "-o", "pair", cwd=place).stderr
    assert xmtc("predict", "pair", "X.npz", cwd=place).stdout.count(b"\n") == 2


def test_predict_takes_texts_with_tabs_and_any_labels(place):
    done = xmtc("predict", "model", "-", "-k", "1", input=b"word7alpha\tword7gamma\nword9beta\tx\ty\n", cwd=place)
    assert [json.loads(line)["labels"][0]["label"] for line in done.stdout.splitlines()] == ["label-07", "label-09"]
    odd = b'{"text": "word7alpha", "labels": {"a": 1}}\n'
    assert b"label-07" in xmtc("predict", "model", "-", "--labels", "labels", input=odd, cwd=place).stdout


def test_target_is_checked_before_training(place):
    """The corpus never ends, so the error must come before reading."""
    os.mkfifo(place / "endless")
    done = subprocess.run([*XMTC, "train", "endless", "-o", "/dev/null/m"], cwd=place, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == b"xmtc: /dev/null/m cannot be written (Not a directory); choose another place.\n"

"""Commands in a shell, with pipes, invalid input and Ctrl-C."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import XMTC, invoke, lines_of, make_place, xmtc
from cpu_time import limited_cpu_time


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return make_place(tmp_path_factory.mktemp("cli"))


def test_train_prints_a_summary_and_the_next_command(place):
    done = invoke("train", "train.jsonl", "-o", "other", "-p", "n_trees=1", "--valid", "test.jsonl", cwd=place)
    assert done.stdout == b""
    assert b"parabel trained on 400 documents with 40 labels" in done.stderr
    assert b"Next: xmtc evaluate other CORPUS" in done.stderr
    about = json.loads((place / "other" / "about.json").read_text())
    assert about["parameters"]["n_trees"] == 1


def test_predict_writes_three_formats(place):
    answers = [
        json.loads(line) for line in invoke("predict", "model", "test.jsonl", "-k", "2", cwd=place).stdout.splitlines()
    ]
    assert len(answers) == 60
    assert answers[0]["id"] == "d0"
    assert [len(answer["labels"]) for answer in answers] == [2] * 60
    for format, delimiter in (("csv", ","), ("tsv", "\t")):
        text = invoke("predict", "model", "test.jsonl", "-k", "2", "--format", format, cwd=place).stdout.decode()
        rows = list(csv.DictReader(io.StringIO(text), delimiter=delimiter))
        assert len(rows) == 120
        assert rows[1]["rank"] == "2"
        assert [row["label"] for row in rows[:2]] == [tag["label"] for tag in answers[0]["labels"]]


def test_predict_reads_a_pipe_and_keeps_documents_without_labels(place):
    unlabelled = b'{"text": "word1alpha word1beta"}\n{"text": "noise1"}\n'
    done = invoke("predict", "model", "-", "--threshold", "0.5", "--format", "csv", input=unlabelled, cwd=place)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.decode().splitlines()
    assert rows[1].startswith("1,1,label-01,")
    assert rows[2] == "2,,,"


def test_predict_reads_plain_lines(place):
    done = invoke(
        "predict", "model", "-", "-k", "1", input=b"word7alpha word7gamma\nword9beta, word9gamma\n", cwd=place
    )
    assert [json.loads(line)["labels"][0]["label"] for line in done.stdout.splitlines()] == ["label-07", "label-09"]


def test_evaluate_prints_a_table_or_json(place):
    table = invoke("evaluate", "model", "test.jsonl", cwd=place).stdout.decode()
    assert [line.split()[0] for line in table.splitlines()] == ["P@1", "nDCG@1", "PSP@1"]
    values = json.loads(invoke("evaluate", "model", "test.jsonl", "p@1", "PSP@3", "--json", cwd=place).stdout)
    assert values["P@1"] > 0.95
    assert f"P@1 {100 * values['P@1']:6.2f}" in table


def test_metric_without_a_value_is_null_in_json(place):
    (place / "two.jsonl").write_text(lines_of(2, seed=1))
    done = invoke("evaluate", "model", "two.jsonl", "AUC@rare", "--json", cwd=place)
    assert json.loads(done.stdout) == {"AUC@rare": None}


def test_methods_lists_methods_and_their_parameters(place):
    assert b"parabel" in invoke("methods").stdout
    shown = invoke("methods", "parabel").stdout.decode()
    assert re.search(r"n_trees +3 ", shown)
    assert "Text features:\n\n  min_df" in shown
    assert re.search(r"Features of the corpus:\n\n  unit_length +True ", shown)
    assert re.search(r"unit_length +False ", invoke("methods", "fastxml").stdout.decode())


def test_info_runs(place):
    assert json.loads(invoke("info", "model", "--verify", cwd=place).stdout)["method"] == "parabel"


def test_help_answers_quickly():
    with limited_cpu_time(1.5):
        for _ in range(3):
            assert xmtc("--help").returncode == 0


def test_version():
    assert xmtc("--version").stdout.startswith(b"xmtc 1.")


MISTAKES = [
    (["train", "none.jsonl", "-o", "m"], "none.jsonl: there is no such file; "),
    (["train", "train.jsnl", "-o", "m"], "train.jsnl: there is no such file; did you mean train.jsonl?"),
    (["train", "train.jsonl", "-o", "m", "-m", "bonsay"], "There is no method 'bonsay'."),
    (["train", "train.jsonl", "-o", "m", "-p", "trees=1"], "parabel has no parameter 'trees' for a corpus of texts;"),
    (["train", "train.jsonl", "-o", "m", "-p", "n_trees"], "-p n_trees has no value; expected -p NAME=VALUE."),
    (["train", "train.jsonl", "-o", "m", "-p", "n_trees=x"], "parabel: n_trees='x' is invalid; expected a whole"),
    (["train", "train.jsonl", "-o", "m", "-p", "C=-1"], "Parabel: C=-1.0 is invalid; expected a number"),
    (["train", "train.jsonl", "-o", "m", "--text", "body"], "train.jsonl, line 1: "),
    (["train", "train.jsonl", "-o", "m", "--on-error", "shrug"], "on_error='shrug' is unknown"),
    (["train", "sparse.txt", "-o", "m", "-p", "min_df=1"], "parabel has no parameter 'min_df' for a corpus of f"),
    (["train", "train.jsonl", "-o", "test.jsonl"], "test.jsonl exists and is not a model folder; choose another name"),
    (["train", "train.jsonl", "-o", "."], ". is the working directory; choose a new folder for the model"),
    (["train", "none.jsonl", "-o", "/proc/m"], "/proc/m cannot be written (No such file or directory); choose another"),
    (["train", "none.jsonl", "-o", "test.jsonl/m"], "test.jsonl/m cannot be written (Not a directory); choose another"),
    (["train", "empty.jsonl", "-o", "m"], "empty.jsonl is empty, expected at least one document"),
    (["train", "bare.jsonl", "-o", "m"], "None of the 2 training documents has a label"),
    (["train", "unlike.jsonl", "-o", "m"], "No word occurs in at least min_df=2 of the 2 documents"),
    (["train", "unlike.jsonl", "-o", "m", "-p", "min_chars=9"], "None of the 2 documents holds a word of at least"),
    (["train", "unlike.jsonl", "-o", "m", "-p", "C=nan"], "Parabel: C=nan is invalid; expected a number"),
    (["predict", "train.jsonl", "test.jsonl"], "train.jsonl is a file; expected a model folder"),
    (["predict", "nowhere", "test.jsonl"], "nowhere does not exist; expected a model folder"),
    (["predict", "model", "sparse.txt"], "Document '2' holds features, but this model reads text"),
    (["predict", "model", "test.jsonl", "--format", "xml"], "--format xml is not known; expected jsonl, csv, tsv, "),
    (["predict", "model"], "Found no text; give one: a FILE, - for standard input, or --string TEXT."),
    (["predict", "model", "test.jsonl", "--string", "x"], "Found both FILE and --string; give one"),
    (["predict", "model", "test.jsonl", "-o", ""], "-o is empty; give a file, such as predictions.csv"),
    (["predict", "model", "-"], "standard input is empty, expected at least one document"),
    (["predict", "model", "test.jsonl", "-o", "x.doc"], "x.doc has no known format; expected a name th"),
    (["predict", "model", "test.jsonl", "-o", "m/x.csv"], "m/x.csv cannot be written (No such file or directory); "),
    (["predict", "model", "test.jsonl", "-o", "model", "--format", "csv"], "model cannot be written (Is a directory)"),
    (["predict", "model", "test.jsonl", "-o", "test.jsonl"], "test.jsonl is part of the corpus that is read"),
    (["predict", "model", "test.jsonl", "-o", "x.xlsx", "--bom"], "--bom marks csv or tsv files as UTF-8 for Excel"),
    (["predict", "model", "test.jsonl", "--per-file"], "--per-file writes one file per document of a folder, but te"),
    (["predict", "model", ".", "--per-file", "-o", "x.csv"], "--per-file has a format of its own and cannot be comb"),
    (["predict", "model", "test.jsonl", "-o", "model/about.json", "--format", "jsonl"], "model/about.json lies in the"),
    (["train", "train.jsonl", "-o", "m", "--language", "de"], "--language is the language of label names and needs"),
    (["predict", "model", "model", "--per-file"], "model is a folder without .txt, .html, .htm, .pdf, .docx files"),
    (["predict", "model", ".", "--per-file", "--suffix", ".txt"], "--suffix '.txt' cannot end the names of results"),
    (["predict", "model", "--string", "x", "--per-file"], "--per-file needs FILE and cannot be combined with"),
    (["predict", "model", "--string", "x", "--keep", "id"], "--keep needs FILE and cannot be combined with --str"),
    (["predict", "model", "plain.txt", "--keep", "id"], "Files have no field 'id'; expected file, text, beginning"),
    (["predict", "model", "table.csv", "--keep", "titel"], "table.csv, the header: there is no field 'titel' among"),
    (["predict", "model", "test.jsonl", "--wide", "--format", "jsonl"], "--wide needs a table, but JSON Lines have"),
    (["predict", "model", "test.jsonl", "--wide"], "--wide needs a table, but JSON Lines have one object per document"),
    (["predict", "model", "test.jsonl", "--suffix", ".annif"], "--suffix applies to --per-file only; give --per"),
    (["predict", "model", "test.jsonl", "--force"], "--force applies to --per-file only; give --per-file, or leave it"),
    (["predict", "model", "empty.jsonl"], "empty.jsonl is empty, expected at least one document"),
    (["predict", "model", "test.jsonl", "--threshold", "high"], "--threshold high is not a threshold; expected a num"),
    (["predict", "model", "test.jsonl", "-o", "x.xlsx", "--threshold", "nan"], "threshold=nan is not a number"),
    (["evaluate", "model", "test.jsonl", "P"], "'P' is not a metric"),
    (["evaluate", "model", "test.jsonl", "--per-label", "x.doc"], "x.doc has no known format; exp"),
    (["evaluate", "model", "test.jsonl", "--per-label", "m/x.csv"], "The folder of m/x.csv is not there; create it"),
    (["evaluate", "model", "test.jsonl", "--per-label", "model/x.csv"], "model/x.csv lies in the folder of a model"),
    (["evaluate", "model", "test.jsonl", "--curve", "model/x.csv"], "model/x.csv lies in the folder of a model"),
    (["evaluate", "model", "test.jsonl", "--log-json", "model/x"], "model/x lies in the folder of a model"),
    (["report", "model", "test.jsonl", "-o", "model/report.html"], "model/report.html lies in the folder of a model"),
    (["explain", "model", "--string", "x", "--html", "model/x.html"], "model/x.html lies in the folder of a model"),
    (["predict", "model", "test.jsonl", "-o", "model/x.jsonl"], "model/x.jsonl lies in the folder of a model"),
    (["compare", "model", "model", "--test", "test.jsonl", "-o", "model/x.md"], "model/x.md lies in the folder"),
    (["data", "convert", "test.jsonl", "model/x.csv"], "model/x.csv lies in the folder of a model"),
    (["evaluate", "model", "test.jsonl", "--per-label", "test.jsonl"], "test.jsonl is part of the corpus that is read"),
    (["evaluate", "model", "test.jsonl", "P@0"], "'P@0' is not a metric"),
    (["evaluate", "model", "test.jsonl", "--propensity", "x"], "--propensity x is unknown; expected one of default"),
    (["evaluate", "model", "test.jsonl", "--propensity-b", "0"], "Propensity: B=0.0 is invalid; expected a number"),
    (["evaluate", "model", "unlabelled.jsonl"], "unlabelled.jsonl, line 1: "),
    (["methods", "parabell"], "There is no method 'parabell'. Did you mean parabel?"),
    (["info", "."], ". is not a model folder: it has no about.json"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_user_errors_are_one_line_with_exit_code_2(place, words, sentence):
    (place / "empty.jsonl").write_text("")
    (place / "bare.jsonl").write_text('{"text": "a word", "labels": []}\n' * 2)
    (place / "unlike.jsonl").write_text('{"text": "one", "labels": ["a"]}\n{"text": "two", "labels": ["a"]}\n')
    (place / "unlabelled.jsonl").write_text('{"text": "word"}\n')
    (place / "sparse.txt").write_text("1 3 2\n0,1 0:1 2:1\n")
    (place / "plain.txt").write_text("a text\n")
    (place / "table.csv").write_text("text,title\na word,A title\n")
    done = invoke(*words, input=b"", cwd=place)
    assert done.returncode == 2
    assert done.stdout == b""
    said = done.stderr.decode()
    assert said.startswith(f"xmtc: {sentence}")
    assert said.count("\n") == 1
    assert not (place / "m").exists()


def test_bad_line_is_skipped_and_saved(place):
    (place / "torn.jsonl").write_text(lines_of(50, seed=3) + "{torn\n")
    assert b"torn.jsonl, line 51: " in xmtc("train", "torn.jsonl", "-o", "m", cwd=place).stderr
    done = invoke("train", "torn.jsonl", "-o", "m2", "--on-error", "skip", cwd=place)
    assert done.returncode == 0
    assert b"1 line of torn.jsonl set aside in torn.jsonl.rejects" in done.stderr
    assert (place / "torn.jsonl.rejects").read_text().endswith("{torn\n")


def test_ctrl_c_leaves_no_half_written_model(place):
    (place / "long.jsonl").write_text(lines_of(20_000, seed=4))
    words = [*XMTC, "train", "long.jsonl", "-o", "half", "-p", "eps=0", "-p", "max_passes=1000", "-p", "n_trees=100"]
    process = subprocess.Popen(words, cwd=place, stderr=subprocess.PIPE, start_new_session=True)
    time.sleep(4)
    assert process.poll() is None, "training ended before it could be interrupted"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert not [path for path in place.iterdir() if "half" in path.name]


def test_ctrl_c_names_the_checkpoint(place):
    long = ["train", "long.jsonl", "-o", "later", "-p", "eps=0", "-p", "max_passes=1000", "-p", "n_trees=100"]
    (place / "long.jsonl").write_text(lines_of(20_000, seed=4))
    words = [*XMTC, *long, "--checkpoint", "pieces"]
    process = subprocess.Popen(words, cwd=place, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (place / "pieces").is_dir() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert b"Stopped. Run the same command again to resume from pieces.\n" in said


def test_closed_output_pipe_is_not_an_error(place):
    command = f"{shlex.join(XMTC)} predict model train.jsonl -k 40 | head -1"
    done = subprocess.run(command, shell=True, cwd=place, capture_output=True, timeout=60)
    assert done.stderr == b""
    assert len(done.stdout.splitlines()) == 1


def test_predict_streams_in_bounded_memory(place):
    """A hundred megabytes of text pass through a pipe without increasing memory."""

    def peak_bytes(n_copies: int) -> int:
        block = lines_of(2_000, seed=5) * n_copies
        command = [*XMTC, "predict", "model", "-", "-k", "1"]
        code = (
            "import resource, subprocess, sys; "
            f"subprocess.run({command!r}, stdin=sys.stdin, stdout=subprocess.DEVNULL, check=True); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        watch = [sys.executable, "-c", code]
        done = subprocess.run(watch, input=block.encode(), capture_output=True, cwd=place, check=True)
        return int(done.stdout) * 1024

    small, large = peak_bytes(4), peak_bytes(200)
    assert large < small + 50_000_000


def test_options_without_the_option_that_they_need_are_refused(tmp_path):
    for words, missing in (
        (("serve", tmp_path / "model", "--reviewers", 2), "--desk"),
        (("thresholds", tmp_path / "model", tmp_path / "corpus.jsonl", "--confidence", 0.9), "--publish"),
    ):
        done = invoke(*words)
        assert done.returncode == 2
        assert missing in done.stderr.decode()

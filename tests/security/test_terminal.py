"""Commands print no terminal control characters from file names, model folders or corpora."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import invoke, lines_of

ESCAPE = "\x1b[31m"
NAME = f"m{ESCAPE}odel"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Create a folder in which every name contains an escape sequence: corpora, a model, a vocabulary."""
    folder = tmp_path_factory.mktemp("names") / f"f{ESCAPE}older"
    folder.mkdir()
    (folder / f"train{ESCAPE}.jsonl").write_text(lines_of(200, seed=0))
    (folder / f"test{ESCAPE}.jsonl").write_text(lines_of(60, seed=1))
    (folder / f"vocabulary{ESCAPE}.tsv").write_text("uri\tlabel_en\nhttp://x.org/a\tname\n")
    done = invoke("train", f"train{ESCAPE}.jsonl", "-m", "parabel", "-o", NAME, "-p", "n_trees=1", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    assert f"{NAME}: parabel trained".replace("\x1b", r"\x1b").encode() in done.stderr
    return folder


TRAIN, TEST, VOCABULARY = f"train{ESCAPE}.jsonl", f"test{ESCAPE}.jsonl", f"vocabulary{ESCAPE}.tsv"
COMMANDS = {
    "info": ["info", NAME],
    "info-history": ["info", NAME, "--history"],
    "info-json": ["info", NAME, "--json"],
    "predict": ["predict", NAME, TEST, "-k", "2"],
    "evaluate": ["evaluate", NAME, TEST],
    "evaluate-per-label": ["evaluate", NAME, TEST, "--per-label", f"labels{ESCAPE}.csv"],
    "explain": ["explain", NAME, "--string", "a text of words"],
    "calibrate": ["calibrate", NAME, TRAIN, "-o", f"{NAME}-2"],
    "thresholds": ["thresholds", NAME, TEST],
    "compare": ["compare", NAME, NAME, "--test", TEST],
    "combine": ["combine", NAME, NAME, "-o", f"{NAME}-3"],
    "report": ["report", NAME, TEST, "-o", f"report{ESCAPE}.html"],
    "vocab-import": ["vocab", "import", VOCABULARY, f"vocabulary{ESCAPE}"],
    "data-stats": ["data", "stats", TRAIN],
    "data-split": ["data", "split", TRAIN, f"a{ESCAPE}.jsonl", f"b{ESCAPE}.jsonl", "--count", "20"],
    "data-convert": ["data", "convert", TRAIN, f"c{ESCAPE}.csv"],
    "data-audit": ["data", "audit", TRAIN],
    "tune": ["tune", TRAIN, "-m", "parabel", "--trials", "1", "-p", "n_trees=1"],
    "missing-file": ["predict", NAME, f"none{ESCAPE}.jsonl"],
    "missing-model": ["info", f"none{ESCAPE}"],
    "train-taken": ["train", TRAIN, "-m", "parabel", "-o", "."],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_print_no_control_characters(place, name):
    done = invoke(*COMMANDS[name], cwd=place)
    output = done.stdout + done.stderr
    assert output
    assert b"Usage" not in output
    assert done.returncode == (2 if name in ("missing-file", "missing-model", "train-taken") else 0), output
    assert b"\x1b" not in output


def test_commands_print_through_one_function():
    """`typer.echo` and `print` write text unchanged; `xmtc.cli.streams.echo` escapes it."""
    package = Path(__import__("xmtc").__file__).parent
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted((package / "cli").glob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"typer\.echo\(|(?<!\.)\bprint\(", line)
    ]
    assert [each.partition(":")[0] for each in found] == ["explain.py", "streams.py"]

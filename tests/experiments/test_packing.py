"""Corpora and word vectors of open rows, for a machine without a network."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.__main__ import app

TABLE = """
title = "Networks"
data = "tiny"
measures = ["P@1"]
method = "xml_cnn"
train = ["--valid", "{data}/dev.jsonl"]
params = {vectors = "VECTORS", dimension = 4, maps = 4, bottleneck = 4, epochs = 1, max_tokens = 3, calibrate = false}

[[row]]
name = "one"

[[row]]
name = "done"

[[row]]
name = "elsewhere"
data = "not here"
"""
TEXTS = {
    "train": ["Herring swim north far away", "whale sea", "herring sea"] * 9,
    "test": ["only in the test file"],
    "dev": ["whale herring"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data" / "tiny").mkdir(parents=True)
    for name, texts in TEXTS.items():
        lines = [json.dumps({"text": text, "labels": [text[0].lower(), "sea"]}) + "\n" for text in texts]
        (tmp_path / "data" / "tiny" / f"{name}.jsonl").write_text("".join(lines))
    words = ("herring", "whale", "sea", "north", "far", "test", "other")
    vectors = "".join(f"{word} {i}.12345 0.5 -1 2\n" for i, word in enumerate(words))
    (tmp_path / "glove.txt").write_text(vectors)
    (tmp_path / "table.toml").write_text(TABLE.replace("VECTORS", str(tmp_path / "glove.txt")))
    return tmp_path


def invoke(*words: object) -> tuple[list[str], str]:
    """Return the lines of standard output, and standard error."""
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines(), done.stderr


def test_packed_row_runs_elsewhere(folder: Path) -> None:
    table, target = folder / "table.toml", folder / "packed"
    places = ["--data", folder / "data", "--results", folder]
    invoke("run", table, *places, "--work", folder / "work", "--only", "done", "--device", "cpu")
    (command,), log = invoke("pack", target, table, *places)
    assert f"{table}: 1 rows" in log  # the others have a result or no corpus
    packed = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert packed == {"tiny/train.jsonl", "tiny/test.jsonl", "tiny/dev.jsonl", "glove.txt.gz"}
    lines = gzip.decompress((target / "glove.txt.gz").read_bytes()).decode().splitlines()
    known = {"herring": "0.123", "whale": "1.123", "sea": "2.123", "north": "3.123"}  # the first 3 words of each text
    assert sorted(lines) == sorted(f"{word} {first} 0.500 -1.000 2.000" for word, first in known.items())

    words = shlex.split(command)
    assert words[:6] == ["python", "-m", "experiments", "run", str(table), "--data"]
    assert words[6:] == [str(target), "--device", "cuda", "-p", f"vectors={target / 'glove.txt.gz'}"]
    words[words.index("cuda")] = "cpu"
    invoke(*words[3:], "--results", folder / "elsewhere", "--work", folder / "work2", "--only", "one")
    result = json.loads((folder / "elsewhere" / "table.json").read_text())["one"]
    assert result["figures"]["P@1"] >= 0
    assert result["overrides"] == {"vectors": "glove.txt.gz"}


def test_nothing_to_pack(folder: Path) -> None:
    done = CliRunner().invoke(app, ["pack", str(folder / "x"), str(folder / "table.toml"), "--data", str(folder)])
    assert done.exit_code == 0
    assert "no open row whose corpus is here" in done.output
    assert not (folder / "x").exists()

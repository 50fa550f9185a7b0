"""Texts without the words that have no bag-of-words feature."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from experiments.__main__ import app
from xmtc.data.corpus import open_corpus


def test_words_without_a_feature_are_removed(tmp_path: Path) -> None:
    documents = [
        {"text": "The Herring, in the north Sea!", "labels": ["fish", "sea"]},
        {"text": "unknown", "labels": ["fish"]},
    ]
    corpus, words, target = tmp_path / "corpus.jsonl", tmp_path / "words.txt", tmp_path / "known.jsonl"
    corpus.write_text("".join(json.dumps(document) + "\n" for document in documents))
    words.write_text("sea\nherring\nNorth\nwhale\n")
    done = CliRunner().invoke(app, ["words", str(corpus), str(words), str(target)])
    assert done.exit_code == 0, done.output
    assert [document.text for document in open_corpus(str(target))] == ["herring north sea", ""]
    assert [document.labels for document in open_corpus(str(target))] == [["fish", "sea"], ["fish"]]
    assert "without 4 words that are not among the 4" in done.output

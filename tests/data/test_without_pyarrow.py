"""JSON Lines without pyarrow give the same model; other uses of pyarrow name the extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import lines_of

from xmtc import Document, open_corpus, train
from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch
from xmtc.data.corpus import open_corpus_writer
from xmtc.errors import MissingExtra

NEEDS_ARROW = r"needs pyarrow: pip install 'xmtc\[arrow\]'"


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "corpus.jsonl"
    path.write_text(lines_of(60, seed=0), encoding="utf-8")
    return str(path)


@pytest.fixture
def hide_pyarrow(monkeypatch):
    return lambda: monkeypatch.setitem(sys.modules, "pyarrow", None)


def is_read_in_batches(corpus: str) -> bool:
    return isinstance(next(iter(open_corpus(corpus).iter_batches(Run(threads=1)))), DocumentBatch)


def test_json_lines_train_the_same_model(corpus, tmp_path, hide_pyarrow):
    assert is_read_in_batches(corpus)
    train(open_corpus(corpus), "parabel").save(tmp_path / "with")
    hide_pyarrow()
    assert not is_read_in_batches(corpus)
    train(open_corpus(corpus), "parabel").save(tmp_path / "without")
    for name in ("about.json", "arrays.safetensors"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl.zst"])
def test_a_compressed_file_names_the_extra(name, tmp_path, hide_pyarrow):
    path = tmp_path / name
    with open_corpus_writer(path) as write:
        write(Document("1", "a text", ["label"]))
    hide_pyarrow()
    with pytest.raises(MissingExtra, match=NEEDS_ARROW):
        list(open_corpus(path))
    with pytest.raises(MissingExtra, match=NEEDS_ARROW), open_corpus_writer(path) as write:
        write(Document("1", "a text", ["label"]))
    assert path.stat().st_size  # the file that was there is unchanged


def test_a_token_pattern_names_the_extra(corpus, hide_pyarrow):
    hide_pyarrow()
    with pytest.raises(MissingExtra, match=f"token_pattern {NEEDS_ARROW}"):
        train(open_corpus(corpus), "parabel", tokens="names")


def test_a_table_names_the_extra(hide_pyarrow):
    pandas = pytest.importorskip("pandas")
    hide_pyarrow()
    with pytest.raises(MissingExtra, match=f"A table as a corpus {NEEDS_ARROW}"):
        open_corpus(pandas.DataFrame({"text": ["a"], "labels": [["x"]]}))

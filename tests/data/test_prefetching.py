"""Prefetching of corpus files during start-up."""

from __future__ import annotations

import gzip
import json

import pytest
from commands import invoke

from xmtc.core.run import Run
from xmtc.data import file_prefetch as fetching
from xmtc.data.batch import DocumentBatch
from xmtc.data.corpus import open_corpus
from xmtc.data.file_prefetch import ACTIVE_PREFETCHES, PrefetchedFile, take_prefetched
from xmtc.data.file_streams import read_blocks
from xmtc.errors import XmtcError

LINES = "".join(
    json.dumps({"id": f"{i}", "text": f"fish {i % 7} water {i**5}", "labels": [f"l{i % 5}"]}) + "\n" for i in range(900)
).encode()


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "corpus.jsonl.gz"
    found.write_bytes(gzip.compress(LINES))
    return str(found)


def test_prefetched_blocks_equal_the_file(path):
    expected, told = list(read_blocks(path, size=300)), []
    with fetching.prefetch_file(path, block_bytes=300):
        fetched = take_prefetched(path, told.append)
        assert take_prefetched(path, None) is None  # it belongs to another reader
        assert list(fetched) == expected
    assert len(expected) > 2 * fetching.MAX_PREFETCHED_BLOCKS
    assert sum(told) == len(gzip.compress(LINES))


def test_number_of_prefetched_blocks_is_limited(path, monkeypatch):
    read = []
    monkeypatch.setattr(
        fetching, "read_blocks", lambda *words, **options: (read.append(b) or b for b in read_blocks(*words, **options))
    )
    fetched = PrefetchedFile(path, block_bytes=300)
    fetched.blocks.pool.shutdown()
    assert len(read) == fetching.MAX_PREFETCHED_BLOCKS


def test_corpus_reads_prefetched_blocks(path, monkeypatch):
    expected = [document.id for document in open_corpus(path)]
    with fetching.prefetch_file(path):
        corpus = open_corpus(path)
        assert path in ACTIVE_PREFETCHES  # format detection does not consume them
        monkeypatch.setattr("xmtc.data.formats.jsonl.read_blocks", None)
        batches = list(corpus.iter_batches(Run(threads=2)))
    assert all(isinstance(batch, DocumentBatch) for batch in batches)
    assert sum(map(len, batches)) == len(expected)


def test_reading_line_by_line_ends_prefetching(path):
    with fetching.prefetch_file(path):
        fetched = ACTIVE_PREFETCHES[path]
        assert len(list(open_corpus(path))) == 900
        assert not ACTIVE_PREFETCHES
    with pytest.raises(RuntimeError, match="after shutdown"):
        fetched.blocks.pool.submit(int)


@pytest.mark.parametrize("cut", [1, 9, 300])
def test_damage_is_reported_as_without_prefetching(path, cut):
    with open(path, "wb") as file:
        file.write(gzip.compress(LINES)[:-cut])
    with pytest.raises(XmtcError) as expected:
        list(open_corpus(path).iter_batches(Run(threads=2)))
    with fetching.prefetch_file(path), pytest.raises(XmtcError) as found:
        list(open_corpus(path).iter_batches(Run(threads=2)))
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("name", ["corpus.csv", "nothing.jsonl", "-", ".", "folder.jsonl"])
def test_other_files_are_not_prefetched(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.csv").write_text("text,labels\n")
    (tmp_path / "folder.jsonl").mkdir()
    with fetching.prefetch_file(name):
        assert not ACTIVE_PREFETCHES


def test_training_uses_prefetched_blocks(path, tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(
        "xmtc.data.formats.jsonl.take_prefetched",
        lambda *words: taken.append(found := take_prefetched(*words)) or found,
    )
    for name, options in {"many": ["--threads", "2"], "one": ["--threads", "1"], "told": ["--id", "id"]}.items():
        assert invoke("train", path, "-o", tmp_path / name, "-q", *options).returncode == 0
        assert not ACTIVE_PREFETCHES
    assert [each is not None for each in taken] == [True, False, False]
    arrays = {(tmp_path / name / "arrays.safetensors").read_bytes() for name in ("many", "one", "told")}
    assert len(arrays) == 1
    assert invoke("train", path, "-o", tmp_path).returncode == 2
    assert not ACTIVE_PREFETCHES

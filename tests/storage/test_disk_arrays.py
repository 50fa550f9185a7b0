"""Work folders: same bytes as in memory, no files left, and one-line errors."""

from __future__ import annotations

import errno
import io
import json
import mmap
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_features import run as xmtc

from xmtc import Classifier, Run, XmtcError
from xmtc.core.memory import get_memory_limit
from xmtc.data.batch import Texts
from xmtc.features.tfidf import Tfidf
from xmtc.features.word_counts import StoredCounts, TermCounts
from xmtc.storage.array_file import map_file
from xmtc.storage.disk_arrays import ArrayStore, PreallocatedArray

TEXTS = [f"common word{i % 7} books{i % 5} library number{i}" for i in range(400)]
TAGS = [[f"a{i % 5}", f"b{i % 7}"] for i in range(400)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    rows = ({"text": text, "labels": tags} for text, tags in zip(TEXTS, TAGS, strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("analyzer", ["words", "words+grams", "snowball:english"])
@pytest.mark.parametrize("threads", [1, 2])
def test_model_trained_with_workdir_has_the_same_bytes(corpus, tmp_path, analyzer, threads):
    work = tmp_path / "deep" / "work"
    for name, options in (("one", []), ("other", ["--workdir", work, "--threads", threads])):
        message = xmtc("train", corpus, "-o", tmp_path / name, "-p", f"analyzer={analyzer}", "--quiet", *options)
        assert message == (0, "")
    for file in ("about.json", "arrays.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()
    assert not list(work.iterdir())


def test_arrays_are_written_to_the_workdir(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr("xmtc.storage.disk_arrays.WorkFile.append", record_sizes(written))
    memory = Tfidf().fit(TEXTS)[1].matrix
    assert not written
    disk = Tfidf().fit(TEXTS, Run(workdir=tmp_path))[1].matrix
    assert sum(written) >= memory.data.nbytes + memory.indices.nbytes
    assert is_mapped(disk.data)
    assert (memory != disk).nnz == 0
    assert not list(tmp_path.iterdir())


def record_sizes(written: list[int]):
    from xmtc.storage.disk_arrays import WorkFile

    append = WorkFile.append

    def recorded(self, array):
        written.append(array.nbytes)
        return append(self, array)

    return recorded


def is_mapped(array: np.ndarray) -> bool:
    """Return True if the numbers are in a file."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems reserve no memory, or have none to spare")
def test_files_that_are_larger_than_memory_are_mapped(tmp_path):
    with (tmp_path / "large").open("w+b") as file:
        n = int(2 * get_memory_limit())
        file.truncate(n)
        result = map_file(file, np.int16, n // 2 * 2 - 2 * mmap.ALLOCATIONGRANULARITY + 2)
        assert len(result) == mmap.ALLOCATIONGRANULARITY - 1
        assert len(map_file(file, np.uint8)) == n
    assert result.flags.writeable
    assert not result.any()


def test_classifier_uses_a_workdir(tmp_path):
    result = [Classifier().fit(TEXTS, TAGS, run=Run(workdir=folder)) for folder in (None, str(tmp_path))]
    one, other = (each.predict_proba(TEXTS[:20]) for each in result)
    np.testing.assert_array_equal(one, other)
    assert not list(tmp_path.iterdir())


def test_file_as_workdir_is_rejected(corpus, tmp_path):
    status, message = xmtc("train", corpus, "-o", tmp_path / "model", "--workdir", corpus)
    assert status
    assert message.endswith("corpus.jsonl is a file; expected a directory: choose another one for --workdir.")
    assert corpus.read_text().count("\n") == 400
    with pytest.raises(XmtcError, match="is a file; expected a directory"):
        Tfidf().fit(TEXTS, Run(workdir=corpus))


def test_workdir_without_effect_is_rejected(tmp_path):
    (tmp_path / "features.txt").write_text("3 4 2\n0 0:1\n1 1:1\n0,1 3:2\n")
    words = "train", tmp_path / "features.txt", "-o", tmp_path / "model", "--workdir", tmp_path / "work"
    status, message = xmtc(*words, "-m", "dismec")
    assert status
    assert "--workdir applies to tf-idf of texts and to label trees, but dismec reads columns of this corpus" in message
    assert not (tmp_path / "work").exists()
    status, message = xmtc(*words, "-m", "parabel")
    assert not status, message


class Full(io.BytesIO):
    """Full disk with room for a few bytes."""

    def write(self, content) -> int:
        if self.tell() + len(content) > 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)


def test_full_disk_is_a_one_line_error(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.storage.disk_arrays.tempfile", SimpleNamespace(TemporaryFile=lambda dir: Full()))
    status, message = xmtc("train", corpus, "-o", tmp_path / "model", "--workdir", tmp_path / "work", "--threads", "2")
    assert status
    expected = "work cannot be written (No space left on device); free disk space, or"
    assert expected in message
    assert not (tmp_path / "model").exists()


def test_error_leaves_no_files(tmp_path):
    def texts():
        yield from TEXTS
        raise XmtcError("the corpus is damaged")

    with pytest.raises(XmtcError, match="the corpus is damaged"):
        Tfidf().fit(texts(), Run(workdir=tmp_path))
    assert not list(tmp_path.iterdir())


def test_arrays_in_memory_and_on_disk_are_equal(tmp_path):
    pieces = [np.arange(n, dtype=np.int32) for n in (3, 0, 5)]
    for folder in (None, tmp_path):
        growing, shelf = PreallocatedArray(8, np.int32, folder), ArrayStore(folder)
        takes = [shelf.put(piece) for piece in pieces]
        for piece in pieces:
            growing.prepare_write(piece)()
        assert growing.to_array().tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
        assert [take().tolist() for take in takes] == [piece.tolist() for piece in pieces]
        assert not len(PreallocatedArray(0, np.float32, folder).to_array())
        assert growing.to_array().flags.writeable  # otherwise kernels would be compiled twice


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 300), st.integers(1, 70_000), max_size=5), max_size=6))
def test_stored_counts_are_restored(documents):
    starts = np.cumsum([0, *map(len, documents)])
    terms = np.array([term for document in documents for term in document], np.int32)
    counts = np.array([count for document in documents for count in document.values()], np.int32)
    held = StoredCounts.from_counts(TermCounts(starts, terms, counts), 301, ArrayStore(None))
    for result, expected in zip(held.restore(), (starts, terms, counts), strict=True):
        assert result.tolist() == expected.tolist()
        assert result.dtype == expected.dtype
    assert held.n_docs == len(documents)
    assert held.frequencies.tolist() == [sum(term in document for document in documents) for term in range(301)]


def test_counts_are_released_while_the_matrix_is_built():
    batches = [Texts.from_strings(TEXTS[begin : begin + 50]) for begin in range(0, len(TEXTS), 50)]
    released, kept = (Tfidf().count_words(batches, Run()) for _ in range(2))
    Tfidf().fit_counts(released, "words+grams", Run(), should_release=True)
    assert [counts.batches for counts in released.values()] == [[]]
    Tfidf().fit_counts(kept, "words", Run())
    (counts,) = kept.values()
    assert len(counts.batches) == 8
    assert (counts.n_docs, counts.n_entries) == (400, 5 * 400)

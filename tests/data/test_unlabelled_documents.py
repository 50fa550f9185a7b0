"""Documents for prediction: plain texts are read whole, and labels are not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from xmtc.data.corpus import open_corpus
from xmtc.data.records import Fields

UNREAD = Fields(labels=None)


def read(path: Path, content: bytes, **options) -> tuple[str, list[str]]:
    path.write_bytes(content)
    corpus = open_corpus(path, labels_required=False, **options)
    return corpus.format, [document.text for document in corpus]


@pytest.mark.parametrize(
    "lines",
    [
        ["a tab\tin the text", "none here", "two\tof\tthem"],
        ["three\ttabs\there, at once", "and more"],
        ["name\t<b>bold</b>", "other\t<i>"],
        ["see\t", "a text"],
        ["10 20 30", "numbers, and then words"],
        ["10 20 30"],
        ["5:1-2", "scores of a match"],
        ["{curly} braces", "second"],
        ['{"text": "torn', "second"],
        ["labels\tare not the text field", "x"],
    ],
)
def test_plain_texts_are_read_whole(lines: list[str], tmp_path: Path) -> None:
    content = "\n".join(lines)
    assert read(tmp_path / "c", content.encode()) == ("fasttext", [line.strip() for line in lines])
    assert read(tmp_path / "c.txt", content.encode()) == ("text", [content])  # one document


@pytest.mark.parametrize(
    ("content", "format", "texts"),
    [
        (b'{"text": "a"}\n', "jsonl", ["a"]),
        (b"id\ttext\n1\ta\n", "tsv", ["a"]),
        (b"text,more\na,b\n", "csv", ["a"]),
        (b"a\t<http://x/1> <http://x/2>\n", "annif", ["a"]),
        (b"__label__x a\n", "fasttext", ["a"]),
        (b"1 9 4\n1,2 3:1 8:0.5\n", "sparse", [""]),
        (b"1 9 4\n 3:1 8:0.5\n", "sparse", [""]),
        (b"1,2 3:1 8:0.5\n", "svmlight", [""]),
    ],
)
def test_unambiguous_formats_are_detected(content: bytes, format: str, texts: list[str], tmp_path: Path) -> None:
    assert read(tmp_path / "c", content) == (format, texts)


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("c.jsonl", b'{"text": "a", "labels": "x;y"}\n{"text": "b", "labels": [{}, 1.5, ""]}', None),
        ("c.csv", b"text,labels\na,[{}]\nb,\n", None),
        ("c.csv", b"text,labels,labels\na,x,y\nb,,\n", None),
        ("c.ft", b"__label__ a\n__label__x b\n", None),
        ("c.tsv", b"a\tfish\nb\t\n", "annif"),
        ("c.txt", b"2 9 4\n99 3:1\n-1 3:1\n", "sparse"),
        ("c.svm", b"cat 3:1\n1.5 3:1\n", "svmlight"),
    ],
)
def test_labels_are_not_read(name: str, content: bytes, format: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    documents = list(open_corpus(tmp_path / name, format, UNREAD, labels_required=False))
    assert [document.labels for document in documents] == [[], []]
    assert [document.text for document in documents] in (["a", "b"], ["", ""])


def test_labels_are_not_read_from_folders_and_matrices(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    (tmp_path / "a.key").write_bytes(b"\xff")
    assert [document[1:3] for document in open_corpus(tmp_path, None, UNREAD, False)] == [("a", [])]
    sparse.save_npz(tmp_path / "X.npz", sparse.csr_array(np.eye(2)))
    (tmp_path / "Y.npz").write_bytes(b"no matrix")
    assert [document.labels for document in open_corpus(tmp_path / "X.npz", None, UNREAD, False)] == [[], []]


def test_optional_labels_are_read_if_present(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(b'{"text": "a", "labels": ["x"]}\n{"text": "b"}')
    documents = open_corpus(tmp_path / "c.jsonl", labels_required=False)
    assert [document.labels for document in documents] == [["x"], []]

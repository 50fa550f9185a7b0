"""Warnings about files that are not read or were misread."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from xmtc.data.corpus import open_corpus
from xmtc.data.layout import Notifier
from xmtc.data.records import Fields
from xmtc.errors import XmtcError

FIELD = b"00\x1faMusiikki ja a\xcc\x88net\x1e"  # of a record without status, as pymarc writes it
MARC = b"%05d    a2200037   4500245%04d00000\x1e" % (37 + len(FIELD) + 1, len(FIELD)) + FIELD + b"\x1d"
UNLABELLED = Fields(labels=None)


def read(path: Path, said: list[str] | None = None, **options) -> list[str]:
    notifier = Notifier((said if said is not None else []).append)
    corpus = open_corpus(path, fields=UNLABELLED, labels_required=False, notifier=notifier, **options)
    return [document.text for document in corpus]


def test_files_of_a_folder_that_are_not_read_are_told(tmp_path: Path) -> None:
    names = ("a.txt", "a.tsv", "a.tags.tsv", "b.rtf", "c.rtf", "d.odt", "README", ".hidden.doc")
    for name in names:
        (tmp_path / name).write_text("words")
    said: list[str] = []
    assert read(tmp_path, said) == ["words"]
    assert "3 files are not read (2 .rtf, 1 .odt)" in said[0]
    with pytest.raises(XmtcError, match="3 files are not read"):
        list(open_corpus(tmp_path, fields=UNLABELLED, labels_required=False, notifier=Notifier(strict=True)))


def test_a_broken_document_does_not_stop_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    (tmp_path / "a.pdf").write_bytes(b"broken")
    (tmp_path / "b.txt").write_text("words")
    said: list[str] = []
    assert read(tmp_path, said) == ["words"]
    assert said[0].startswith(f"{tmp_path}: a.pdf is skipped: it cannot be read as PDF (")


@pytest.mark.parametrize(
    ("name", "content", "package"),
    [
        ("a.dat", MARC * 2, "pymarc"),
        ("marc.txt", MARC * 2, "pymarc"),
        ("a.txt", b"TY  - JOUR\nTI  - Musiikki\nER  - \n\nTY  - BOOK\nTI  - Soitin\nER  - \n", "rispy"),
        ("b.txt", b"% exported\n\n@article{k, title={Musiikki}}\n@book{l, title={Soitin}}\n", "bibtexparser"),
    ],
)
def test_records_are_recognised_whatever_the_name(tmp_path: Path, name: str, content: bytes, package: str) -> None:
    pytest.importorskip(package)
    (tmp_path / name).write_bytes(content)
    texts = read(tmp_path / name)
    assert len(texts) == 2
    assert texts[0].startswith("Musiikki")


def test_json_arrays(tmp_path: Path) -> None:
    objects = [{"id": 1, "text": "Ärger", "labels": ["a"]}, {"id": 2, "text": "b", "labels": [{"label": "c"}]}]
    for name, indent in (("a.json", None), ("b.json", 2), ("c", 1)):
        (tmp_path / name).write_text(json.dumps(objects, indent=indent))
        found = [(document.id, document.text, document.labels) for document in open_corpus(tmp_path / name)]
        assert found == [("1", "Ärger", ["a"]), ("2", "b", ["c"])]
    (tmp_path / "lines.json").write_text("".join(json.dumps(each) + "\n" for each in objects))
    assert open_corpus(tmp_path / "lines.json").format == "jsonl"


def test_one_json_object_is_not_a_document_per_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"docs": [{"text": "a"}]}, indent=1))
    with pytest.raises(XmtcError, match=r"jq -c '\.docs\[\]'"):
        read(tmp_path / "a.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(XmtcError, match="not readable JSON"):
        read(tmp_path / "deep.json")


def test_a_bad_object_of_an_array_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"text": "a"}, {"text": 1}]')
    with pytest.raises(XmtcError, match="object 2: the field 'text' is the number 1"):
        read(tmp_path / "a.json")
    assert read(tmp_path / "a.json", on_error="skip") == ["a"]


@pytest.mark.parametrize(
    ("text", "tag"), [("<p>a</p>", "<p>"), ('b <A href="x">c</A>', '<A href="x">'), ("a<b, c>d", "")]
)
def test_html_in_cells_is_reported(tmp_path: Path, text: str, tag: str) -> None:
    rows = [["text", "labels"], *([text if number % 5 == 0 else "plain", "x"] for number in range(20))]
    with (tmp_path / "c.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    heard: list[str] = []
    assert len(list(open_corpus(tmp_path / "c.csv", labels_required=False, notifier=Notifier(heard.append)))) == 20
    assert len(heard) == (tag != "")
    assert not tag or f"4 of the first 20 texts contain HTML, such as {tag!r}" in heard[0]

"""Hostile bibliographic records and Word documents: no file is opened, nothing is expanded, every file ends in time."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "campaigns"))

import hostile_files
from audited import watch_access
from hostile_files import deflate_blocks, zip_members, zip_streams

from xmtc.core.child_process import ChildTaskError, TaskLimits
from xmtc.data.corpus import open_corpus
from xmtc.data.formats import bibliographic
from xmtc.data.formats.bibliographic import DEFAULT_FIELDS
from xmtc.errors import XmtcError

for package in ("pymarc", "rispy", "bibtexparser", "lxml", "docx"):
    pytest.importorskip(package)

linux = pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
RECORDS = {
    "marcxml": '<record xmlns="http://www.loc.gov/MARC21/slim"><datafield tag="245" ind1=" " ind2=" ">'
    '<subfield code="a">%s</subfield></datafield></record>',
    "mods": '<mods xmlns="http://www.loc.gov/mods/v3"><titleInfo><title>%s</title></titleInfo></mods>',
    "dc": '<r><dc xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>%s</dc:title></dc></r>',
}
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
WORD_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
WORD_BODY = f'<w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>%s</w:t></w:r></w:p></w:body></w:document>'


def word_parts(document: str) -> dict[str, bytes]:
    types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override '
        f'PartName="/word/document.xml" ContentType="{WORD_TYPE}"/></Types>'
    )
    rels = hostile_files.RELS % ("officeDocument", "word/document.xml")
    return {"[Content_Types].xml": types.encode(), "_rels/.rels": rels.encode(), "word/document.xml": document.encode()}


def read(path: Path, format: str | None = None) -> list[str]:
    with watch_access(path.parent):
        return [document.text for document in open_corpus(path, format, labels_required=False, on_error="skip")]


def read_or_refuse(path: Path, format: str | None = None) -> str:
    """Return the texts, or the error message."""
    try:
        return " ".join(read(path, format))
    except XmtcError as error:
        return str(error)


@pytest.mark.parametrize("format", RECORDS)
def test_external_entities_are_not_read(tmp_path: Path, format: str) -> None:
    (tmp_path / "secret").write_text("password")
    entity = f'<!DOCTYPE x [<!ENTITY e SYSTEM "{(tmp_path / "secret").as_uri()}">]>'
    (tmp_path / "a.xml").write_text(entity + RECORDS[format] % "words &e;")
    assert "password" not in read_or_refuse(tmp_path / "a.xml", format)
    (tmp_path / "b.xml").write_text(f'<!DOCTYPE x SYSTEM "{tmp_path}/secret">' + RECORDS[format] % "words")
    assert read_or_refuse(tmp_path / "b.xml", format) == "words"


@pytest.mark.parametrize("format", RECORDS)
def test_entities_are_not_expanded(tmp_path: Path, format: str) -> None:
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "ha" * 10}">' for i in range(10))
    (tmp_path / "a.xml").write_text(f"<!DOCTYPE x [{entities}]>" + RECORDS[format] % "words &e9;")
    begin = time.monotonic()
    found = read_or_refuse(tmp_path / "a.xml", format)
    assert "haha" not in found
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("format", RECORDS)
def test_deep_xml_ends(tmp_path: Path, format: str) -> None:
    (tmp_path / "a.xml").write_text(RECORDS[format] % ("<a>" * 200_000))
    assert "a.xml" in read_or_refuse(tmp_path / "a.xml", format)


def test_entities_of_a_word_document_are_not_expanded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password")
    entities = f'<!DOCTYPE x [<!ENTITY e SYSTEM "{(tmp_path / "secret").as_uri()}"><!ENTITY a "haha">]>'
    (tmp_path / "a.docx").write_bytes(zip_members(word_parts(entities + WORD_BODY % "words &e; &a;")))
    found = read_or_refuse(tmp_path / "a.docx")
    assert "password" not in found
    (tmp_path / "b.docx").write_bytes(zip_members(word_parts(WORD_BODY % "words")))
    assert read_or_refuse(tmp_path / "b.docx") == "words"


@linux
@pytest.mark.parametrize("declared", [10, 2**31])
def test_a_word_document_that_unpacks_to_more(tmp_path: Path, declared: int) -> None:
    parts = word_parts("")
    members = [
        (name, hostile_files.deflate_content(part), len(part))
        for name, part in parts.items()
        if name != "word/document.xml"
    ]
    begin = (WORD_BODY % "").partition("</w:t>")[0].encode()
    members.append(("word/document.xml", deflate_blocks(200, begin, b"a"), declared))
    (tmp_path / "a.docx").write_bytes(zip_streams(members))
    message = read_or_refuse(tmp_path / "a.docx")
    assert message.startswith("No document is valid: "), message


@pytest.mark.parametrize("format", DEFAULT_FIELDS)
def test_a_parser_runs_in_a_child_process_with_limits(tmp_path: Path, format: str, monkeypatch) -> None:
    """All records are read by a task of the pool, whose failure is an error of the file."""
    requests = []

    def fail(task, request, content, limits):
        requests.append((task, limits))
        raise ChildTaskError("it takes longer than 1 seconds")

    monkeypatch.setattr(bibliographic.CHILD_POOL, "run", fail)
    (tmp_path / "a").write_bytes(b"any bytes")
    with pytest.raises(XmtcError, match="it takes longer than 1 seconds"):
        list(open_corpus(tmp_path / "a", format))
    ((task, limits),) = requests
    assert task == "xmtc.data.formats.bibliographic:read_records"
    assert limits == TaskLimits.for_file_size(9, seconds_per_mib=10.0)


HOSTILE_TEXTS = {
    "braces.bib": b"@article{k, title={" + b"{" * 300_000,
    "entries.bib": b"@article{k, title={a}}\n" * 20_000,
    "strings.bib": b"".join(b"@string{s%d = s%d # s%d}\n" % (i, i - 1, i - 1) for i in range(1, 60))
    + b"@article{k, title = s59}",
    "quotes.bib": b'@article{k, title="' + b'\\"{' * 100_000,
    "tags.ris": b"TY  - JOUR\n" + b"KW  - a\n" * 100_000 + b"ER  - \n",
    "names.ris": b"TY  - JOUR\n" + b"".join(b"A%c  - x\n" % c for c in b"ABCDEFGHIJ") * 10_000,
    "lengths.mrc": b"99999nam a2299999   4500" + b"\x1e" * 90_000 + b"\x1d",
    "directory.mrc": b"00100nam a2200060   4500" + b"245999999999" * 3 + b"\x1e\x1d",
    "no_end.mrc": b"00100nam a2200060   4500" + b"a" * 5_000_000,
}


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_hostile_records_end_in_time(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(HOSTILE_TEXTS[name])
    begin = time.monotonic()
    assert len(read_or_refuse(tmp_path / name)) < 2_000_000
    assert time.monotonic() - begin < 90

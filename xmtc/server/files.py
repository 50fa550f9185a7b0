"""A person's file becomes texts, and the tags of many texts a file."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from xmtc.answers import Answer, AnswerTable, writer_of
from xmtc.data.corpus import open_corpus
from xmtc.data.encodings import HEAD_BYTES, encoding_of
from xmtc.data.formats.table import DECLARED, sniffed
from xmtc.data.formats.xlsx import HEADER_ROWS, as_text
from xmtc.data.layout import Voice
from xmtc.data.records import Fields, matching
from xmtc.errors import XmtcError, missing_extra
from xmtc.server.refusals import Refused
from xmtc.tagger import Tag

# By the end of their names; a table of plain text is a table only if it is called so.
KINDS = {".txt": "text", ".md": "text", ".html": "html", ".htm": "html", ".pdf": "pdf", ".csv": "csv", ".tsv": "tsv"}
KINDS |= {".xlsx": "xlsx", ".xls": "xlsx", ".ods": "xlsx", ".jsonl": "jsonl", ".ndjson": "jsonl"}
TABLES = {"csv": ",", "tsv": "\t"}
LOOKED_AT = 50  # rows, to find the column with the texts
MOST_DOCUMENTS = 10_000
MOST_UNPACKED = 512 * 2**20  # bytes of a workbook
TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def texts_in(name: str, content: bytes, column: str | None, reading: Mapping[str, Any]) -> dict[str, Any]:
    """The documents in a file, the columns that it has, and which of them was read; `reading` is how the corpus was
    read that the model was trained on."""
    ending = Path(name).suffix.lower()
    if ending not in KINDS:
        raise Refused(
            415, f"A file {ending or 'without an ending'} cannot be read; expected one of {', '.join(KINDS)}."
        )
    if not content.strip():
        raise Refused(422, "The file is empty; check where it comes from.")
    with TemporaryDirectory(prefix="xmtc-file-") as folder:
        path = Path(folder, f"file{ending}")
        path.write_bytes(content)
        try:
            found = read_file(path, KINDS[ending], column, reading)
        except XmtcError as error:
            raise Refused(422, str(error).replace(f"{folder}/", "").replace(folder, "")) from None
    if not found["columns"] and len(found["documents"]) == 1:  # one text, which is called as its file
        found["documents"][0]["id"] = Path(name.replace("\\", "/")).stem
    return found


def read_file(path: Path, kind: str, column: str | None, reading: Mapping[str, Any]) -> dict[str, Any]:
    check_packed(path, kind)
    rows = first_rows(path, kind)
    columns = [name for name in (rows[0] if rows else []) if name]
    column = chosen_column(rows, column, reading.get("text")) if columns else None
    notes: list[str] = []
    fields = Fields(text=column or "text", labels=None)
    rejects = path.with_name("rejects")
    corpus = open_corpus(path, kind, fields, False, "skip", rejects, voice=Voice(notes.append))
    documents = [{"id": each.id, "text": each.text} for each in islice(corpus, MOST_DOCUMENTS + 1)]
    if len(documents) > MOST_DOCUMENTS:
        raise Refused(413, f"The file has more than {MOST_DOCUMENTS:,} documents; `xmtc predict` tags any number.")
    if corpus.rejects is not None and corpus.rejects.first is not None:
        first = corpus.rejects.first
        notes.append(f"{corpus.n_rejected:,} left out, the first at {first.unit} {first.location}: {first.reason}.")
    note = " ".join(each.partition("; --")[0].rstrip(".") + "." for each in notes).replace(f"{path.parent}/", "")
    return {"documents": documents, "columns": columns, "column": column, "note": note}


def check_packed(path: Path, kind: str) -> None:
    """Refuse a workbook that would fill the memory when it is unpacked."""
    if kind == "xlsx" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            if sum(each.file_size for each in packed.infolist()) > MOST_UNPACKED:
                raise Refused(413, "The workbook is too large when it is unpacked; send it in parts.")


def first_rows(path: Path, kind: str) -> list[list[str]]:
    """The header of a table and some rows below it; nothing of what is no table."""
    if kind in TABLES:
        return rows_of_text(path, TABLES[kind])
    if kind == "xlsx":
        return rows_of_workbook(path)
    return rows_of_objects(path) if kind == "jsonl" else []


def rows_of_text(path: Path, usual: str) -> list[list[str]]:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    encoding = encoding_of(head, is_whole=len(head) < HEAD_BYTES).name
    lines = head.decode(encoding, "replace").lstrip("\ufeff").splitlines(keepends=True)
    lines = [line for line in lines if line.strip()]
    if lines and (declared := DECLARED.fullmatch(lines[0])):
        delimiter, lines = declared[1], lines[1:]
    else:
        delimiter = sniffed(lines[0].strip("\r\n"), Fields(labels=None), usual) if lines else usual
    try:
        return [[cell.strip() for cell in row] for row in islice(csv.reader(lines, delimiter=delimiter), LOOKED_AT)]
    except csv.Error:  # the reader says what is wrong with it
        return []


def rows_of_workbook(path: Path) -> list[list[str]]:
    """The first sheet that has anything; its header is the first of its rows that has most cells."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError as error:
        raise missing_extra("Reading a workbook", error) from None
    try:
        workbook = CalamineWorkbook.from_path(str(path))
        for name in workbook.sheet_names:
            sheet = workbook.get_sheet_by_name(name)
            rows = [[as_text(cell).strip() for cell in row] for row in islice(sheet.iter_rows(), LOOKED_AT)]
            if any(any(row) for row in rows):
                begin = max(range(min(len(rows), HEADER_ROWS)), key=lambda place: len(list(filter(None, rows[place]))))
                return rows[begin:]
    except Exception:  # a damaged one raises anything; the reader says what is wrong with it
        return []
    return []


def rows_of_objects(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        records = []
        for line in islice(file, LOOKED_AT):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    texts = [[value if isinstance(value := record.get(name), str) else "" for name in names] for record in records]
    return [names, *texts]


def chosen_column(rows: list[list[str]], asked: str | None, remembered: str | None) -> str:
    """The one that is asked for, or called as in the training, or text; or else the one with the longest cells."""
    header, *below = rows
    if asked:
        if not all(matching(header, name) for name in Fields(text=asked).text_names):
            raise Refused(422, f"There is no column {asked[:100]!r}; there are {', '.join(filter(None, header))}.")
        return asked
    for name in filter(None, (remembered, "text")):
        if all(matching(header, each) for each in Fields(text=name).text_names):
            return name
    lengths = [sum(len(row[place]) for row in below if place < len(row)) for place in range(len(header))]
    return header[max((place for place in range(len(header)) if header[place]), key=lambda place: lengths[place])]


def table_of(rows: list[tuple[str, str, list[Tag]]], format: str) -> bytes:
    """Documents and their tags as a file: one row for each, which no spreadsheet runs anything of."""
    most = max((len(tags) for _, _, tags in rows), default=0)
    has_names = any(tag.name not in (None, tag.label) for _, _, tags in rows for tag in tags)
    table = AnswerTable(k=max(1, most), wide=True, keep=("text",), has_names=has_names)
    stream = io.BytesIO()
    with writer_of(format, bom=format == "csv")(stream, table) as write:  # by its mark Excel knows UTF-8
        write(Answer(id, tags, (text,)) for id, text, tags in rows)
    return stream.getvalue()

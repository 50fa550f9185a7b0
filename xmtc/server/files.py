"""Tasks that read uploaded files and write tables of tags, run in a child process of the service.

The child process has limits on memory and time and is killed when its request ends (xmtc/core/child_process.py). On
Linux an uploaded file has no name on disk, so that a crash leaves nothing behind."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple

from xmtc.core.child_worker import TEMP_FOLDER_PREFIX, to_utf8_json
from xmtc.data.corpus import open_corpus
from xmtc.data.corpus_input import BadLine
from xmtc.data.encodings import DETECTION_BYTES, UTF8, detect_encoding, normalise_encoding_name
from xmtc.data.file_streams import open_binary
from xmtc.data.formats.table import DELIMITER_DECLARATION_PATTERN, sniff_delimiter
from xmtc.data.formats.xlsx import MAX_HEADER_ROWS, cell_to_text, open_workbook
from xmtc.data.layout import Layout, Notifier
from xmtc.data.records import Fields, match_name
from xmtc.errors import XmtcError, as_missing_extra
from xmtc.output import Prediction, PredictionTable, get_writer
from xmtc.server.request_errors import RequestError

FORMAT_BY_SUFFIX = {
    ".txt": "text",
    ".md": "text",
    ".html": "html",
    ".htm": "html",
    ".pdf": "pdf",
    ".docx": "docx",
    ".csv": "csv",
    ".tsv": "tsv",
    ".xlsx": "xlsx",
    ".xls": "xlsx",
    ".ods": "xlsx",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
DELIMITER_BY_FORMAT = {"csv": ",", "tsv": "\t"}
SINGLE_DOCUMENT_FORMATS = ("text", "html", "pdf", "docx")
CODE_PAGE_FORMATS = ("text", "csv", "tsv")  # whose encoding may be a guess
MAX_PROBED_ROWS = 50  # rows read to choose the text column
MAX_DOCUMENTS = 10_000  # per file
MAX_LISTED_COLUMNS = 20  # in an error message
MAX_CELLS = 2_000_000  # per table
# Modules that a child process imports before its first task.
PRELOADED_MODULES = ("xmtc.server.files", "python_calamine", "pypdf", "docx", "trafilatura", "xlsxwriter")
READ_TASK, WRITE_TASK = "xmtc.server.files:read_upload", "xmtc.server.files:write_table"  # as ChildPool expects them
CONTENT_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


class TableTag(NamedTuple):
    """Tag in a row of a table."""

    label: str
    score: float
    name: str | None


def check_upload(name: str, content: bytes) -> None:
    """Raise RequestError if the file type is not supported or the file is empty."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMAT_BY_SUFFIX:
        raise RequestError(
            415,
            f"Unsupported file type {suffix or '(no extension)'}; expected one of {', '.join(FORMAT_BY_SUFFIX)}.",
        )
    if not content.strip():
        raise RequestError(422, "The file is empty; send a file that contains text.")


def read_upload(request: dict[str, Any], content: IO[bytes]) -> Iterator[Any]:
    """Yield the JSON response with the documents of a file, or the status and message of an error."""
    suffix = Path(request["name"]).suffix.lower()
    with open_temporary_path(content.read(), suffix) as path:
        try:
            kind, layout = FORMAT_BY_SUFFIX[suffix], Layout(encoding=request["encoding"] or None)
            response = read_file(path, kind, request["column"], request["remembered"], layout)
        except RequestError as error:
            yield [error.status, error.message]
            return
        except BadLine as error:
            yield [422, f"The file cannot be read as a document: {error.reason}."]
            return
        except XmtcError as error:
            yield [422, remove_path(str(error), path, suffix)]
            return
    response["note"] = remove_path(response["note"], path, suffix)
    if not response["columns"] and len(response["documents"]) == 1:  # a single text takes the name of its file
        response["documents"][0]["id"] = Path(request["name"].replace("\\", "/")).stem
    yield to_utf8_json(response)


@contextmanager
def open_temporary_path(content: bytes, suffix: str) -> Iterator[Path]:
    """Yield the path of a file with this content: anonymous on Linux, in a temporary directory elsewhere."""
    if not hasattr(os, "memfd_create"):
        with TemporaryDirectory(prefix=TEMP_FOLDER_PREFIX) as folder:
            path = Path(folder, f"file{suffix}")
            path.write_bytes(content)
            yield path
        return
    with os.fdopen(os.memfd_create("xmtc-file"), "wb") as file:
        file.write(content)
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")


def remove_path(message: str, path: Path, suffix: str) -> str:
    return message.replace(str(path), f"file{suffix}").replace(f" set aside in {os.devnull}", " left out")


def read_file(path: Path, kind: str, column: str | None, remembered: str | None, layout: Layout) -> dict[str, Any]:
    """Return the documents of a file, its columns, the column of the texts, a note, and the encoding if not UTF-8.

    `remembered` is the name of the text field of the training corpus.
    """
    encoding = choose_encoding(path, layout) if kind in CODE_PAGE_FORMATS else None
    rows = read_first_rows(path, kind, [name for name in (column, remembered, "text") if name], encoding)
    columns = [name for name in (rows[0] if rows else []) if name]
    column = choose_column(rows, column, remembered) if columns else None
    notes: list[str] = []
    fields = Fields(text=column or "text", labels=None)
    on_error = "stop" if kind in SINGLE_DOCUMENT_FORMATS else "skip"
    corpus = open_corpus(
        path, kind, fields, False, on_error, os.devnull, layout=layout, notifier=Notifier(notes.append)
    )
    documents = [{"id": document.id, "text": document.text} for document in islice(corpus, MAX_DOCUMENTS + 1)]
    if len(documents) > MAX_DOCUMENTS:
        raise RequestError(
            413, f"The file has more than {MAX_DOCUMENTS:,} documents; use `xmtc predict` for larger files."
        )
    if corpus.rejects is not None and corpus.rejects.first_bad_line is not None:
        first = corpus.rejects.first_bad_line
        notes.append(f"{corpus.n_rejected:,} left out, the first at {first.unit} {first.location}: {first.reason}.")
    note = " ".join(note.partition("; --")[0].rstrip(".") + "." for note in notes)
    shown_encoding = None if encoding == UTF8 and layout.encoding is None else encoding
    return {"documents": documents, "columns": columns, "column": column, "note": note, "encoding": shown_encoding}


def choose_encoding(path: Path, layout: Layout) -> str:
    """Return the encoding that was requested, or the detected one."""
    if layout.encoding is not None:
        return normalise_encoding_name(layout.encoding)
    with path.open("rb") as file:
        head = file.read(DETECTION_BYTES)
    return detect_encoding(head, is_whole=len(head) < DETECTION_BYTES).name


def read_first_rows(path: Path, kind: str, names: Sequence[str], encoding: str | None) -> list[list[str]]:
    """Return the header of a table and its first rows, or an empty list if the format is not tabular."""
    if kind in DELIMITER_BY_FORMAT:
        return read_delimited_rows(path, DELIMITER_BY_FORMAT[kind], encoding or UTF8)
    if kind == "xlsx":
        return read_workbook_rows(path, names)
    return read_json_rows(path) if kind == "jsonl" else []


def read_delimited_rows(path: Path, default: str, encoding: str) -> list[list[str]]:
    with path.open("rb") as file:
        head = file.read(DETECTION_BYTES)
    lines = head.decode(encoding, "replace").lstrip("\ufeff").splitlines(keepends=True)
    lines = [line for line in lines if line.strip()]
    if lines and (declared := DELIMITER_DECLARATION_PATTERN.fullmatch(lines[0])):
        delimiter, lines = declared[1], lines[1:]
    else:
        delimiter = sniff_delimiter(lines[0].strip("\r\n"), Fields(labels=None), default) if lines else default
    try:
        return [
            [cell.strip() for cell in row] for row in islice(csv.reader(lines, delimiter=delimiter), MAX_PROBED_ROWS)
        ]
    except csv.Error:  # open_corpus reports the error
        return []


def read_workbook_rows(path: Path, names: Sequence[str]) -> list[list[str]]:
    """Return the first rows of the first sheet with one of the text columns, or else of the sheet with most text."""
    try:
        import python_calamine  # noqa: F401
    except ImportError as error:
        raise as_missing_extra("Reading a workbook", error) from None
    try:
        with open_binary(str(path)) as file:
            workbook = open_workbook("file", file)
        sheets = [read_sheet_rows(workbook.get_sheet_by_name(name), names) for name in workbook.sheet_names]
    except Exception:  # a damaged workbook raises any error; open_corpus reports it
        return []
    for name in names:
        for rows in sheets:
            if rows and all(match_name(rows[0], part) for part in Fields(text=name).text_names):
                return rows
    return max(sheets, key=lambda rows: sum(len(cell) for row in rows for cell in row), default=[])


def read_sheet_rows(sheet: Any, names: Sequence[str]) -> list[list[str]]:
    """Return the first rows from the header on: that with a text column, or the one with the most cells."""
    rows = [[cell_to_text(cell).strip() for cell in row] for row in islice(sheet.iter_rows(), MAX_PROBED_ROWS)]
    if not any(any(row) for row in rows):
        return []
    candidates = range(min(len(rows), MAX_HEADER_ROWS))
    for name in names:
        for number in candidates:
            if all(match_name(rows[number], part) for part in Fields(text=name).text_names):
                return rows[number:]
    return rows[max(candidates, key=lambda number: len(list(filter(None, rows[number])))) :]


def read_json_rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        records = []
        for line in islice(file, MAX_PROBED_ROWS):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    texts = [[value if isinstance(value := record.get(name), str) else "" for name in names] for record in records]
    return [names, *texts]


def choose_column(rows: list[list[str]], requested: str | None, remembered: str | None) -> str:
    """Return the requested column, else that of the training corpus, "text" or the one with the longest cells."""
    header, *below = rows
    if requested:
        if not all(match_name(header, name) for name in Fields(text=requested).text_names):
            raise RequestError(
                422, f"There is no column {requested[:100]!r}; the columns are {format_column_names(header)}."
            )
        return requested
    for name in filter(None, (remembered, "text")):
        if all(match_name(header, part) for part in Fields(text=name).text_names):
            return name
    lengths = [sum(len(row[i]) for row in below if i < len(row)) for i in range(len(header))]
    return header[max((i for i in range(len(header)) if header[i]), key=lambda i: lengths[i])]


def format_column_names(names: list[str]) -> str:
    columns = [name[:100] for name in names if name]
    return ", ".join(columns[:MAX_LISTED_COLUMNS]) + (", …" if len(columns) > MAX_LISTED_COLUMNS else "")


def check_cells(n_tags: list[int], format: str) -> None:
    """Raise RequestError if the table has too many cells: three per tag, and all rows as wide as the widest."""
    n_cells = 3 * sum(n_tags) if format == "jsonl" else len(n_tags) * (2 + 3 * max(n_tags, default=0))
    if n_cells > MAX_CELLS:
        hint = "" if format == "jsonl" else ", or use the format jsonl, which has no empty cells"
        raise RequestError(
            413, f"The table would have {n_cells:,} cells, expected {MAX_CELLS:,} at most; send fewer rows{hint}."
        )


def write_table(request: dict[str, Any], content: IO[bytes]) -> Iterator[bytes]:
    """Yield a file with one row per document and its tags."""
    documents: list[tuple[str, str, list[Any]]] = json.loads(content.read())
    rows: list[tuple[str, str, Any]] = [(id, text, [TableTag(*tag) for tag in tags]) for id, text, tags in documents]
    format = request["format"]
    max_tags = max((len(tags) for _, _, tags in rows), default=0)
    has_names = any(tag.name not in (None, tag.label) for _, _, tags in rows for tag in tags)
    table = PredictionTable(k=max(1, max_tags), wide=True, kept_fields=("text",), has_names=has_names)
    stream = io.BytesIO()
    options = {"in_memory": True} if format == "xlsx" else {"bom": True} if format == "csv" else {}
    with get_writer(format)(stream, table, **options) as write:  # Excel needs the BOM to detect UTF-8
        write(Prediction(id, tags, (text,)) for id, text, tags in rows)
    yield stream.getvalue()

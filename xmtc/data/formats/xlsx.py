"""Workbooks of Excel and LibreOffice (.xlsx, .xlsm, .xlsb, .xls, .ods), read with python-calamine (extra `tables`).

One sheet is read: the one that --sheet names, or the first with the text field in its header. The header is the first
of the first twenty rows that has this field, so a title may precede it. Cells are treated as in CSV: numbers and dates
become text, an empty label cell means no labels, and rows of empty cells are skipped.

python-calamine allocates the rectangle up to the last cell of a sheet, so a small file can take any amount of memory.
Therefore it runs in a child process (xmtc/core/child_process.py), which sends the rows as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import date, time
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from itertools import islice
from typing import IO, Any

from xmtc.core.child_process import CHILD_POOL, ChildTaskError, TaskLimits
from xmtc.core.child_worker import CHUNK_BYTES
from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.parquet import row_to_json
from xmtc.data.formats.table import RepeatedHeader, fold_cells, is_blank, may_repeat_header, validate_header
from xmtc.data.records import BadRecord, Fields, match_name
from xmtc.data.row_layouts import resolve_label_fields
from xmtc.errors import XmtcError, as_missing_extra

MAX_HEADER_ROWS = 20  # rows that are searched for the header
BATCH_ROWS, BATCH_CHARACTERS = 1000, 2**18  # limits of a batch of rows from the child process


def read(source: CorpusInput) -> Iterator[Document]:
    if find_spec("python_calamine") is None:
        raise as_missing_extra(f"Reading {source.name}", ModuleNotFoundError(name="python_calamine"))
    with source.open_seekable() as file:
        rows = _read_rows_in_child(source, file)
        start = next(rows)
        if start["n_sheets"] > 1 and start["has_text"] and source.layout.sheet is None:
            source.notifier.inform(f"{source.name}: the sheet {start['sheet']!r} is read; --sheet overrides this.")
        source = source.adapt_to_header(start["header"])
        header = _validate_sheet_header(source, start["sheet"], start["header"])
        yield from source.merge_rows(_parse_rows(source, rows, header, start["columns"]), header)


def _parse_rows(source: CorpusInput, rows: Iterator[Any], header: list[str], columns: list[int]) -> Iterator[Document]:
    parse_record = source.make_row_parser(header)
    names = [header[column] for column in columns]
    repeated = RepeatedHeader(source, header)
    for number, cells, possible_header in (row for batch in rows for row in batch):
        if possible_header and repeated.matches(possible_header):
            repeated.add(possible_header, number)
            continue
        record = dict(zip(names, cells, strict=True))
        try:
            document = parse_record(record, number)
        except BadRecord as problem:
            source.report_bad_line(number, str(problem), raw=row_to_json(record), unit="row")
        else:
            yield document
    repeated.warn_if_repeated()


def _read_rows_in_child(source: CorpusInput, file: IO[bytes]) -> Iterator[Any]:
    """Run `read_rows` in a child process."""
    n_bytes = file.seek(0, 2)
    file.seek(0)
    request: dict[str, Any] = {"name": source.name, "text": source.fields.text_names, "options": asdict(source.fields)}
    request |= {"sheet": source.layout.sheet, "sheet_hint": source.layout_hint.sheet}
    content = partial(iter, partial(file.read, CHUNK_BYTES), b"")
    try:
        yield from CHILD_POOL.run(
            "xmtc.data.formats.xlsx:read_rows", request, content, TaskLimits.for_file_size(n_bytes)
        )
    except ChildTaskError as problem:
        raise _unreadable_workbook_error(source.name, str(problem)) from None


def _validate_sheet_header(source: CorpusInput, sheet: str, row: list[str]) -> list[str]:
    try:
        return validate_header(row, source)
    except BadRecord as problem:
        raise XmtcError(f"{source.name}, the header of the sheet {sheet!r}: {problem}.") from None


def _unreadable_workbook_error(name: str, reason: str) -> XmtcError:
    return XmtcError(f"{name} cannot be read as a workbook ({reason}); open it in a spreadsheet and save it as .xlsx.")


def read_rows(request: dict[str, Any], content: IO[bytes]) -> Iterator[Any]:
    """Yield a description of the sheet, then batches of rows (task of a child process).

    A row is its number, the cells of the requested columns, and all cells if it may repeat the header, else None. Rows
    of empty cells are skipped.
    """
    workbook = open_workbook(request["name"], content)
    sheet, n_header_rows, header, has_text = _find_sheet_with_header(request, workbook)
    fields = resolve_label_fields(Fields(**request["options"]), header)
    requested = {match_name(header, name) for name in fields.names}
    columns = [column for column, name in enumerate(header) if name in requested]
    start = {"sheet": sheet.name, "n_sheets": len(workbook.sheet_names), "has_text": has_text}
    yield start | {"header": header, "columns": columns}

    header_names = set(fold_cells(header))
    first_number = 1 + (sheet.start or (0, 0))[0]
    batch: list[Any] = []
    n_characters = 0
    for number, row in islice(enumerate(sheet.iter_rows(), first_number), n_header_rows, None):
        if row.count("") == len(row):
            continue
        cells = [cell_to_text(row[column]) for column in columns]
        possible_header = [cell_to_text(cell) for cell in row] if may_repeat_header(row[0], header_names) else None
        batch.append((number, cells, possible_header))
        n_characters += sum(map(len, cells))
        if len(batch) == BATCH_ROWS or n_characters > BATCH_CHARACTERS:
            yield batch
            batch, n_characters = [], 0
    yield batch


def cell_to_text(cell: Any) -> str:
    """Return a cell as displayed text; Excel stores whole numbers as floats."""
    if type(cell) is str:
        return cell
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, (date, time)) else str(cell)


def open_workbook(name: str, content: IO[bytes]) -> Any:
    """Open a workbook with python-calamine. Call this in a child process only."""
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError

    try:
        return CalamineWorkbook.from_filelike(BytesIO(content.read()))
    except PasswordError:
        raise XmtcError(f"{name} is protected by a password; save it without one.") from None
    except (CalamineError, OSError, ValueError) as error:
        raise _unreadable_workbook_error(name, _summarise_error(error)) from None


def _summarise_error(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _find_sheet_with_header(request: dict[str, Any], workbook: Any) -> tuple[Any, int, list[str], bool]:
    """Return the sheet, the number of rows up to and including its header, the header, and if it has the text field.

    Without a header, the first row that is not empty is returned, for the error message."""
    first: tuple[Any, int, list[str]] | None = None
    for name in _list_candidate_sheets(request, workbook):
        sheet = _open_sheet(request["name"], workbook, name)
        for n_rows, row in enumerate(islice(sheet.iter_rows(), MAX_HEADER_ROWS), 1):
            cells = [cell_to_text(cell).strip() for cell in row]
            first = first or (None if is_blank(cells) else (sheet, n_rows, cells))
            if all(match_name(cells, text) for text in request["text"]):
                return sheet, n_rows, cells, True
    if first is None:
        raise XmtcError(f"{request['name']} is empty, expected at least one document; check where it comes from.")
    return *first, False


def _list_candidate_sheets(request: dict[str, Any], workbook: Any) -> list[str]:
    requested = request["sheet"]
    if requested is None:
        return sorted(workbook.sheet_names, key=lambda name: name != request["sheet_hint"])
    sheet = match_name(workbook.sheet_names, requested)
    if sheet is None:
        listed = ", ".join(map(repr, workbook.sheet_names))
        raise XmtcError(f"{request['name']} has no sheet {requested!r}; its sheets are {listed}.")
    return [sheet]


def _open_sheet(name: str, workbook: Any, sheet: str) -> Any:
    from python_calamine import CalamineError

    try:
        return workbook.get_sheet_by_name(sheet)
    except (CalamineError, OSError, ValueError) as error:
        raise _unreadable_workbook_error(name, _summarise_error(error)) from None


XLSX = CorpusFormat("xlsx", read)

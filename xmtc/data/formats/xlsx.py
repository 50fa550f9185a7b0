"""Workbooks of Excel and LibreOffice (.xlsx, .xlsm, .xlsb, .xls, .ods), read with python-calamine (extra `tables`).

One sheet is read: the one that --sheet names, or the first that has the text field in its header. The header is the
first row with that field among the first twenty, so a title may stand above it. Cells are as in CSV: numbers and dates
become text, an empty label cell means no labels, a row of empty cells is no document. The sheet is held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, time
from itertools import islice
from typing import Any

from xmtc.data.document import Document
from xmtc.data.formats import Format
from xmtc.data.formats.parquet import in_json
from xmtc.data.formats.table import RepeatedHeader, checked_header, is_blank
from xmtc.data.records import CELL_SEPARATOR, BadRecord, matching
from xmtc.data.source import Source
from xmtc.errors import XmtcError, missing_extra

HEADER_ROWS = 20  # among which the header is looked for


def read(source: Source) -> Iterator[Document]:
    with source.seekable() as file:
        workbook = _workbook(source, file)
        sheet, begin, header = _sheet_with_header(source, workbook)
    document_of = source.records(CELL_SEPARATOR)
    columns = [(place, name) for place, name in enumerate(header) if name in _wanted(source)]
    repeated = RepeatedHeader(source, header)
    first = 1 + (sheet.start or (0, 0))[0]
    for number, row in islice(enumerate(sheet.iter_rows(), first), begin, None):
        if row.count("") == len(row) or (repeated.begins(row[0]) and repeated.is_in(row, number)):
            continue
        record = {name: as_text(row[place]) for place, name in columns}
        try:
            document = document_of(record, number)
        except BadRecord as problem:
            source.refuse(number, str(problem), raw=in_json(record), unit="row")
        else:
            yield document
    repeated.tell()


def as_text(cell: Any) -> str:
    """A cell as a person reads it; whole numbers, which Excel keeps as fractions, without one."""
    if type(cell) is str:
        return cell
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, (date, time)) else str(cell)


def _wanted(source: Source) -> list[str]:
    fields = source.fields
    return [*fields.text_names, *filter(None, (fields.labels, fields.id)), *fields.keep]


def _workbook(source: Source, file: Any) -> Any:
    try:
        from python_calamine import CalamineError, CalamineWorkbook, PasswordError
    except ImportError as error:
        raise missing_extra(f"Reading {source.name}", error) from None
    try:
        return CalamineWorkbook.from_filelike(file)
    except PasswordError:
        raise XmtcError(f"{source.name} is protected by a password; save it without one.") from None
    except (CalamineError, OSError, ValueError) as error:
        raise _unreadable(source, error) from None


def _unreadable(source: Source, error: Exception) -> XmtcError:
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return XmtcError(
        f"{source.name} cannot be read as a workbook ({reason}); open it in a spreadsheet and save it anew as .xlsx."
    )


def _sheet_with_header(source: Source, workbook: Any) -> tuple[Any, int, list[str]]:
    """The sheet to read, how many rows there are down to its header, and the header."""
    first: tuple[Any, int, list[str]] | None = None  # row that is not empty, to say what it lacks
    for name in _sheet_names(source, workbook):
        sheet = _sheet(source, workbook, name)
        for place, row in enumerate(islice(sheet.iter_rows(), HEADER_ROWS), 1):
            cells = [as_text(cell).strip() for cell in row]
            first = first or (None if is_blank(cells) else (sheet, place, cells))
            if all(matching(cells, text) for text in source.fields.text_names):
                if len(workbook.sheet_names) > 1 and source.layout.sheet is None:
                    source.voice.note(f"{source.name}: the sheet {name!r} is read; --sheet names another.")
                return sheet, place, _header(source, name, cells)
    if first is None:
        raise XmtcError(f"{source.name} is empty, expected at least one document; check where it comes from.")
    sheet, place, cells = first
    return sheet, place, _header(source, sheet.name, cells)


def _header(source: Source, sheet: str, row: list[str]) -> list[str]:
    try:
        return checked_header(row, source)
    except BadRecord as problem:
        raise XmtcError(f"{source.name}, the header of the sheet {sheet!r}: {problem}.") from None


def _sheet_names(source: Source, workbook: Any) -> list[str]:
    chosen = source.layout.sheet
    if chosen is None:
        likely = source.likely.sheet
        return sorted(workbook.sheet_names, key=lambda name: name != likely)
    found = matching(workbook.sheet_names, chosen)
    if found is None:
        listed = ", ".join(map(repr, workbook.sheet_names))
        raise XmtcError(f"{source.name} has no sheet {chosen!r}; its sheets are {listed}.")
    return [found]


def _sheet(source: Source, workbook: Any, name: str) -> Any:
    from python_calamine import CalamineError

    try:
        return workbook.get_sheet_by_name(name)
    except (CalamineError, OSError, ValueError) as error:
        raise _unreadable(source, error) from None


XLSX = Format("xlsx", read)

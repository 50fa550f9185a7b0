"""Predictions as an Excel workbook, written row by row with constant memory.

Texts are string cells, which Excel does not run as formulas; those that look like one keep a quote prefix for editing.
Rows beyond the limit of a sheet go to the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from typing import IO, Any

from xmtc.core.progress import print_to_stderr
from xmtc.errors import XmtcError, as_missing_extra
from xmtc.output.table import Cell, Prediction, PredictionTable, WriteFunction
from xmtc.output.text import is_formula

MAX_EXCEL_ROWS, MAX_EXCEL_COLUMNS, MAX_EXCEL_CHARACTERS = 1_048_576, 16_384, 32_767  # per sheet and cell
MAX_EXCEL_LINKS = 65_530  # per sheet
LINK_PATTERN = re.compile(r"https?://[^\s<>\"'|#]{1,1000}(#[^\s<>\"'|#]*)?", re.ASCII)
MIN_INEXACT_INTEGER = 10**15  # larger integers lose digits in Excel
MAX_MEMORY_BYTES = 2**20  # larger workbooks are buffered in a temporary file
COLUMN_WIDTHS = {str: 30, int: 6, float: 10}  # in characters


@contextmanager
def workbook(stream: IO[bytes], table: PredictionTable, in_memory: bool = False) -> Iterator[WriteFunction]:
    """Yield a function that writes predictions; with `in_memory`, no temporary file is used."""
    try:
        import xlsxwriter
        from xlsxwriter.exceptions import XlsxWriterException
    except ImportError as error:
        raise as_missing_extra("A workbook (.xlsx)", error) from None
    if len(table.columns) > MAX_EXCEL_COLUMNS:
        raise XmtcError(
            f"A workbook has at most {MAX_EXCEL_COLUMNS:,} columns, and this one needs {len(table.columns):,}; use a "
            "smaller -k, or remove --wide."
        )
    with ExitStack() as stack:
        # an unfinished zip archive raises when it is deleted, so it is not written to the stream directly
        buffer = stack.enter_context(SpooledTemporaryFile(0 if in_memory else MAX_MEMORY_BYTES))
        options: dict[str, Any] = {"in_memory": True}
        if not in_memory:
            options = {"constant_memory": True, "tmpdir": stack.enter_context(TemporaryDirectory())}
        book = xlsxwriter.Workbook(buffer, {**options, "use_zip64": True})
        sheets = SheetWriter(book, table)
        yield sheets.write
        try:
            sheets.finish_sheet()
            book.close()
        except XlsxWriterException as error:
            cause = error.args[0]
            raise cause if isinstance(cause, OSError) else error from None  # it wraps disk errors
        buffer.seek(0)
        copyfileobj(buffer, stream)
    sheets.report_changes()


class SheetWriter:
    """Writer of the sheets of a workbook."""

    def __init__(self, book: Any, table: PredictionTable, max_rows: int = MAX_EXCEL_ROWS) -> None:
        self.book, self.table, self.max_rows = book, table, max_rows
        self.header_format, self.formula_format = (
            book.add_format({"bold": True}),
            book.add_format({"quote_prefix": True}),
        )
        self.n_truncated = 0
        self.add_sheet()

    def add_sheet(self) -> None:
        self.sheet = self.book.add_worksheet()
        self.sheet.freeze_panes(1, 0)
        self.n_rows = 1
        self.n_links = 0
        for number, column in enumerate(self.table.columns):
            self.sheet.set_column(number, number, COLUMN_WIDTHS[column.kind])
            self.sheet.write_string(0, number, self.fit_cell_text(column.name), self.header_format)

    def write(self, answers: Iterable[Prediction]) -> None:
        for answer in answers:
            for row in self.table.rows(answer):
                if self.n_rows == self.max_rows:
                    self.finish_sheet()
                    self.add_sheet()
                for column, cell in enumerate(row):
                    self.write_cell(column, cell)
                self.n_rows += 1

    def write_cell(self, column: int, cell: Cell) -> None:
        if isinstance(cell, int) and abs(cell) >= MIN_INEXACT_INTEGER:
            cell = str(cell)
        if isinstance(cell, str) and self.n_links < MAX_EXCEL_LINKS and LINK_PATTERN.fullmatch(cell):
            self.n_links += 1
            self.sheet.write_url(self.n_rows, column, cell, string=cell)
        elif isinstance(cell, str):
            self.sheet.write_string(
                self.n_rows, column, self.fit_cell_text(cell), self.formula_format if is_formula(cell) else None
            )
        elif cell is not None:
            self.sheet.write_number(self.n_rows, column, cell)

    def fit_cell_text(self, text: str) -> str:
        text = text.encode(errors="backslashreplace").decode()  # lone surrogates cannot be encoded
        if len(text) <= MAX_EXCEL_CHARACTERS:
            return text
        self.n_truncated += 1
        return text[: MAX_EXCEL_CHARACTERS - 1] + "…"

    def finish_sheet(self) -> None:
        self.sheet.autofilter(0, 0, self.n_rows - 1, len(self.table.columns) - 1)

    def report_changes(self) -> None:
        """Print how many cells were truncated."""
        if self.n_truncated:
            cells = "1 text is" if self.n_truncated == 1 else f"{self.n_truncated:,} texts are"
            print_to_stderr(
                f"{cells} longer than the {MAX_EXCEL_CHARACTERS:,} characters of a cell and truncated; csv and parquet "
                "have the full text."
            )

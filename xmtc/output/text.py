"""Predictions as JSON Lines, CSV and TSV.

Labels and ids come from untrusted corpora. Control characters are escaped in a terminal. In CSV and TSV, a text that a
spreadsheet would run as a formula gets a leading apostrophe, and the number of such cells is reported; numbers such as
the label -1 are not changed. JSON Lines have the original text.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO

from xmtc.core.progress import print_to_stderr
from xmtc.errors import escape_controls, escape_json_controls
from xmtc.output.table import Cell, Prediction, PredictionTable, WriteFunction, dump_json, format_plain_number

# First characters of formulas; the full-width ones in Chinese and Japanese spreadsheets.
FORMULA_PREFIXES = frozenset("=+-@\t\r\n＝＋－＠")
NUMBER_PATTERN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def is_formula(text: str) -> bool:
    """Return True if a spreadsheet may run a text as a formula."""
    return text[:1] in FORMULA_PREFIXES and NUMBER_PATTERN.fullmatch(text) is None


@contextmanager
def json_lines(stream: IO[bytes], table: PredictionTable) -> Iterator[WriteFunction]:
    def write(answers: Iterable[Prediction]) -> None:
        for answer in answers:
            line = escape_json_controls(dump_json(table.to_record(answer)))
            stream.write(f"{line}\n".encode())

    yield write


@contextmanager
def delimited_rows(
    delimiter: str, stream: IO[bytes], table: PredictionTable, bom: bool = False
) -> Iterator[WriteFunction]:
    """Yield a function that writes CSV or TSV rows after a header; Excel needs the byte order mark for UTF-8."""
    if bom:
        stream.write(codecs.BOM_UTF8)
    rows = RowWriter(stream, delimiter)
    rows.add([column.name for column in table.columns])

    def write(answers: Iterable[Prediction]) -> None:
        for answer in answers:
            for row in table.rows(answer):
                rows.add(row)
        rows.flush()

    yield write
    rows.flush()  # the header, if there are no predictions
    rows.report_changes()


csv_rows, tsv_rows = partial(delimited_rows, ","), partial(delimited_rows, "\t")


class RowWriter:
    """Writer of CSV or TSV rows without formulas."""

    def __init__(self, stream: IO[bytes], delimiter: str) -> None:
        self.stream = stream
        self.text = text = io.StringIO(newline="")  # buffer of a batch
        self.escape_control = escape_controls if stream.isatty() else str
        self.minimal_writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        # csv.writer does not quote a lone carriage return, which csv.reader rejects
        self.quoting_writer = csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
        self.n_formulas = 0

    def add(self, row: list[Cell] | list[str]) -> None:
        cells = [self.escape_cell(cell) for cell in row]
        (self.quoting_writer if "\r" in "".join(cells) else self.minimal_writer).writerow(cells)

    def flush(self) -> None:
        self.stream.write(self.text.getvalue().encode(errors="backslashreplace"))
        self.text.seek(0)
        self.text.truncate()

    def escape_cell(self, cell: Cell) -> str:
        if not isinstance(cell, str):
            return "" if cell is None else format_plain_number(cell)
        if is_formula(cell):
            self.n_formulas += 1
            cell = f"'{cell}"
        return self.escape_control(cell)

    def report_changes(self) -> None:
        """Print how many cells were changed."""
        if self.n_formulas:
            cells = "1 cell starts" if self.n_formulas == 1 else f"{self.n_formulas:,} cells start"
            print_to_stderr(
                f"{cells} like a formula (with =, +, - or @) and got a leading ' so that spreadsheets do not run it; "
                "jsonl, xlsx and parquet have the original text."
            )

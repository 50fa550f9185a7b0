"""Answers as text: JSON Lines, and tables in CSV and TSV.

Names of labels and documents come from a corpus, which may come from anywhere. A terminal gets them with whatever it
would obey escaped. In a table, a text that a spreadsheet would run as a formula gets a ' before it, and how many did is
said; numbers are left alone, the label -1 too. JSON Lines have all of it as it is, so that it is the same when it is
read again."""

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

# What makes a spreadsheet calculate; the wide forms do so in Chinese and Japanese ones.
FORMULA_PREFIXES = frozenset("=+-@\t\r\n＝＋－＠")
NUMBER_PATTERN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def is_formula(text: str) -> bool:
    """Whether a spreadsheet might run a text as a formula."""
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
    """CSV or TSV, with a header. The byte order mark has Excel read it as UTF-8."""
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
    rows.flush()  # the header, where there are no answers
    rows.report_changes()


csv_rows, tsv_rows = partial(delimited_rows, ","), partial(delimited_rows, "\t")


class RowWriter:
    """Rows of a table in text, which no spreadsheet runs anything of."""

    def __init__(self, stream: IO[bytes], delimiter: str) -> None:
        self.stream = stream
        self.text = text = io.StringIO(newline="")  # of a batch, which is encoded at once
        self.escape_control = escape_controls if stream.isatty() else str
        self.minimal_writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        # csv.writer leaves a lone carriage return unquoted, and csv.reader then refuses it
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
        """Say what was changed."""
        if self.n_formulas:
            cells = "1 cell begins" if self.n_formulas == 1 else f"{self.n_formulas:,} cells begin"
            print_to_stderr(
                f"{cells} as a formula does (with =, +, - or @) and got a ' in front, so that no spreadsheet runs it; "
                "jsonl, xlsx and parquet hold the text as it is."
            )

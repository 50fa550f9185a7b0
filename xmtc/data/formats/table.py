"""CSV and TSV with a header, quoted as spreadsheets and pandas do: a cell with a separator, a quote or a line break in
it is written in double quotes, and a quote within those is doubled.

What stands between the cells is told from the header: of comma, semicolon, tab and bar, the one that gives the fields
that are looked for. A first line `sep=;`, as Excel writes it, says so itself. How a cell holds several labels is
described in xmtc/data/records.py. An empty label cell means no labels; a row of empty cells is no document, and a row
that repeats the header, as in the middle of joined files, is none either. A quote that is never closed takes the rest
of the file with it: all of it is then one bad row."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import IO, Any

from xmtc.data.corpus_input import CorpusInput, Line
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.layout import Layout
from xmtc.data.records import CELL_SEPARATOR, BadRecord, Fields, join_labels, match_name, require_field
from xmtc.errors import XmtcError

MAX_CELL_CHARACTERS = 1 << 27  # characters; a quote that is never closed is refused here instead of filling the memory
DELIMITER_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DELIMITER_DECLARATION_PATTERN = re.compile(r'"?sep=(.)"?\s*')  # Excel's first line


def read(source: CorpusInput, default_delimiter: str) -> Iterator[Document]:
    row_lines: list[Line] = []  # of the current row, which may have several
    lines = _copy_lines(row_lines, _skip_declaration(source.read_text_lines(keep_blank=True)))

    csv.field_size_limit(MAX_CELL_CHARACTERS)
    reader = csv.reader(lines, delimiter=detect_delimiter(source, default_delimiter), strict=True)
    header = _read_header(source, reader)
    repeated = RepeatedHeader(source, header)
    document_of = source.make_record_parser(CELL_SEPARATOR)

    while True:
        row_lines.clear()
        try:
            cells = next(reader)
            if is_blank(cells) or (
                repeated.may_start_header(cells[0]) and repeated.count_if_header(cells, row_lines[0].number)
            ):
                continue
            if len(cells) != len(header):
                raise BadRecord(_describe_cell_count(cells, header))
            document = document_of(dict(zip(header, cells, strict=True)), row_lines[0].number)
        except StopIteration:
            break
        except (csv.Error, BadRecord) as problem:
            source.report_bad_line(
                row_lines[0].number, _describe_problem(problem), raw=b"".join(line.raw for line in row_lines)
            )
        else:
            yield document
    repeated.warn_if_repeated()


def detect_delimiter(source: CorpusInput, default_delimiter: str) -> str:
    """What stands between the cells: as it was told, or as the header tells it."""
    if source.layout.delimiter is not None:
        return source.layout.delimiter
    with closing(source.peek()) as lines:
        first = next((line for raw in lines if (line := source.decode_lossy(raw).strip("\r\n")).strip()), "")
    if declared := DELIMITER_DECLARATION_PATTERN.fullmatch(first):
        return declared[1]
    found = sniff_delimiter(first, source.fields, source.layout_hint.delimiter or default_delimiter)
    if found not in (default_delimiter, source.layout_hint.delimiter):
        between = DELIMITER_NAMES.get(found, repr(found))
        source.notifier.inform(f"{source.name} is read with {between} between its cells; --delimiter names another.")
    return found


def detect_layout(source: CorpusInput, default_delimiter: str) -> Layout:
    return replace(source.layout, delimiter=detect_delimiter(source, default_delimiter))


def sniff_delimiter(header: str, fields: Fields, default_delimiter: str) -> str:
    """Of the delimiters, the one that gives most of the fields, or else most cells; the usual one where they tie."""
    wanted = [*fields.text_names, *filter(None, (fields.labels, fields.id))]

    def worth(delimiter: str) -> tuple[int, int, bool]:
        names = split_header(header, delimiter)
        n_found = sum(match_name(names, name) is not None for name in wanted)
        return n_found, len(names), delimiter == default_delimiter

    return max(dict.fromkeys((default_delimiter, *DELIMITER_NAMES)), key=worth)


def split_header(header: str, delimiter: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _skip_declaration(lines: Iterator[Line]) -> Iterator[Line]:
    for line in lines:
        if line.number > 1 or not DELIMITER_DECLARATION_PATTERN.fullmatch(line.text):
            yield line


def _copy_lines(row_lines: list[Line], lines: Iterator[Line]) -> Iterator[str]:
    """The text of the lines; the lines themselves are added to the list, for numbers and error messages."""
    for line in lines:
        row_lines.append(line)
        yield line.text


def _read_header(source: CorpusInput, reader: Iterator[list[str]]) -> list[str]:
    try:
        return validate_header(next((cells for cells in reader if not is_blank(cells)), []), source)
    except (csv.Error, BadRecord) as problem:
        raise XmtcError(f"{source.name}, the header: {_describe_problem(problem)}.") from None


def validate_header(cells: list[str], source: CorpusInput) -> list[str]:
    """The names of the columns; those that are looked for as they are looked for, whatever their capitals."""
    header = [name.strip() for name in cells]
    fields = source.fields
    if not header:
        return header
    for name in fields.text_names:
        require_field(header, name, "text")
    if source.labels_required and fields.labels is not None:
        require_field(header, fields.labels, "labels")
    for name in fields.keep:
        require_field(header, name, "keep")
    for name in filter(None, (*fields.text_names, fields.labels, fields.id, *fields.keep)):
        if header.count(name) > 1:
            raise BadRecord(f"the column {name!r} occurs {header.count(name)} times, expected once; rename the others")
        found = match_name(header, name)
        header = [name if column == found else column for column in header]
    return header


class RepeatedHeader:
    """Rows that repeat the header, where files with headers were joined: counted, and told at the end."""

    def __init__(self, source: CorpusInput, header: list[str]) -> None:
        self.source, self.header = source, header
        self.names = set(map(str.casefold, header))
        self.cells = sorted(map(str.casefold, header))
        self.first_line_number = 0
        self.count = 0

    def may_start_header(self, cell: Any) -> bool:
        """Whether a row whose first cell is this may be a header: a quick look, which every row gets."""
        return isinstance(cell, str) and cell.strip().casefold() in self.names

    def count_if_header(self, cells: list[Any], number: int) -> bool:
        """Whether a row is a header. One in another order is an error: the columns below it would be mistaken."""
        if len(cells) < 2:
            return False
        names = [str(cell).strip().casefold() for cell in cells]
        if sorted(names) != self.cells:
            return False
        if names != list(map(str.casefold, self.header)):
            raise XmtcError(
                f"{self.source.name}, line {number}: a second header has the columns in another order; "
                f"give the joined files one by one, as in xmtc train ONE.csv TWO.csv."
            )
        self.first_line_number = self.first_line_number or number
        self.count += 1
        return True

    def warn_if_repeated(self) -> None:
        if self.count:
            times = "once" if self.count == 1 else f"{self.count:,} times"
            self.source.notifier.warn(
                f"{self.source.name} repeats its header {times}, first in line {self.first_line_number:,}: these rows are no "
                f"documents. Were files joined? They can be given one by one."
            )


def is_blank(cells: list[str]) -> bool:
    return not (cells and cells[0].strip()) and not any(map(str.strip, cells))


def _describe_cell_count(cells: list[str], header: list[str]) -> str:
    sentence = f"this row has {len(cells)} cells, expected {len(header)} as in the header"
    return sentence if len(header) > 1 else f"{sentence}; if it is no table, pass --input-format"


def _describe_problem(problem: Exception) -> str:
    if not isinstance(problem, csv.Error):
        return str(problem)
    reason = str(problem)
    if "unexpected end of data" in reason or "field larger than" in reason:
        return "a quote opened in this row is never closed, expected a closing quote"
    if "new-line character" in reason:
        return "its lines end with a carriage return alone, expected line feeds; convert it with tr '\\r' '\\n'"
    return f"the quotes are not as in CSV ({reason.split(' - ')[0]}), expected quotes around the whole cell"


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions, delimiter: str) -> Iterator[Callable[[Document], None]]:
    text = codecs.getwriter("utf-8")(stream)
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    # csv.writer leaves a lone carriage return unquoted, and csv.reader then refuses it
    quoting_all = csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(["id", "text", "labels"])

    def add(document: Document) -> None:
        row = [document.id, document.text, join_labels(document.labels)]
        (quoting_all if any("\r" in cell for cell in row) else writer).writerow(row)

    yield add


def make_table_format(name: str, delimiter: str) -> CorpusFormat:
    """A table that usually has this delimiter, and is written with it."""
    reader, settled = partial(read, default_delimiter=delimiter), partial(detect_layout, default_delimiter=delimiter)
    return CorpusFormat(name, reader, partial(write, delimiter=delimiter), detect_layout=settled)


CSV = make_table_format("csv", ",")
TSV = make_table_format("tsv", "\t")

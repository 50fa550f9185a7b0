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

from xmtc.data.document import Document
from xmtc.data.formats import Dimensions, Format
from xmtc.data.layout import Layout
from xmtc.data.records import CELL_SEPARATOR, BadRecord, Fields, join_labels, matching, require_field
from xmtc.data.source import Line, Source
from xmtc.errors import XmtcError

LARGEST_CELL = 1 << 27  # characters; a quote that is never closed is refused here instead of filling the memory
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DECLARED = re.compile(r'"?sep=(.)"?\s*')  # Excel's first line


def read(source: Source, usual: str) -> Iterator[Document]:
    row_lines: list[Line] = []  # of the current row, which may have several
    lines = _copied_to(row_lines, _without_declaration(source.lines(keep_blank=True)))

    csv.field_size_limit(LARGEST_CELL)
    reader = csv.reader(lines, delimiter=delimiter_of(source, usual), strict=True)
    header = _read_header(source, reader)
    repeated = RepeatedHeader(source, header)
    document_of = source.records(CELL_SEPARATOR)

    while True:
        row_lines.clear()
        try:
            cells = next(reader)
            if is_blank(cells) or (repeated.begins(cells[0]) and repeated.is_in(cells, row_lines[0].number)):
                continue
            if len(cells) != len(header):
                raise BadRecord(_wrong_number(cells, header))
            document = document_of(dict(zip(header, cells, strict=True)), row_lines[0].number)
        except StopIteration:
            break
        except (csv.Error, BadRecord) as problem:
            source.refuse(row_lines[0].number, _in_words(problem), raw=b"".join(line.raw for line in row_lines))
        else:
            yield document
    repeated.tell()


def delimiter_of(source: Source, usual: str) -> str:
    """What stands between the cells: as it was told, or as the header tells it."""
    if source.layout.delimiter is not None:
        return source.layout.delimiter
    with closing(source.peek()) as lines:
        first = next((line for raw in lines if (line := source.decode(raw).strip("\r\n")).strip()), "")
    if declared := DECLARED.fullmatch(first):
        return declared[1]
    found = sniffed(first, source.fields, source.likely.delimiter or usual)
    if found not in (usual, source.likely.delimiter):
        between = DELIMITERS.get(found, repr(found))
        source.voice.note(f"{source.name} is read with {between} between its cells; --delimiter names another.")
    return found


def layout(source: Source, usual: str) -> Layout:
    return replace(source.layout, delimiter=delimiter_of(source, usual))


def sniffed(header: str, fields: Fields, usual: str) -> str:
    """Of the delimiters, the one that gives most of the fields, or else most cells; the usual one where they tie."""
    wanted = [*fields.text_names, *filter(None, (fields.labels, fields.id))]

    def worth(delimiter: str) -> tuple[int, int, bool]:
        names = header_cells(header, delimiter)
        n_found = sum(matching(names, name) is not None for name in wanted)
        return n_found, len(names), delimiter == usual

    return max(dict.fromkeys((usual, *DELIMITERS)), key=worth)


def header_cells(header: str, delimiter: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _without_declaration(lines: Iterator[Line]) -> Iterator[Line]:
    for line in lines:
        if line.number > 1 or not DECLARED.fullmatch(line.text):
            yield line


def _copied_to(row_lines: list[Line], lines: Iterator[Line]) -> Iterator[str]:
    """The text of the lines; the lines themselves are added to the list, for numbers and error messages."""
    for line in lines:
        row_lines.append(line)
        yield line.text


def _read_header(source: Source, reader: Iterator[list[str]]) -> list[str]:
    try:
        return checked_header(next((cells for cells in reader if not is_blank(cells)), []), source)
    except (csv.Error, BadRecord) as problem:
        raise XmtcError(f"{source.name}, the header: {_in_words(problem)}.") from None


def checked_header(cells: list[str], source: Source) -> list[str]:
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
        found = matching(header, name)
        header = [name if column == found else column for column in header]
    return header


class RepeatedHeader:
    """Rows that repeat the header, where files with headers were joined: counted, and told at the end."""

    def __init__(self, source: Source, header: list[str]) -> None:
        self.source, self.header = source, header
        self.names = set(map(str.casefold, header))
        self.cells = sorted(map(str.casefold, header))
        self.first = 0
        self.count = 0

    def begins(self, cell: Any) -> bool:
        """Whether a row whose first cell is this may be a header: a quick look, which every row gets."""
        return isinstance(cell, str) and cell.strip().casefold() in self.names

    def is_in(self, cells: list[Any], number: int) -> bool:
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
        self.first = self.first or number
        self.count += 1
        return True

    def tell(self) -> None:
        if self.count:
            times = "once" if self.count == 1 else f"{self.count:,} times"
            self.source.voice.suspect(
                f"{self.source.name} repeats its header {times}, first in line {self.first:,}: these rows are no "
                f"documents. Were files joined? They can be given one by one."
            )


def is_blank(cells: list[str]) -> bool:
    return not (cells and cells[0].strip()) and not any(map(str.strip, cells))


def _wrong_number(cells: list[str], header: list[str]) -> str:
    sentence = f"this row has {len(cells)} cells, expected {len(header)} as in the header"
    return sentence if len(header) > 1 else f"{sentence}; if it is no table, pass --input-format"


def _in_words(problem: Exception) -> str:
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


def format_with(name: str, delimiter: str) -> Format:
    """A table that usually has this delimiter, and is written with it."""
    reader, settled = partial(read, usual=delimiter), partial(layout, usual=delimiter)
    return Format(name, reader, partial(write, delimiter=delimiter), layout=settled)


CSV = format_with("csv", ",")
TSV = format_with("tsv", "\t")

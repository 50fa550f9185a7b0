"""CSV and TSV with a header, quoted as spreadsheets and pandas do: a cell with a separator, a quote or a line break in
it is written in double quotes, and a quote within those is doubled.

How a cell holds several labels is described in xmtc/data/records.py. An empty label cell means no labels. A quote that
is never closed takes the rest of the file with it: all of it is then one bad row."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO

from xmtc.data.document import Document
from xmtc.data.formats import Dimensions, Format
from xmtc.data.records import CELL_SEPARATOR, BadRecord, Fields, join_labels, record_parser, require_field
from xmtc.data.source import Line, Source
from xmtc.errors import XmtcError

LARGEST_CELL = 1 << 27  # characters; a quote that is never closed is refused here instead of filling the memory


def read(source: Source, delimiter: str) -> Iterator[Document]:
    row_lines: list[Line] = []  # of the current row, which may have several
    lines = _copied_to(row_lines, source.lines(keep_blank=True))

    csv.field_size_limit(LARGEST_CELL)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header = _read_header(source, reader)
    document_of = record_parser(source.fields, source.labels_required, source.fields.separator or CELL_SEPARATOR)

    while True:
        row_lines.clear()
        try:
            cells = next(reader)
            if _is_blank(cells, header):
                continue
            if len(cells) != len(header):
                raise BadRecord(f"this row has {len(cells)} cells, expected {len(header)} as in the header")
            document = document_of(dict(zip(header, cells, strict=True)), row_lines[0].number)
        except StopIteration:
            return
        except (csv.Error, BadRecord) as problem:
            source.refuse(row_lines[0].number, _in_words(problem), raw=b"".join(line.raw for line in row_lines))
        else:
            yield document


def _copied_to(row_lines: list[Line], lines: Iterator[Line]) -> Iterator[str]:
    """The text of the lines; the lines themselves are added to the list, for numbers and error messages."""
    for line in lines:
        row_lines.append(line)
        yield line.text


def _read_header(source: Source, reader: Iterator[list[str]]) -> list[str]:
    try:
        header = [name.strip() for name in next((cells for cells in reader if cells), [])]
        if header:
            _check_header(header, source.fields, source.labels_required)
    except (csv.Error, BadRecord) as problem:
        raise XmtcError(f"{source.name}, the header: {_in_words(problem)}.") from None
    return header


def _check_header(header: list[str], fields: Fields, labels_required: bool) -> None:
    for name in fields.text_names:
        require_field(header, name, "text")
    if labels_required and fields.labels is not None:
        require_field(header, fields.labels, "labels")
    for name in fields.keep:
        require_field(header, name, "keep")
    for name in filter(None, (*fields.text_names, fields.labels, fields.id, *fields.keep)):
        if header.count(name) > 1:
            raise BadRecord(f"the column {name!r} occurs {header.count(name)} times, expected once; rename the others")


def _is_blank(cells: list[str], header: list[str]) -> bool:
    return not cells or (len(cells) == 1 < len(header) and not cells[0].strip())


def _in_words(problem: Exception) -> str:
    if not isinstance(problem, csv.Error):
        return str(problem)
    reason = str(problem)
    if "unexpected end of data" in reason or "field larger than" in reason:
        return "a quote opened in this row is never closed, expected a closing quote"
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


CSV = Format("csv", partial(read, delimiter=","), partial(write, delimiter=","))
TSV = Format("tsv", partial(read, delimiter="\t"), partial(write, delimiter="\t"))

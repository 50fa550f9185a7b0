"""CSV and TSV files with a header, quoted as spreadsheets and pandas do.

A cell with a delimiter, a quote or a line break is in double quotes, and quotes within it are doubled. The delimiter is
detected from the header: of comma, semicolon, tab and bar, the one that yields most of the fields. A first line
`sep=;`, as Excel writes it, declares the delimiter. xmtc/data/records.py describes cells with several labels. An empty
label cell means no labels. Rows of empty cells, and rows that repeat the header (in joined files), are skipped. If a
quote is never closed, the rest of the file is one bad row."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import IO, Any

from xmtc.data.corpus_input import CorpusInput, Line
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.layout import Layout
from xmtc.data.records import BadRecord, Fields, join_labels, match_name
from xmtc.data.row_layouts import is_long, is_wide, unescape_formula
from xmtc.errors import XmtcError

MAX_CELL_CHARACTERS = 1 << 27  # limits the memory that a quote which is never closed takes
DELIMITER_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DELIMITER_DECLARATION_PATTERN = re.compile(r'"?sep=(.)"?\s*')  # Excel's first line


def read(source: CorpusInput, default_delimiter: str) -> Iterator[Document]:
    row_lines: list[Line] = []  # lines of the current row
    lines = _copy_lines(row_lines, _skip_declaration(source.read_text_lines(keep_blank=True)))

    csv.field_size_limit(MAX_CELL_CHARACTERS)
    reader = csv.reader(lines, delimiter=detect_delimiter(source, default_delimiter), strict=True)
    columns = _read_header(source, reader)
    source = source.adapt_to_header(columns)
    header = _validate(source, columns)
    yield from source.merge_rows(_read_rows(source, reader, header, row_lines), header)


def _read_rows(
    source: CorpusInput, reader: Iterator[list[str]], header: list[str], row_lines: list[Line]
) -> Iterator[Document]:
    repeated = RepeatedHeader(source, header)
    parse_record = source.make_row_parser(header)
    should_unescape = is_wide(header) or is_long(header)

    while True:
        row_lines.clear()
        try:
            cells = next(reader)
            if is_blank(cells):
                continue
            if repeated.matches(cells):
                repeated.add(cells, row_lines[0].number)
                continue
            if len(cells) != len(header):
                raise BadRecord(_describe_cell_count(cells, header))
            if should_unescape:
                cells = [unescape_formula(cell) for cell in cells]
            document = parse_record(dict(zip(header, cells, strict=True)), row_lines[0].number)
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
    """Return the delimiter: the user's, the declared one, or the one that fits the header best."""
    if source.layout.delimiter is not None:
        return source.layout.delimiter
    with closing(source.peek()) as lines:
        first = next((line for raw in lines if (line := source.decode_lossy(raw).strip("\r\n")).strip()), "")
    if declared := DELIMITER_DECLARATION_PATTERN.fullmatch(first):
        return declared[1]
    delimiter = sniff_delimiter(first, source.fields, source.layout_hint.delimiter or default_delimiter)
    if delimiter not in (default_delimiter, source.layout_hint.delimiter):
        name = DELIMITER_NAMES.get(delimiter, repr(delimiter))
        source.notifier.inform(f"{source.name} is read with {name} between its cells; --delimiter overrides this.")
    return delimiter


def detect_layout(source: CorpusInput, default_delimiter: str) -> Layout:
    return replace(source.layout, delimiter=detect_delimiter(source, default_delimiter))


def sniff_delimiter(header: str, fields: Fields, default_delimiter: str) -> str:
    """Return the delimiter that yields most of the fields, then most cells; the default one breaks ties."""

    def score(delimiter: str) -> tuple[int, int, bool]:
        columns = split_header(header, delimiter)
        n_fields = sum(match_name(columns, name) is not None for name in fields.names)
        return n_fields, len(columns), delimiter == default_delimiter

    return max(dict.fromkeys((default_delimiter, *DELIMITER_NAMES)), key=score)


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
    """Yield the text of the lines and append the lines to row_lines, for numbers and error messages."""
    for line in lines:
        row_lines.append(line)
        yield line.text


def _read_header(source: CorpusInput, reader: Iterator[list[str]]) -> list[str]:
    try:
        return [name.strip() for name in next((cells for cells in reader if not is_blank(cells)), [])]
    except csv.Error as problem:
        raise XmtcError(f"{source.name}, the header: {_describe_problem(problem)}.") from None


def _validate(source: CorpusInput, header: list[str]) -> list[str]:
    try:
        return validate_header(header, source)
    except BadRecord as problem:
        raise XmtcError(f"{source.name}, the header: {problem}.") from None


def validate_header(cells: list[str], source: CorpusInput) -> list[str]:
    """Return the column names with the spelling of `Fields`; raise BadRecord if a field is missing or repeated."""
    header = [name.strip() for name in cells]
    if not header:
        return header
    check_predictions(header, source)
    source.fields.check_columns(header, source.labels_required)
    for name in source.fields.names:
        if header.count(name) > 1:
            raise BadRecord(f"the column {name!r} occurs {header.count(name)} times, expected once; rename the others")
        matched = match_name(header, name)
        header = [name if column == matched else column for column in header]
    return header


def check_predictions(header: list[str], source: CorpusInput) -> None:
    """Raise BadRecord for predictions without texts."""
    if (
        (is_wide(header) or is_long(header))
        and source.fields.text == Fields.text
        and match_name(header, "text") is None
    ):
        raise BadRecord(
            "these predictions have no column 'text'; write them with `xmtc predict … --keep text`, or name the column "
            "of the texts with --text"
        )


def fold_cells(cells: Iterable[Any]) -> list[str]:
    """Return cells in a form that ignores case and surrounding white space."""
    return [str(cell).strip().casefold() for cell in cells]


def may_repeat_header(first_cell: Any, header_names: Collection[str]) -> bool:
    """Return False quickly for most rows that do not repeat the header, whose names are folded."""
    return isinstance(first_cell, str) and first_cell.strip().casefold() in header_names


class RepeatedHeader:
    """Counter of rows that repeat the header, as in concatenated files."""

    def __init__(self, source: CorpusInput, header: list[str]) -> None:
        self.source = source
        self.names = fold_cells(header)
        self.sorted_names = sorted(self.names)
        self.distinct_names = frozenset(self.names)
        self.first_line_number = 0
        self.count = 0

    def matches(self, cells: list[Any]) -> bool:
        """Return True if a row has the names of the header, in any order."""
        if not may_repeat_header(cells[0], self.distinct_names) or len(cells) < 2:
            return False
        return sorted(fold_cells(cells)) == self.sorted_names

    def add(self, cells: list[Any], number: int) -> None:
        """Count a row that matches; raise XmtcError if its order differs, because the rows below it then differ."""
        if fold_cells(cells) != self.names:
            raise XmtcError(
                f"{self.source.name}, line {number}: a second header has the columns in another order; "
                f"pass the joined files separately, as in xmtc train ONE.csv TWO.csv."
            )
        self.first_line_number = self.first_line_number or number
        self.count += 1

    def warn_if_repeated(self) -> None:
        if self.count:
            times = "once" if self.count == 1 else f"{self.count:,} times"
            self.source.notifier.warn(
                f"{self.source.name} repeats its header {times}, first in line {self.first_line_number:,}; these rows "
                f"are skipped. If files were joined, pass them separately."
            )


def is_blank(cells: list[str]) -> bool:
    return not (cells and cells[0].strip()) and not any(map(str.strip, cells))


def _describe_cell_count(cells: list[str], header: list[str]) -> str:
    problem = f"this row has {len(cells)} cells, expected {len(header)} as in the header"
    return problem if len(header) > 1 else f"{problem}; if the file is not a table, pass --input-format"


def _describe_problem(problem: Exception) -> str:
    if not isinstance(problem, csv.Error):
        return str(problem)
    reason = str(problem)
    if "unexpected end of data" in reason or "field larger than" in reason:
        return "a quote opened in this row is never closed, expected a closing quote"
    if "new-line character" in reason:
        return "its lines end with carriage returns, expected line feeds; convert it with tr '\\r' '\\n'"
    return f"the quotes are not valid CSV ({reason.split(' - ')[0]}), expected quotes around the whole cell"


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions, delimiter: str) -> Iterator[Callable[[Document], None]]:
    text = codecs.getwriter("utf-8")(stream)
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    # csv.writer does not quote a lone carriage return, which csv.reader then refuses
    quoting_all = csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(["id", "text", "labels"])

    def add(document: Document) -> None:
        row = [document.id, document.text, join_labels(document.labels)]
        (quoting_all if any("\r" in cell for cell in row) else writer).writerow(row)

    yield add


def make_table_format(name: str, delimiter: str) -> CorpusFormat:
    """Return a table format with a default delimiter."""
    return CorpusFormat(
        name,
        partial(read, default_delimiter=delimiter),
        partial(write, delimiter=delimiter),
        detect_layout=partial(detect_layout, default_delimiter=delimiter),
    )


CSV = make_table_format("csv", ",")
TSV = make_table_format("tsv", "\t")

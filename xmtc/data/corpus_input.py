"""The input of a format reader: numbered lines, field names, and the handling of bad lines."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, NamedTuple, NoReturn

from xmtc.core import child_worker
from xmtc.data.document import Document, LineNumber
from xmtc.data.encodings import UTF8, Encoding, describe_invalid_byte
from xmtc.data.file_prefetch import discard_prefetched
from xmtc.data.file_streams import STANDARD_STREAM, display_name, open_binary, read_lines
from xmtc.data.layout import Layout, Notifier
from xmtc.data.records import CELL_SEPARATOR, BadRecord, Fields, RecordParser, match_name
from xmtc.data.row_layouts import has_one_label_per_cell, is_long, merge_rows, resolve_label_fields
from xmtc.errors import XmtcError


class BadLine(XmtcError):
    """A line (row, file) that is not a valid document."""

    def __init__(self, name: str, location: int | str, reason: str, raw: bytes, unit: str = "line") -> None:
        super().__init__(f"{name}, {unit} {location}: {reason}; fix it, or skip such lines with --on-error skip.")
        self.name = name
        self.location = location  # number of the line or row, or name of the file
        self.unit = unit
        self.reason = reason
        self.raw = raw


class Line(NamedTuple):
    """A line with its number from 1."""

    number: int
    text: str  # with the line ending, which belongs to the text within a quoted cell of a table
    raw: bytes


class Pipe:
    """Lines of standard input or a named pipe; the first lines can be peeked at, all lines can be read once."""

    def __init__(self, path: str, encoding: str | None = None) -> None:
        self.name = display_name(path)
        self.initial_bytes = b""
        self.lines = read_lines(path, encoding=encoding, on_first_bytes=self.set_initial_bytes)
        self.head: list[bytes] = []
        self.is_consumed = False

    def peek(self) -> Generator[bytes]:
        """Yield the lines from the first on without consuming them."""
        yield from self.head
        for line in self.lines:
            self.head.append(line)
            yield line

    def peek_head(self) -> bytes:
        """Return the complete lines that have arrived, without consuming them.

        It waits for the first line only: the writer may expect an answer before it sends the next."""
        if not self.head:
            with closing(self.peek()) as lines:
                next(lines, b"")
        n_complete = self.initial_bytes.rfind(b"\n") + 1
        return self.initial_bytes[:n_complete] or self.initial_bytes

    def set_initial_bytes(self, content: bytes) -> None:
        self.initial_bytes = content

    def __iter__(self) -> Iterator[bytes]:
        if self.is_consumed:
            raise XmtcError(f"{self.name} can be read only once, and this needs it twice; save it to a file first.")
        self.is_consumed = True
        yield from self.head
        yield from self.lines


def as_pipe(path: str, encoding: str | None = None) -> Pipe | None:
    """Return the pipe at a path; None for files and folders, which can be read repeatedly."""
    is_pipe = path == STANDARD_STREAM or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))
    return Pipe(path, encoding) if is_pipe else None


def raise_bad_line(bad_line: BadLine) -> NoReturn:
    """Raise a bad line as an error (the default handling)."""
    raise bad_line


@dataclass
class CorpusInput:
    """Input of one pass over one file or folder."""

    path: str
    fields: Fields = field(default_factory=Fields)
    labels_required: bool = True
    on_bad_line: Callable[[BadLine], None] = raise_bad_line  # raises the line, or stores it and returns
    pipe: Pipe | None = None
    on_read: Callable[[int], None] | None = None  # called with the number of bytes read from the file
    n_lines: int = 0  # lines read so far, including bad lines
    encoding: str | None = None  # None: UTF-8, or UTF-16 with a byte order mark
    layout: Layout = field(default_factory=Layout)  # settings of the user
    layout_hint: Layout = field(default_factory=Layout)  # layout of the corpus that the model was trained on
    notifier: Notifier = field(default_factory=Notifier)
    should_skip_bad_files: bool = False  # in a folder without labels, unless bad lines are collected
    id_prefix: str = ""  # distinguishes line numbers as ids if several files are read

    @property
    def name(self) -> str:
        """The path as shown in messages."""
        return display_name(self.path)

    @property
    def should_read_labels(self) -> bool:
        return self.fields.labels is not None

    def report_bad_line(self, location: int | str, reason: str, raw: bytes, unit: str = "line") -> None:
        """Pass a bad line to `on_bad_line`, which raises or stores it."""
        self.on_bad_line(BadLine(self.name, location=location, reason=reason, raw=raw, unit=unit))

    @property
    def line_encoding(self) -> str:
        """The encoding of the bytes of a line; `read_lines` converts UTF-16 and UTF-32 to UTF-8."""
        return UTF8 if self.encoding is None or Encoding(self.encoding).is_wide else self.encoding

    def decode_lossy(self, raw: bytes) -> str:
        """Decode a line for format detection; invalid bytes are replaced."""
        return raw.decode(self.line_encoding, errors="replace")

    def make_id(self, number: int) -> str:
        """Return the id of a document that has only a line number."""
        return LineNumber(f"{self.id_prefix}{number}")

    def make_record_parser(self, separator: str | None) -> RecordParser:
        """Return a parser from records to documents; `Fields.separator` overrides the separator."""
        return RecordParser(self.fields, self.labels_required, self.fields.separator or separator, self.make_id)

    def adapt_to_header(self, header: Sequence[str]) -> CorpusInput:
        """Return the input with the label columns of a table of predictions."""
        return replace(self, fields=resolve_label_fields(self.fields, header))

    def make_row_parser(self, header: Sequence[str]) -> RecordParser:
        """Return a parser of the rows of a table."""
        parser = self.make_record_parser(CELL_SEPARATOR)
        parser.has_one_label_per_cell = self.fields.separator is None and has_one_label_per_cell(self.fields, header)
        return parser

    def merge_rows(self, documents: Iterator[Document], header: Sequence[str]) -> Iterator[Document]:
        """Join adjacent rows of one document, if the table has ids and labels are read or there is a row per label."""
        has_ids = match_name(header, self.fields.id) is not None
        if has_ids and (self.should_read_labels or is_long(header)):
            return merge_rows(documents, self.name, self.notifier)
        return documents

    def read_raw_lines(self) -> Iterator[bytes]:
        discard_prefetched(self.path)
        return iter(read_lines(self.path, self.on_read, self.encoding) if self.pipe is None else self.pipe)

    def peek(self) -> Generator[bytes]:
        """Yield the raw lines from the first on without consuming them."""
        return read_lines(self.path, encoding=self.encoding) if self.pipe is None else self.pipe.peek()

    def read_text_lines(self, keep_blank: bool = False) -> Iterator[Line]:
        """Yield the decoded lines; lines of white space are skipped unless keep_blank."""
        return self.decode_text_lines(self.read_raw_lines(), keep_blank=keep_blank)

    def decode_text_lines(
        self, lines: Iterable[bytes], first_number: int = 1, keep_blank: bool = False
    ) -> Iterator[Line]:
        """Decode lines and number them from first_number."""
        encoding = self.line_encoding
        for number, raw in enumerate(lines, first_number):
            self.n_lines = number
            try:
                text = raw.decode(encoding)
            except UnicodeDecodeError as error:
                problem = describe_invalid_byte(error, encoding, f" at position {error.start + 1}")
                self.report_bad_line(number, f"{problem}, or the encoding of the file as --encoding", raw)
                continue

            if keep_blank or (text and not text.isspace()):
                yield Line(number, text, raw)

    def parse_documents(self, lines: Iterable[Line], parse: Callable[[str, int], Document]) -> Iterator[Document]:
        """Yield the document of each line; `parse` takes the line and its number, and may raise BadRecord."""
        for number, text, raw in lines:
            try:
                document = parse(text.rstrip("\r\n"), number)
            except BadRecord as problem:
                self.report_bad_line(number, str(problem), raw)
            else:
                yield document

    @contextmanager
    def open_seekable(self) -> Iterator[IO[bytes]]:
        """Yield a seekable file: the file itself, or a temporary copy if it is compressed or a pipe.

        A child process may not write files, and holds the copy in memory."""
        if self.pipe is None:
            with open_binary(self.path, self.on_read) as stream:
                if isinstance(stream.raw, io.FileIO) and stream.seekable():
                    yield stream
                    return

        with io.BytesIO() if child_worker.is_child else tempfile.TemporaryFile() as copy:
            copy.writelines(self.read_raw_lines())
            copy.seek(0)
            yield copy

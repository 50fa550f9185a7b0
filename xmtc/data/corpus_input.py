"""What a reader reads from: numbered lines, the names of the fields, and what happens to a bad line."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import IO, NamedTuple, NoReturn

from xmtc.core import child_worker
from xmtc.data.document import Document
from xmtc.data.encodings import UTF8, Encoding
from xmtc.data.file_prefetch import discard_prefetched
from xmtc.data.file_streams import STANDARD_STREAM, display_name, open_binary, read_lines
from xmtc.data.layout import Layout, Notifier
from xmtc.data.records import BadRecord, Fields, RecordParser
from xmtc.errors import XmtcError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class BadLine(XmtcError):
    """A line (row, file) that is no document: its location in the corpus, and its bytes."""

    def __init__(self, name: str, location: int | str, reason: str, raw: bytes, unit: str = "line") -> None:
        super().__init__(f"{name}, {unit} {location}: {reason}; fix it, or set such lines aside with --on-error skip.")
        self.name = name
        self.location = location  # number of the line or row, or name of the file
        self.unit = unit
        self.reason = reason
        self.raw = raw


class Line(NamedTuple):
    number: int
    text: str  # with its line ending: within a quoted cell of a table it is part of the text
    raw: bytes


class Pipe:
    """The lines of standard input or a named pipe: the first ones can be peeked at, all can be read once."""

    def __init__(self, path: str, encoding: str | None = None) -> None:
        self.name = display_name(path)
        self.initial_bytes = b""
        self.lines = read_lines(path, encoding=encoding, on_first_bytes=self.set_initial_bytes)
        self.head: list[bytes] = []
        self.is_consumed = False

    def peek(self) -> Generator[bytes]:
        """The lines from the first on; they can still be read."""
        yield from self.head
        for line in self.lines:
            self.head.append(line)
            yield line

    def peek_head(self) -> bytes:
        """The first lines, as many as have arrived: whoever writes them may wait for an answer before the next. They
        can still be read."""
        if not self.head:
            with closing(self.peek()) as lines:
                next(lines, b"")
        whole = self.initial_bytes.rfind(b"\n") + 1
        return self.initial_bytes[:whole] or self.initial_bytes

    def set_initial_bytes(self, content: bytes) -> None:
        self.initial_bytes = content

    def __iter__(self) -> Iterator[bytes]:
        if self.is_consumed:
            raise XmtcError(f"{self.name} can be read only once, and this needs it twice; save it to a file first.")
        self.is_consumed = True
        yield from self.head
        yield from self.lines


def as_pipe(path: str, encoding: str | None = None) -> Pipe | None:
    """The pipe if the path is one, None for files and folders, which can be read again."""
    is_pipe = path == STANDARD_STREAM or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))
    return Pipe(path, encoding) if is_pipe else None


def raise_bad_line(bad: BadLine) -> NoReturn:
    """Raise the error: what happens to a bad line by default."""
    raise bad


def describe_decode_error(raw: bytes, error: UnicodeDecodeError, encoding: str) -> str:
    """What is wrong with a line that is not in its encoding."""
    name = encoding.upper() if encoding == UTF8 else encoding
    found = f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is no {name}"
    return f"{found}, expected {name} text, or the encoding of the file as --encoding"


@dataclass
class CorpusInput:
    """One pass over a corpus."""

    path: str
    fields: Fields = field(default_factory=Fields)
    labels_required: bool = True
    on_bad_line: Callable[[BadLine], None] = raise_bad_line  # raises, or keeps the line and returns
    pipe: Pipe | None = None
    on_read: Callable[[int], None] | None = None  # called with the number of bytes read from the file
    n_lines: int = 0  # lines read so far, bad ones included
    encoding: str | None = None  # of its text; None: UTF-8, or UTF-16 with a byte order mark
    layout: Layout = field(default_factory=Layout)  # as it was told
    layout_hint: Layout = field(default_factory=Layout)  # as that of the corpus which the model was trained on
    notifier: Notifier = field(default_factory=Notifier)
    id_prefix: str = ""  # of ids that are line numbers, where several files are read

    @property
    def name(self) -> str:
        """The path, as error messages name it."""
        return display_name(self.path)

    @property
    def should_read_labels(self) -> bool:
        """Whether labels are read; those of documents to be tagged are not."""
        return self.fields.labels is not None

    def report_bad_line(self, location: int | str, reason: str, raw: bytes, unit: str = "line") -> None:
        """Raise a bad line as an error, or skip it, as `reject` does."""
        self.on_bad_line(BadLine(self.name, location=location, reason=reason, raw=raw, unit=unit))

    @property
    def line_encoding(self) -> str:
        """The encoding of a line by itself; UTF-16 is UTF-8 by then."""
        return UTF8 if self.encoding is None or Encoding(self.encoding).is_wide else self.encoding

    def decode_lossy(self, raw: bytes) -> str:
        """A line, for a first look."""
        return raw.removeprefix(BYTE_ORDER_MARK).decode(self.line_encoding, errors="replace")

    def make_id(self, number: int) -> str:
        """The id of a document that has none but its number."""
        return f"{self.id_prefix}{number}"

    def make_record_parser(self, separator: str | None) -> RecordParser:
        """What makes documents of records; labels in one string have the separator between them, unless another was
        named."""
        return RecordParser(self.fields, self.labels_required, self.fields.separator or separator, self.make_id)

    def read_raw_lines(self) -> Iterator[bytes]:
        discard_prefetched(self.path)
        return iter(read_lines(self.path, self.on_read, self.encoding) if self.pipe is None else self.pipe)

    def peek(self) -> Generator[bytes]:
        """The raw lines from the first on; they can still be read."""
        return read_lines(self.path, encoding=self.encoding) if self.pipe is None else self.pipe.peek()

    def read_text_lines(self, keep_blank: bool = False) -> Iterator[Line]:
        """The lines as text; those of white space alone are skipped, unless keep_blank."""
        return self.decode_text_lines(self.read_raw_lines(), keep_blank=keep_blank)

    def decode_text_lines(
        self, lines: Iterable[bytes], first_number: int = 1, keep_blank: bool = False
    ) -> Iterator[Line]:
        """Some lines as text, of which the first has this number."""
        encoding = self.line_encoding
        for number, raw in enumerate(lines, first_number):
            self.n_lines = number
            if number == 1:
                raw = raw.removeprefix(BYTE_ORDER_MARK)

            try:
                text = raw.decode(encoding)
            except UnicodeDecodeError as error:
                self.report_bad_line(number, describe_decode_error(raw, error, encoding), raw)
                continue

            if keep_blank or not text.isspace():
                yield Line(number, text, raw)

    def parse_documents(self, lines: Iterable[Line], parse: Callable[[str, int], Document]) -> Iterator[Document]:
        """The documents of a format with one document per line; parse gets the line and its number."""
        for number, text, raw in lines:
            try:
                document = parse(text.rstrip("\r\n"), number)
            except BadRecord as problem:
                self.report_bad_line(number, str(problem), raw)
            else:
                yield document

    @contextmanager
    def open_seekable(self) -> Iterator[IO[bytes]]:
        """Yield the bytes as a seekable file: the file itself, or a temporary copy if it is compressed or a pipe.

        A child process, which may write no file, holds the copy in memory.
        """
        if self.pipe is None:
            with open_binary(self.path, self.on_read) as stream:
                if isinstance(stream.raw, io.FileIO) and stream.seekable():
                    yield stream
                    return

        with io.BytesIO() if child_worker.is_child else tempfile.TemporaryFile() as copy:
            copy.writelines(self.read_raw_lines())
            copy.seek(0)
            yield copy

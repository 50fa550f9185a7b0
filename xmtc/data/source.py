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
from xmtc.data.fetching import drop
from xmtc.data.file_streams import STANDARD_STREAM, display_name, open_binary, read_lines
from xmtc.data.layout import Layout, Voice
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
        self.arrived = b""
        self.lines = read_lines(path, encoding=encoding, on_arrival=self.arrive)
        self.head: list[bytes] = []
        self.is_spent = False

    def peek(self) -> Generator[bytes]:
        """The lines from the first on; they can still be read."""
        yield from self.head
        for line in self.lines:
            self.head.append(line)
            yield line

    def begin(self) -> bytes:
        """The first lines, as many as have arrived: whoever writes them may wait for an answer before the next. They
        can still be read."""
        if not self.head:
            with closing(self.peek()) as lines:
                next(lines, b"")
        whole = self.arrived.rfind(b"\n") + 1
        return self.arrived[:whole] or self.arrived

    def arrive(self, content: bytes) -> None:
        self.arrived = content

    def __iter__(self) -> Iterator[bytes]:
        if self.is_spent:
            raise XmtcError(f"{self.name} can be read only once, and this needs it twice; save it to a file first.")
        self.is_spent = True
        yield from self.head
        yield from self.lines


def pipe_of(path: str, encoding: str | None = None) -> Pipe | None:
    """The pipe if the path is one, None for files and folders, which can be read again."""
    is_pipe = path == STANDARD_STREAM or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))
    return Pipe(path, encoding) if is_pipe else None


def stop(bad: BadLine) -> NoReturn:
    """Raise the error: what happens to a bad line by default."""
    raise bad


def undecodable(raw: bytes, error: UnicodeDecodeError, encoding: str) -> str:
    """What is wrong with a line that is not in its encoding."""
    name = encoding.upper() if encoding == UTF8 else encoding
    found = f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is no {name}"
    return f"{found}, expected {name} text, or the encoding of the file as --encoding"


@dataclass
class Source:
    """One pass over a corpus."""

    path: str
    fields: Fields = field(default_factory=Fields)
    labels_required: bool = True
    reject: Callable[[BadLine], None] = stop  # raises, or keeps the line and returns
    pipe: Pipe | None = None
    on_read: Callable[[int], None] | None = None  # called with the number of bytes read from the file
    n_lines: int = 0  # lines read so far, bad ones included
    encoding: str | None = None  # of its text; None: UTF-8, or UTF-16 with a byte order mark
    layout: Layout = field(default_factory=Layout)  # as it was told
    likely: Layout = field(default_factory=Layout)  # as that of the corpus which the model was trained on
    voice: Voice = field(default_factory=Voice)
    prefix: str = ""  # of ids that are line numbers, where several files are read

    @property
    def name(self) -> str:
        """The path, as error messages name it."""
        return display_name(self.path)

    @property
    def reads_labels(self) -> bool:
        """Whether labels are read; those of documents to be tagged are not."""
        return self.fields.labels is not None

    def refuse(self, location: int | str, reason: str, raw: bytes, unit: str = "line") -> None:
        """Raise a bad line as an error, or skip it, as `reject` does."""
        self.reject(BadLine(self.name, location=location, reason=reason, raw=raw, unit=unit))

    @property
    def line_encoding(self) -> str:
        """The encoding of a line by itself; UTF-16 is UTF-8 by then."""
        return UTF8 if self.encoding is None or Encoding(self.encoding).is_wide else self.encoding

    def decode(self, raw: bytes) -> str:
        """A line, for a first look."""
        return raw.removeprefix(BYTE_ORDER_MARK).decode(self.line_encoding, errors="replace")

    def id_of(self, number: int) -> str:
        """The id of a document that has none but its number."""
        return f"{self.prefix}{number}"

    def records(self, separator: str | None) -> RecordParser:
        """What makes documents of records; labels in one string have the separator between them, unless another was
        named."""
        return RecordParser(self.fields, self.labels_required, self.fields.separator or separator, self.id_of)

    def raw_lines(self) -> Iterator[bytes]:
        drop(self.path)
        return iter(read_lines(self.path, self.on_read, self.encoding) if self.pipe is None else self.pipe)

    def peek(self) -> Generator[bytes]:
        """The raw lines from the first on; they can still be read."""
        return read_lines(self.path, encoding=self.encoding) if self.pipe is None else self.pipe.peek()

    def lines(self, keep_blank: bool = False) -> Iterator[Line]:
        """The lines as text; those of white space alone are skipped, unless keep_blank."""
        return self.numbered(self.raw_lines(), keep_blank=keep_blank)

    def numbered(self, lines: Iterable[bytes], first: int = 1, keep_blank: bool = False) -> Iterator[Line]:
        """Some lines as text, of which the first has this number."""
        encoding = self.line_encoding
        for number, raw in enumerate(lines, first):
            self.n_lines = number
            if number == 1:
                raw = raw.removeprefix(BYTE_ORDER_MARK)

            try:
                text = raw.decode(encoding)
            except UnicodeDecodeError as error:
                self.refuse(number, undecodable(raw, error, encoding), raw)
                continue

            if keep_blank or not text.isspace():
                yield Line(number, text, raw)

    def documents(self, lines: Iterable[Line], parse: Callable[[str, int], Document]) -> Iterator[Document]:
        """The documents of a format with one document per line; parse gets the line and its number."""
        for number, text, raw in lines:
            try:
                document = parse(text.rstrip("\r\n"), number)
            except BadRecord as problem:
                self.refuse(number, str(problem), raw)
            else:
                yield document

    @contextmanager
    def seekable(self) -> Iterator[IO[bytes]]:
        """Yield the bytes as a seekable file: the file itself, or a temporary copy if it is compressed or a pipe.

        A child process, which may write no file, holds the copy in memory.
        """
        if self.pipe is None:
            with open_binary(self.path, self.on_read) as stream:
                if isinstance(stream.raw, io.FileIO) and stream.seekable():
                    yield stream
                    return

        with io.BytesIO() if child_worker.is_child else tempfile.TemporaryFile() as copy:
            copy.writelines(self.raw_lines())
            copy.seek(0)
            yield copy

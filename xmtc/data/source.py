"""What a reader reads from: numbered lines, the names of the fields, and what happens to a bad line."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, NamedTuple, NoReturn

from xmtc.data.document import Document
from xmtc.data.files import STANDARD_STREAM, display_name, open_binary, read_lines
from xmtc.data.records import BadRecord, Fields
from xmtc.errors import XmtcError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class BadLine(XmtcError):
    """A line (row, file) that is no document: its location in the corpus, and its bytes."""

    def __init__(self, name: str, location: int | str, reason: str, raw: bytes, unit: str = "line") -> None:
        super().__init__(f"{name}, {unit} {location}: {reason}; fix it, or set such lines aside with --on-error skip.")
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

    def __init__(self, path: str) -> None:
        self.name = display_name(path)
        self.lines = read_lines(path)
        self.head: list[bytes] = []
        self.is_spent = False

    def peek(self) -> Generator[bytes]:
        """The lines from the first on; they can still be read."""
        yield from self.head
        for line in self.lines:
            self.head.append(line)
            yield line

    def __iter__(self) -> Iterator[bytes]:
        if self.is_spent:
            raise XmtcError(f"{self.name} can be read only once, and this needs it twice; save it to a file first.")
        self.is_spent = True
        yield from self.head
        yield from self.lines


def pipe_of(path: str) -> Pipe | None:
    """The pipe if the path is one, None for files and folders, which can be read again."""
    is_pipe = path == STANDARD_STREAM or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))
    return Pipe(path) if is_pipe else None


def stop(bad: BadLine) -> NoReturn:
    """Raise the error: what happens to a bad line by default."""
    raise bad


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

    def raw_lines(self) -> Iterator[bytes]:
        return iter(read_lines(self.path, self.on_read) if self.pipe is None else self.pipe)

    def peek(self) -> Generator[bytes]:
        """The raw lines from the first on; they can still be read."""
        return read_lines(self.path) if self.pipe is None else self.pipe.peek()

    def lines(self, keep_blank: bool = False) -> Iterator[Line]:
        """The lines as text; those of white space alone are skipped, unless keep_blank."""
        for number, raw in enumerate(self.raw_lines(), 1):
            self.n_lines = number
            if number == 1:
                raw = raw.removeprefix(BYTE_ORDER_MARK)

            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                found = f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is no UTF-8"
                self.refuse(number, f"{found}, expected UTF-8 text", raw)
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
        """The bytes as a seekable file: the file itself, or a temporary copy if it is compressed or a pipe."""
        if self.pipe is None:
            with open_binary(self.path, self.on_read) as stream:
                if isinstance(stream.raw, io.FileIO) and stream.seekable():
                    yield stream
                    return

        with tempfile.TemporaryFile() as copy:
            copy.writelines(self.raw_lines())
            copy.seek(0)
            yield copy

"""Files as streams: decompressed while they are read, written whole or not at all.

Reading looks at the first bytes, so a `.gz` that is plain text and a nameless file that is zstd both work, and so does
UTF-16 with its byte order mark, which comes out as UTF-8. Writing goes by the extension of the target. "-" is standard
input or standard output."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from xmtc.data.encodings import WIDE_BYTE_ORDER_MARKS, Encoding, detect_utf16_without_mark
from xmtc.errors import XmtcError, find_similar_names
from xmtc.storage.atomic import atomic_file, describe_error, remove_stale_files

zlib_backend: Any = zlib
with suppress(ImportError):
    from zlib_ng import zlib_ng

    zlib_backend = zlib_ng  # says the same of the same bytes, in half the time

STANDARD_STREAM = "-"
NEWLINE = ord("\n")
COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}
OnRead = Callable[[int], None]
OnFirstBytes = Callable[[bytes], None]
BINARY_SIGNATURES = (b"PAR1", b"PK\x03\x04")  # Parquet and workbooks, whose bytes may look like UTF-16
STREAM_ERRORS = (EOFError, OSError, zlib.error, zlib_backend.error)
BLOCK_BYTES = 2_000_000  # of lines that are read at a time: many for every thread, and yet enough to share words
BUFFER_BYTES, COMPRESSED_CHUNK_BYTES = 1 << 20, 1 << 18  # that are read at a time, and decompressed
MAX_LINE_BYTES = 2**27  # a compressed file of a few kilobytes can hold a line that fills the memory
GZIP = 16 + zlib.MAX_WBITS  # how zlib is told that it is gzip, with its headers and checksums


class ProgressFile(io.FileIO):
    """A file that reports how many bytes were read from it."""

    def __init__(self, path: str, on_read: OnRead) -> None:
        super().__init__(path)
        self.on_read = on_read

    def readinto(self, buffer: Any) -> int:
        n = super().readinto(buffer) or 0
        self.on_read(n)
        return n


class GzipReader(io.RawIOBase):
    """A stream of gzip as what it holds. Python's own works in steps of 8 KiB and copies three times, and after each
    step it waits for its turn among the threads."""

    def __init__(self, stream: io.BufferedReader[Any]) -> None:
        self.stream, self.decompressor = stream, zlib_backend.decompressobj(GZIP)
        self.pending = b""  # not yet decompressed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = b""
        while not found and (self._has_input() or not self.decompressor.eof):
            if self.decompressor.eof:
                self.decompressor = zlib_backend.decompressobj(GZIP)
            elif not self.pending:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            found = self.decompressor.decompress(self.pending, len(buffer))
            self.pending = (
                self.decompressor.unused_data.lstrip(b"\0")
                if self.decompressor.eof
                else self.decompressor.unconsumed_tail
            )
        buffer[: len(found)] = found
        return len(found)

    def _has_input(self) -> bool:
        """Whether something waits to be decompressed. Between members, and after the last, zeros may stand."""
        while not self.pending and (read := self.stream.read1(COMPRESSED_CHUNK_BYTES)):
            self.pending = read.lstrip(b"\0") if self.decompressor.eof else read
        return bool(self.pending)


class Utf8Transcoder(io.RawIOBase):
    """A stream of UTF-16 or UTF-32 as one of UTF-8."""

    def __init__(self, stream: io.BufferedReader[Any], encoding: str) -> None:
        self.stream, self.encoding = stream, encoding
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.pending = b""  # in UTF-8, not yet read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.pending:
            content = self.stream.read1(BUFFER_BYTES)
            try:
                self.pending = self.decoder.decode(content, final=not content).encode()
            except UnicodeError as error:
                raise EOFError(f"this is no {self.encoding.upper()}: {getattr(error, 'reason', error)}") from None
            if not content:
                break
        n = min(len(buffer), len(self.pending))
        buffer[:n], self.pending = self.pending[:n], self.pending[n:]
        return n


def strip_compression_extension(path: str) -> str:
    """The path less its `.gz`, `.bz2` or `.zst`, so that the extension left says what is inside."""
    stem, extension = os.path.splitext(path)
    return stem if extension.lower() in COMPRESSIONS else path


def display_name(path: str) -> str:
    """The name of a file that is read, for messages."""
    return "standard input" if path == STANDARD_STREAM else path


@contextmanager
def open_binary(
    path: str, on_read: OnRead | None = None, encoding: str | None = None
) -> Iterator[io.BufferedReader[Any]]:
    """The bytes of a file or of standard input, decompressed if the first bytes are those of a compressed file, and in
    UTF-8 if they are UTF-16 or the encoding says so; on_read is called with the number of bytes read from the file."""
    with ExitStack() as stack:
        stream = stack.enter_context(_open_raw(path, on_read))
        compression = _detect_compression(stream.peek(10))
        if compression is not None:
            stream = stack.enter_context(io.BufferedReader(_open_decompressor(stream, compression), BUFFER_BYTES))
        wide = _detect_wide_encoding(stream, encoding, is_pipe=not os.path.isfile(path))
        if wide is not None:
            stream = stack.enter_context(io.BufferedReader(Utf8Transcoder(stream, wide), BUFFER_BYTES))
        yield stream


def _detect_wide_encoding(stream: io.BufferedReader[Any], encoding: str | None, is_pipe: bool) -> str | None:
    """UTF-16 or UTF-32, if it was named or the first bytes are its mark; of a pipe, which cannot be looked at before,
    also if it is UTF-16 without."""
    if encoding is not None:
        return encoding if Encoding(encoding).is_wide else None
    try:
        head = stream.peek(4)
    except STREAM_ERRORS:
        return None  # whoever reads on is told
    marked = next((name for mark, name in WIDE_BYTE_ORDER_MARKS.items() if head.startswith(mark)), None)
    return marked or (detect_utf16_without_mark(head) if is_pipe and not head.startswith(BINARY_SIGNATURES) else None)


def read_lines(
    path: str, on_read: OnRead | None = None, encoding: str | None = None, on_first_bytes: OnFirstBytes | None = None
) -> Generator[bytes]:
    """The lines of a file or of standard input, each with its line ending, as bytes; on_arrival is handed those
    bytes that are there when the reading begins."""
    number = 0
    with open_binary(path, on_read, encoding) as stream:
        try:
            if on_first_bytes is not None:
                on_first_bytes(stream.peek())
            while line := stream.readline(MAX_LINE_BYTES):
                if len(line) == MAX_LINE_BYTES:
                    raise line_too_long_error(path, number + 1)
                yield line
                number += 1
        except STREAM_ERRORS as error:
            raise damaged_file_error(path, number, error) from None


class LineBlock(NamedTuple):
    lines: bytearray  # whole ones
    first_line_number: int  # number of the first
    n_lines: int


def read_blocks(
    path: str, on_read: OnRead | None = None, encoding: str | None = None, size: int = BLOCK_BYTES
) -> Generator[LineBlock]:
    """The lines of a file, many at a time."""
    first = 1
    with open_binary(path, on_read, encoding) as stream:
        while True:
            read = bytearray(size)  # of zeros, so that what has arrived can be counted after an error, too
            try:
                n = stream.readinto(read)
                del read[n:]
                if n == size:
                    read += stream.readline(MAX_LINE_BYTES)
            except STREAM_ERRORS as error:
                raise damaged_file_error(path, first - 1 + read.count(b"\n"), error) from None
            if len(read) >= MAX_LINE_BYTES and len(read) - size == MAX_LINE_BYTES:
                raise line_too_long_error(path, first + read.count(b"\n"))
            if not read:
                return
            yield (block := LineBlock(read, first, count_lines(read)))
            first += block.n_lines


def count_lines(content: bytearray) -> int:
    """Also of those that end without a line ending."""
    return content.count(b"\n") + (not content.endswith(b"\n"))


def line_too_long_error(path: str, number: int) -> XmtcError:
    return XmtcError(
        f"{display_name(path)}, line {number}: the line is longer than {MAX_LINE_BYTES:,} bytes, expected a document "
        "in each line; check the file, or pass --input-format."
    )


def damaged_file_error(path: str, number: int, error: BaseException) -> XmtcError:
    return XmtcError(
        f"{display_name(path)}, after line {number}: the data is damaged or ends too early ({describe_error(error)}), "
        f"expected a whole file; fetch or compress it again."
    )


def check_output_path(path: str) -> None:
    """Refuse, before the work, a file that could not be written after it."""
    if path != STANDARD_STREAM and (os.path.isdir(path) or not path):
        raise XmtcError(f"{path or 'An empty name'} is no name for a file to write; choose another.")
    if path != STANDARD_STREAM and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise XmtcError(f"The folder of {path} is not there; make it, or choose another.")
    check_outside_model_folder(path)


def check_outside_model_folder(path: str) -> None:
    """Refuse a file within a model or another folder that is replaced as a whole: what else is in it could only be lost
    by that, or stand in its way."""
    from xmtc.storage.folder import is_complete_folder

    for folder in Path(os.path.realpath(path)).parents if path != STANDARD_STREAM else ():
        if is_complete_folder(folder):
            raise XmtcError(
                f"{path} lies in the folder of a model or vocabulary, which is written and replaced as a whole; choose "
                "another place."
            )


@contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """A stream that becomes the file once everything is written; after an error an old file is still as it was."""
    if path == STANDARD_STREAM:
        if sys.stdout is None:
            raise XmtcError("Standard output is closed; expected a place to write to, so name a file.")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return

    target = Path(os.path.realpath(path))  # a symbolic link stays a link
    is_device = target.exists() and not target.is_file()
    check_outside_model_folder(path)
    try:
        if not is_device:
            remove_stale_files(target)
        with target.open("wb") if is_device else atomic_file(target) as raw, _open_compressor(raw, path) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise XmtcError(f"{path} cannot be written ({describe_error(error)}); choose another place.") from None


@contextmanager
def _open_raw(path: str, on_read: OnRead | None) -> Iterator[io.BufferedReader[Any]]:
    if path == STANDARD_STREAM:
        if sys.stdin is None:
            raise XmtcError("Standard input is closed; expected something to read there, so pipe it in or name a file.")
        # Detached at the end: closing this reader would close the process' standard input (as zstd's reader does).
        stdin = io.BufferedReader(cast(io.RawIOBase, sys.stdin.buffer))
        try:
            yield stdin
        finally:
            if not stdin.closed:
                stdin.detach()
        return

    try:
        raw = io.FileIO(path) if on_read is None else ProgressFile(path, on_read)
    except OSError as error:
        raise unreadable_file_error(path, error) from None

    with io.BufferedReader(raw, BUFFER_BYTES) as file:
        yield file


def unreadable_file_error(path: str, error: OSError) -> XmtcError:
    """The error for a file that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        folder, name = os.path.split(path)
        siblings = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        if os.path.islink(path):
            return XmtcError(f"{path} is a link to {os.path.realpath(path)}, which is not there; check the link.")
        near = find_similar_names(name, siblings)
        hint = f"did you mean {os.path.join(folder, near[0])}?" if near else "check the path."
        return XmtcError(f"{path}: there is no such file; {hint}")
    is_folder = os.name == "nt" and os.path.isdir(path)  # of which Windows only says that permission is denied
    if is_folder or isinstance(error, IsADirectoryError):
        return XmtcError(f"{path} is a folder, expected a file; name a file in it.")
    return XmtcError(f"{path} cannot be read ({describe_error(error)}); check the path and its permissions.")


def _detect_compression(head: bytes) -> str | None:
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    # "BZh" alone could begin a text; the magic number of a block, or of the end, follows the digit
    return "bzip2" if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90") else None


def _open_decompressor(raw: io.BufferedReader, compression: str) -> Any:
    if compression == "gzip":
        return GzipReader(raw)
    if compression == "bzip2":
        return bz2.BZ2File(raw)
    import pyarrow

    return pyarrow.CompressedInputStream(raw, "zstd")


def _open_compressor(raw: IO[bytes], path: str) -> AbstractContextManager[Any]:
    compression = COMPRESSIONS.get(os.path.splitext(path)[1].lower())
    if compression == "gzip":
        return gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0)  # same bytes every time
    if compression == "bzip2":
        return bz2.BZ2File(raw, "wb")
    if compression == "zstd":
        import pyarrow

        # it closes what it writes to, and the file is not finished then
        return pyarrow.CompressedOutputStream(os.fdopen(os.dup(raw.fileno()), "wb"), "zstd")
    return nullcontext(raw)

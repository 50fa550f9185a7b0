"""Streams of files: decompression while reading, and atomic writing.

Reading detects the compression (gzip, bzip2, zstd) from the first bytes and ignores the extension. UTF-16 and UTF-32
with a byte order mark are converted to UTF-8, and the mark of UTF-8 is removed. Writing chooses the compression by the
extension. The path "-" is standard input or standard output."""

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
from xmtc.errors import XmtcError, find_similar_names, import_extra
from xmtc.storage.atomic import atomic_file, describe_error, remove_stale_files

zlib_backend: Any = zlib
with suppress(ImportError):
    from zlib_ng import zlib_ng

    zlib_backend = zlib_ng  # same results in half the time

STANDARD_STREAM = "-"
NEWLINE = ord("\n")
COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}
OnRead = Callable[[int], None]
OnFirstBytes = Callable[[bytes], None]
BINARY_SIGNATURES = (b"PAR1", b"PK\x03\x04")  # Parquet and zip archives, whose bytes may look like UTF-16
STREAM_ERRORS = (EOFError, OSError, zlib.error, zlib_backend.error)
BLOCK_BYTES = 2_000_000  # small enough for many blocks per thread, large enough for words to recur in a block
BUFFER_BYTES = 1 << 20
COMPRESSED_CHUNK_BYTES = 1 << 18
MAX_LINE_BYTES = 2**27  # a compressed file of a few kilobytes can contain a line that fills the memory
GZIP_WBITS = 16 + zlib.MAX_WBITS  # zlib's code for gzip headers and checksums


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
    """Decompressed gzip stream.

    Python's gzip module decompresses steps of 8 KiB, copies them three times, and reacquires the interpreter lock
    after each step."""

    def __init__(self, stream: io.BufferedReader[Any]) -> None:
        self.stream, self.decompressor = stream, zlib_backend.decompressobj(GZIP_WBITS)
        self.pending = b""  # not yet decompressed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = b""
        while not content and (self._has_input() or not self.decompressor.eof):
            if self.decompressor.eof:
                self.decompressor = zlib_backend.decompressobj(GZIP_WBITS)
            elif not self.pending:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            content = self.decompressor.decompress(self.pending, len(buffer))
            if self.decompressor.eof:
                self.pending = self.decompressor.unused_data.lstrip(b"\0")
            else:
                self.pending = self.decompressor.unconsumed_tail
        buffer[: len(content)] = content
        return len(content)

    def _has_input(self) -> bool:
        """Return True if compressed input remains. Zero bytes after a gzip member are padding."""
        while not self.pending and (chunk := self.stream.read1(COMPRESSED_CHUNK_BYTES)):
            self.pending = chunk.lstrip(b"\0") if self.decompressor.eof else chunk
        return bool(self.pending)


class Utf8Transcoder(io.RawIOBase):
    """UTF-16 or UTF-32 stream converted to UTF-8."""

    def __init__(self, stream: io.BufferedReader[Any], encoding: str) -> None:
        self.stream, self.encoding = stream, encoding
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.pending = b""  # UTF-8, not yet read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.pending:
            content = self.stream.read1(BUFFER_BYTES)
            try:
                self.pending = self.decoder.decode(content, final=not content).encode()
            except UnicodeError as error:
                raise EOFError(f"it is not valid {self.encoding.upper()}: {getattr(error, 'reason', error)}") from None
            if not content:
                break
        n = min(len(buffer), len(self.pending))
        buffer[:n], self.pending = self.pending[:n], self.pending[n:]
        return n


def strip_compression_extension(path: str) -> str:
    """Return the path without a final `.gz`, `.bz2` or `.zst`."""
    stem, extension = os.path.splitext(path)
    return stem if extension.lower() in COMPRESSIONS else path


def get_extension(path: str) -> str:
    """Return the extension of a path in lower case, such as `.jsonl` of `corpus.jsonl.gz`."""
    return os.path.splitext(strip_compression_extension(path))[1].lower()


def display_name(path: str) -> str:
    """Return the name of an input file for messages."""
    return "standard input" if path == STANDARD_STREAM else path


@contextmanager
def open_binary(
    path: str, on_read: OnRead | None = None, encoding: str | None = None
) -> Iterator[io.BufferedReader[Any]]:
    """Open a file or standard input as a stream of decompressed bytes.

    UTF-16 and UTF-32 are converted to UTF-8 if the encoding names them or, without an encoding, if the first bytes are
    their mark. `on_read` is called with the number of bytes read from the file."""
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
    """Return the name of UTF-16 or UTF-32 if it was passed or detected.

    UTF-16 without a mark is detected here only for pipes; a file is examined before it is opened."""
    if encoding is not None:
        return encoding if Encoding(encoding).is_wide else None
    try:
        head = stream.peek(4)
    except STREAM_ERRORS:
        return None  # the next read raises the error
    marked = next((name for mark, name in WIDE_BYTE_ORDER_MARKS.items() if head.startswith(mark)), None)
    return marked or (detect_utf16_without_mark(head) if is_pipe and not head.startswith(BINARY_SIGNATURES) else None)


def read_lines(
    path: str, on_read: OnRead | None = None, encoding: str | None = None, on_first_bytes: OnFirstBytes | None = None
) -> Generator[bytes]:
    """Yield the lines of a file or of standard input as bytes with their line endings.

    `on_first_bytes` is called with the bytes that are available when reading starts."""
    number = 0
    with open_binary(path, on_read, encoding) as stream:
        try:
            if on_first_bytes is not None:
                on_first_bytes(stream.peek())
            while line := stream.readline(MAX_LINE_BYTES):
                if len(line) == MAX_LINE_BYTES:
                    raise line_too_long_error(path, number + 1)
                yield line if number else line.removeprefix(codecs.BOM_UTF8)
                number += 1
        except STREAM_ERRORS as error:
            raise damaged_file_error(path, number, error) from None


class LineBlock(NamedTuple):
    """Consecutive complete lines of a file."""

    lines: bytearray
    first_line_number: int
    n_lines: int


def read_blocks(
    path: str, on_read: OnRead | None = None, encoding: str | None = None, size: int = BLOCK_BYTES
) -> Generator[LineBlock]:
    """Yield blocks of complete lines, each of about `size` bytes."""
    first = 1
    with open_binary(path, on_read, encoding) as stream:
        while True:
            content = bytearray(size)  # zeros, so that the lines read before an error can be counted
            try:
                n = stream.readinto(content)
                del content[n:]
                if n == size:
                    content += stream.readline(MAX_LINE_BYTES)
            except STREAM_ERRORS as error:
                raise damaged_file_error(path, first - 1 + content.count(b"\n"), error) from None
            if len(content) >= MAX_LINE_BYTES and len(content) - size == MAX_LINE_BYTES:
                raise line_too_long_error(path, first + content.count(b"\n"))
            if first == 1 and content.startswith(codecs.BOM_UTF8):
                del content[: len(codecs.BOM_UTF8)]
            if not content:
                return
            yield (block := LineBlock(content, first, count_lines(content)))
            first += block.n_lines


def count_lines(content: bytearray) -> int:
    """Return the number of lines, including a last line without a line ending."""
    return content.count(b"\n") + (not content.endswith(b"\n"))


def line_too_long_error(path: str, number: int) -> XmtcError:
    return XmtcError(
        f"{display_name(path)}, line {number}: the line is longer than {MAX_LINE_BYTES:,} bytes, expected one document "
        "per line; check the file, or pass --input-format."
    )


def damaged_file_error(path: str, number: int, error: BaseException) -> XmtcError:
    return XmtcError(
        f"{display_name(path)}, after line {number}: the data is damaged or ends too early ({describe_error(error)}), "
        f"expected a complete file; download or compress it again."
    )


def check_output_path(path: str) -> None:
    """Raise XmtcError, before long work, if the path cannot be written."""
    if path != STANDARD_STREAM and not path:
        raise XmtcError("The name of the output file is empty; choose another.")
    if path != STANDARD_STREAM and os.path.isdir(path):
        raise XmtcError(f"{path} is a folder, expected a file to write; choose another name.")
    if path != STANDARD_STREAM and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise XmtcError(f"The folder of {path} is not there; create it, or choose another.")
    check_outside_model_folder(path)


def check_outside_model_folder(path: str) -> None:
    """Raise XmtcError if the path is in a model or vocabulary folder, which is replaced as a whole."""
    from xmtc.storage.folder import is_complete_folder

    for folder in Path(os.path.realpath(path)).parents if path != STANDARD_STREAM else ():
        if is_complete_folder(folder):
            raise XmtcError(
                f"{path} lies in the folder of a model or vocabulary, which is replaced as a whole; choose another."
            )


@contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """Open a stream for writing a file atomically: after an error, an existing file is unchanged."""
    if path == STANDARD_STREAM:
        if sys.stdout is None:
            raise XmtcError("Standard output is closed; write to a file instead.")
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
            raise XmtcError("Standard input is closed; pipe the input in, or name a file.")
        # Detached at the end: closing this reader would close the standard input of the process (zstd's reader does).
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
    """Return the error for a file that cannot be opened, with a suggestion if a similar name exists."""
    if isinstance(error, FileNotFoundError):
        folder, name = os.path.split(path)
        siblings = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        if os.path.islink(path):
            return XmtcError(f"{path} is a link to {os.path.realpath(path)}, which is not there; check the link.")
        similar = find_similar_names(name, siblings)
        hint = f"did you mean {os.path.join(folder, similar[0])}?" if similar else "check the path."
        return XmtcError(f"{path}: there is no such file; {hint}")
    is_folder = os.name == "nt" and os.path.isdir(path)  # Windows reports "permission denied"
    if is_folder or isinstance(error, IsADirectoryError):
        return XmtcError(f"{path} is a folder, expected a file; name a file in it.")
    return XmtcError(f"{path} cannot be read ({describe_error(error)}); check the path and its permissions.")


def _detect_compression(head: bytes) -> str | None:
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    # "BZh" could be the start of a text; in bzip2 the magic number of a block or of the end follows the digit
    return "bzip2" if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90") else None


def _open_decompressor(raw: io.BufferedReader, compression: str) -> Any:
    if compression == "gzip":
        return GzipReader(raw)
    if compression == "bzip2":
        return bz2.BZ2File(raw)
    return import_extra("pyarrow", "Reading zstd").CompressedInputStream(raw, "zstd")


def _open_compressor(raw: IO[bytes], path: str) -> AbstractContextManager[Any]:
    compression = COMPRESSIONS.get(os.path.splitext(path)[1].lower())
    if compression == "gzip":
        return gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0)  # reproducible bytes
    if compression == "bzip2":
        return bz2.BZ2File(raw, "wb")
    if compression == "zstd":
        pyarrow = import_extra("pyarrow", "Writing zstd")
        # A duplicate, because pyarrow closes the file, which is renamed later
        return pyarrow.CompressedOutputStream(os.fdopen(os.dup(raw.fileno()), "wb"), "zstd")
    return nullcontext(raw)

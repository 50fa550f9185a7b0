"""Standard streams of a command: output without terminal control characters, also to a closed or full stream."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import typer

from xmtc.errors import escape_controls

# A closed standard stream is opened in the opposite direction, so that using it fails; standard error is writable.
CLOSED_STREAM_FLAGS = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)


class LossyErrorStream(io.FileIO):
    """Standard error that ignores write errors, so that a command does not fail because of a message."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Print text, with control characters other than line ends and tabs escaped."""
    lines = ("\t".join(map(escape_controls, line.split("\t"))) for line in text.split("\n"))
    typer.echo("\n".join(lines), err=err, nl=nl)


def configure_streams() -> None:
    """Set standard output to UTF-8, and make standard error ignore write errors."""
    for number, flags in enumerate(CLOSED_STREAM_FLAGS):
        try:
            os.fstat(number)
        except OSError:  # closed: otherwise the next file opened would get its descriptor
            os.open(os.devnull, flags)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    if sys.stderr is None or is_stderr_file(sys.stderr):
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        raw = io.BufferedWriter(LossyErrorStream(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True)


def is_stderr_file(stream: object) -> bool:
    """Return True if a stream writes to descriptor 2 as a file; a Windows console does not."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED there is no buffer
    return type(raw) is io.FileIO and raw.fileno() == 2


def discard_output() -> None:
    """Discard buffered output after a broken pipe, about which Python would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

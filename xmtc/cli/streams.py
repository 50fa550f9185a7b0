"""Standard streams of a command: output without terminal control characters, also to a closed or full stream."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import typer

from xmtc.errors import escape_controls

# A closed stream is opened the wrong way round, so that whoever needs it is refused; but anything may be said.
CLOSED_STREAM_FLAGS = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)


class LossyErrorStream(io.FileIO):
    """Standard error: the work does not end because nobody can be told of it."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Print text that may quote anything, a file name or a label; of what a terminal obeys, only line ends and tabs are
    left as they are."""
    lines = ("\t".join(map(escape_controls, line.split("\t"))) for line in text.split("\n"))
    typer.echo("\n".join(lines), err=err, nl=nl)


def configure_streams() -> None:
    """Answers are in UTF-8, as JSON is, whatever the terminal's; what is said on the side never fails."""
    for number, flags in enumerate(CLOSED_STREAM_FLAGS):
        try:
            os.fstat(number)
        except OSError:  # closed; the next file to be opened would take its number, and what is meant for the stream
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
    """Whether a stream writes to a file, a pipe or a terminal as to a file; not so a console of Windows."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED there is none between
    return type(raw) is io.FileIO and raw.fileno() == 2


def discard_output() -> None:
    """Let go of what standard output cannot take, of which Python would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""Log of a service: a JSON object in each line, to standard error. It holds no text that was sent, nor any part of an
address that a client has made up. A log that cannot be written (a full disk, a pipe that nobody reads) loses lines and
counts them; it never stops the service."""

from __future__ import annotations

import io
import json
import logging
import os
import select
import socket
import stat
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

STDERR = 2
Write = Callable[[bytes], int]


class Sink:
    """Standard error, written without ever waiting for its reader."""

    def __init__(self) -> None:
        self.n_lost = 0  # lines, since the last one that was written
        self.is_broken = False  # the last line was written in part
        self.write = writer_without_waiting()

    def add(self, line: bytes) -> None:
        if self.n_lost:
            line = encoded("log lines lost", lines=self.n_lost) + line
        if self.is_broken:
            line = b"\n" + line
        try:
            n_written = self.write(line)
        except (OSError, ValueError):  # nobody reads it, it is full, or it is closed
            n_written = 0
        self.is_broken = (self.is_broken and not n_written) or 0 < n_written < len(line)
        self.n_lost = 0 if n_written == len(line) else self.n_lost + 1


def writer_without_waiting() -> Write:
    """Return a function that writes to standard error what can be written at once."""
    kind = os.fstat(STDERR).st_mode
    if stat.S_ISSOCK(kind) and hasattr(socket, "MSG_DONTWAIT"):
        connected = socket.socket(fileno=os.dup(STDERR))
        return lambda line: connected.send(line, socket.MSG_DONTWAIT)
    if stat.S_ISFIFO(kind):
        with suppress(OSError):  # not allowed, or no such file system
            own = os.open(f"/proc/self/fd/{STDERR}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return lambda line: os.write(own, line)
    if stat.S_ISREG(kind) or not hasattr(select, "poll"):
        return lambda line: os.write(STDERR, line)
    poll = select.poll()
    poll.register(STDERR, select.POLLOUT)
    return lambda line: os.write(STDERR, line) if poll.poll(0) else 0


sink: Sink | None = None  # of a service that runs


def encoded(name: str, **fields: Any) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return (json.dumps({"time": now, "event": name, **fields}) + "\n").encode()


def event(name: str, **fields: Any) -> None:
    """Write one line."""
    line = encoded(name, **fields)
    if sink is not None:
        sink.add(line)
    elif sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            sys.__stderr__.write(line.decode())
            sys.__stderr__.flush()


def failure(error: BaseException) -> dict[str, Any]:
    """Return the type and place of an error, without its message, which may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return {"error": type(error).__name__, "at": [f"{frame.filename}:{frame.lineno}" for frame in frames]}


class JsonLines(logging.Handler):
    """Handler for the log of uvicorn."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            event("server", level=record.levelname.lower(), **failure(record.exc_info[1]))
        else:
            event("server", level=record.levelname.lower(), message=record.getMessage())


class Said(io.TextIOBase):
    """Replacement of sys.stderr: everything that is written to it becomes a line of the log."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.strip():
            event("said", message=text.strip())
        return len(text)


def take_over() -> None:
    """Send the log of uvicorn and everything that is written to sys.stderr to the log."""
    global sink
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [JsonLines(logging.WARNING)], False
    logger.setLevel(logging.WARNING)
    with suppress(OSError):  # standard error may be closed
        sink = Sink()
    sys.stderr = Said()

"""Log of the service: JSON lines on standard error.

The log contains neither texts nor paths that clients send. If it cannot be written (full disk, blocked pipe), lines are
lost and counted; the service never waits for the log."""

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
WriteLine = Callable[[bytes], int]


class LogSink:
    """Non-blocking writer to standard error."""

    def __init__(self) -> None:
        self.n_lost_lines = 0  # since the last written line
        self.is_broken = False  # True if only a part of the last line was written
        self.write = make_nonblocking_writer()

    def add(self, line: bytes) -> None:
        if self.n_lost_lines:
            line = encode_event("log lines lost", lines=self.n_lost_lines) + line
        if self.is_broken:
            line = b"\n" + line
        try:
            n_written = self.write(line)
        except (OSError, ValueError):  # blocked, full or closed
            n_written = 0
        self.is_broken = (self.is_broken and not n_written) or 0 < n_written < len(line)
        self.n_lost_lines = 0 if n_written == len(line) else self.n_lost_lines + 1


def make_nonblocking_writer() -> WriteLine:
    """Return a function that writes to standard error as many bytes as possible without blocking."""
    mode = os.fstat(STDERR).st_mode
    if stat.S_ISSOCK(mode) and hasattr(socket, "MSG_DONTWAIT"):
        connection = socket.socket(fileno=os.dup(STDERR))
        return lambda line: connection.send(line, socket.MSG_DONTWAIT)
    if stat.S_ISFIFO(mode):
        with suppress(OSError):  # /proc is missing or not accessible
            descriptor = os.open(f"/proc/self/fd/{STDERR}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return lambda line: os.write(descriptor, line)
    if stat.S_ISREG(mode) or not hasattr(select, "poll"):
        return lambda line: os.write(STDERR, line)
    poll = select.poll()
    poll.register(STDERR, select.POLLOUT)
    return lambda line: os.write(STDERR, line) if poll.poll(0) else 0


log_sink: LogSink | None = None  # set by redirect_logs


def encode_event(name: str, **fields: Any) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return (json.dumps({"time": now, "event": name, **fields}) + "\n").encode()


def write_event(name: str, **fields: Any) -> None:
    """Write one line to the log."""
    line = encode_event(name, **fields)
    if log_sink is not None:
        log_sink.add(line)
    elif sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            sys.__stderr__.write(line.decode())
            sys.__stderr__.flush()


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Return the type and code lines of an error, but not its message, which may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return {"error": type(error).__name__, "at": [f"{frame.filename}:{frame.lineno}" for frame in frames]}


class JsonLogHandler(logging.Handler):
    """Logging handler that writes uvicorn's records to the log of the service."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            write_event("server", level=record.levelname.lower(), **describe_exception(record.exc_info[1]))
        else:
            write_event("server", level=record.levelname.lower(), message=record.getMessage())


class StderrLog(io.TextIOBase):
    """Replacement of sys.stderr that writes every text as an event to the log."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.strip():
            write_event("stderr", message=text.strip())
        return len(text)


def redirect_logs() -> None:
    """Redirect uvicorn's log and sys.stderr to the log of the service."""
    global log_sink
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [JsonLogHandler(logging.WARNING)], False
    logger.setLevel(logging.WARNING)
    with suppress(OSError):  # standard error may be closed
        log_sink = LogSink()
    sys.stderr = StderrLog()

"""The log of a service: a JSON object in each line, to standard error. It holds no text that was sent, nor any part of
an address that a client has made up."""

from __future__ import annotations

import io
import json
import logging
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any


def event(name: str, **fields: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    stream = sys.__stderr__
    if stream is not None:
        with suppress(OSError, ValueError):  # who reads it has gone, and the service goes on
            stream.write(json.dumps({"time": now, "event": name, **fields}) + "\n")
            stream.flush()


def failure(error: BaseException) -> dict[str, Any]:
    """Where an error happened; not what it says, which may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return {"error": type(error).__name__, "at": [f"{frame.filename}:{frame.lineno}" for frame in frames]}


class JsonLines(logging.Handler):
    """Takes what uvicorn logs."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            event("server", level=record.levelname.lower(), **failure(record.exc_info[1]))
        else:
            event("server", level=record.levelname.lower(), message=record.getMessage())


class Said(io.TextIOBase):
    """In place of standard error: what anybody says there becomes a line of the log."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.strip():
            event("said", message=text.strip())
        return len(text)


def take_over() -> None:
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [JsonLines(logging.WARNING)], False
    logger.setLevel(logging.WARNING)
    sys.stderr = Said()

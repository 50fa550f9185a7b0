"""Event log of commands (--log-json), and the notice about compilation."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from xmtc.core.events import Event
from xmtc.core.process_rank import is_first_process
from xmtc.core.progress import print_to_stderr
from xmtc.data.file_streams import check_outside_model_folder
from xmtc.errors import XmtcError


def make_json_log(path: Path) -> Callable[[Event], None]:
    """Return a function that appends events with their time to a file, one JSON object per line.

    An existing log is continued; any other existing file is refused.
    """

    def write(event: Event) -> None:
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, **event.as_json()}, ensure_ascii=False)
        with suppress(OSError), path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line + "\n")  # a full disk does not stop the command

    if is_first_process():
        check_json_log(path)
    return write


def check_json_log(path: Path) -> None:
    """Raise XmtcError if the file cannot be written, or is not a log."""
    if str(path) == "-":
        raise XmtcError("--log-json - is not a file; give one, such as log.jsonl, or /dev/stderr.")
    check_outside_model_folder(str(path))
    try:
        path.open("a").close()
        if path.is_file() and not is_json_log(path):
            raise XmtcError(f"{path} exists and is not a log of xmtc; choose another file.")
        end_last_line(path)
    except OSError as error:
        raise XmtcError(
            f"{path} cannot be written ({error.strerror or error}); choose another file for --log-json."
        ) from None


def end_last_line(path: Path) -> None:
    """End the last line of a truncated log, so that the next event starts a new line."""
    if path.is_file() and path.stat().st_size:
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def is_json_log(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(10_000)
    try:
        return not first or {"time", "event"} <= dict(json.loads(first)).keys()
    except (ValueError, TypeError, RecursionError):
        return False


@functools.cache
def announce_compilation() -> None:
    """Print a line to standard error when a kernel has to be compiled."""
    from xmtc.core.numba_support import COMPILE_NOTICE, register_compile_callback

    register_compile_callback(lambda: print_to_stderr(COMPILE_NOTICE))

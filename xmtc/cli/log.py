"""What commands say of their work beside its progress: a log of JSON lines, and that they have to compile."""

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
    """Adds a line with the time to a file for each event. A log that is there is gone on with, as a training may go on
    from its checkpoint; anything else is left alone."""

    def write(event: Event) -> None:
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, **event.as_json()}, ensure_ascii=False)
        with suppress(OSError), path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line + "\n")  # where the disk is full, the work goes on

    if is_first_process():
        check_json_log(path)
    return write


def check_json_log(path: Path) -> None:
    """Refuse, before the work, what cannot be written, and what is not a log."""
    if str(path) == "-":
        raise XmtcError("--log-json - names no file; give one, such as log.jsonl, or /dev/stderr.")
    check_outside_model_folder(str(path))
    try:
        path.open("a").close()
        if path.is_file() and not is_json_log(path):
            raise XmtcError(f"{path} exists and is no log of xmtc; choose another file so that nothing is lost.")
        end_last_line(path)
    except OSError as error:
        raise XmtcError(
            f"{path} cannot be written ({error.strerror or error}); choose another file for --log-json."
        ) from None


def end_last_line(path: Path) -> None:
    """Of a log that was cut off, so that what follows stays readable."""
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
    """One line on standard error, if this command has to compile what it uses."""
    from xmtc.core.numba_support import register_compile_callback

    said = "xmtc: compiling what is used here for the first time, which takes some seconds once ..."
    register_compile_callback(lambda: print_to_stderr(said))

"""The program of a child process that parses untrusted files: it reads requests from a pipe and writes answers to one.

xmtc/core/child_process.py starts it and has the other end of both pipes."""

from __future__ import annotations

import io
import json
import os
import re
import select
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from typing import IO, Any

from xmtc.errors import XmtcError

try:
    import fcntl
    import resource
except ImportError:  # Windows
    fcntl = resource = None  # type: ignore[assignment]

CHUNK_BYTES = 2**20
MAX_FRAME_BYTES = 2**28
HEADER = struct.Struct("!cI")  # kind and length of a frame
REQUEST, CONTENT, END_OF_CONTENT = b"R", b"C", b"E"  # frames from the parent
BEGIN, VALUE, BYTES, END, ERROR, FAILURE = b"b", b"v", b"d", b"e", b"x", b"f"  # frames from the child
# Audit events that no parser needs; `open` is decided by its path.
REFUSED_EVENTS: tuple[str, ...] = (
    *("socket.", "urllib.", "ftplib.", "http.", "smtplib.", "webbrowser."),
    *("subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "os.kill", "pty."),
)
# Audit events that are refused outside the temporary folder of the child.
FILE_EVENTS: tuple[str, ...] = (
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"),
    "shutil.",
)
DESCRIPTOR_PATH_PATTERN = re.compile(r"/proc/self/fd/[0-9]+")
MODULE_SUFFIXES = (".py", ".pyc", ".so", ".pyd")  # ends of the names of modules

TEMP_FOLDER_PREFIX = "xmtc-file-"  # begin of the names of temporary folders in which a child may write

TaskFunction = Callable[[Any, IO[bytes]], Iterable[Any]]  # from a request and the content of a file
is_child = False  # True in a child process, where tasks run directly


def import_task(name: str) -> TaskFunction:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def to_utf8_json(value: Any) -> bytes:
    """Return JSON in UTF-8, which takes less than ASCII with escapes. Lone surrogates are escaped."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def write_all(stream: IO[bytes], content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[stream.write(left) or 0 :]


def read_exactly(stream: IO[bytes], n: int) -> bytes | None:
    """Return n bytes; None at the end of the stream."""
    found = io.BytesIO()  # whose value is no copy
    while found.tell() < n:
        part = stream.read(min(n - found.tell(), CHUNK_BYTES))
        if not part:
            return None
        found.write(part)
    return found.getvalue()


class FrameTooLongError(Exception):
    """Frame above the size limit; only its header has been read."""


def read_frame(stream: IO[bytes], max_bytes: int = MAX_FRAME_BYTES) -> tuple[bytes, bytes] | None:
    """Return the kind and the content of the next frame; None at the end of the stream."""
    head = read_exactly(stream, HEADER.size)
    if head is None:
        return None
    kind, length = HEADER.unpack(head)
    if length > max_bytes:
        raise FrameTooLongError
    content = read_exactly(stream, length)
    return None if content is None else (kind, content)


class ContentStream(io.RawIOBase):
    """The content frames of a request as a stream."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.pending, self.is_at_end = stream, memoryview(b""), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.pending and not self.is_at_end:
            found = read_frame(self.stream)
            if found is None:
                os._exit(1)  # the parent has ended
            kind, content = found
            self.is_at_end, self.pending = kind == END_OF_CONTENT, memoryview(content)
            if self.is_at_end:
                die_with_parent(self.stream, True)
        n = min(len(buffer), len(self.pending))
        buffer[:n], self.pending = self.pending[:n], self.pending[n:]
        return n


def main(preload: list[str], idle_seconds: float, niceness: int) -> None:
    """Do tasks until the parent closes the pipe."""
    if niceness and hasattr(os, "nice"):
        os.nice(niceness)
    global is_child
    is_child = True
    requests, answers = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # what a library prints must not be taken for an answer
        os.dup2(nowhere, standard)
    for module in preload:
        with suppress(ImportError):  # of a package that is not installed, which the task tells
            import_module(module)
    base = read_address_space_bytes()
    set_limit("RLIMIT_CORE", 0)
    set_limit("RLIMIT_FSIZE", MAX_FRAME_BYTES)
    if not hasattr(os, "memfd_create"):
        tempfile.gettempdir()  # it tries to write, which the hook would refuse
    sys.addaudithook(refuse_access)
    while wait_for_request(requests, idle_seconds or None) and (found := read_frame(requests)) is not None:
        name, request, (memory, seconds) = json.loads(found[1])
        answer = FrameWriter(answers)
        answer.write(BEGIN)
        set_limit("RLIMIT_AS", None if base is None else base + memory)
        set_limit("RLIMIT_CPU", int(time.process_time() + seconds) + 2)
        content = ContentStream(requests)
        kind, last = execute_task(name, request, io.BufferedReader(content, CHUNK_BYTES), answer)
        while not content.is_at_end:
            content.pending = memoryview(b"")
            content.readinto(bytearray(0))
        die_with_parent(requests, False)
        answer.write(kind, last)


def wait_for_request(requests: IO[bytes], seconds: float | None) -> bool:
    """Return True if there is something to read, or the end of the pipe; None waits for ever."""
    if fcntl is None:
        return True
    return bool(select.select([requests], [], [], seconds)[0])


def execute_task(name: str, request: Any, content: IO[bytes], answer: FrameWriter) -> tuple[bytes, bytes]:
    """Run a task, and return the last frame of its answer."""
    try:
        for value in import_task(name)(request, content):
            if isinstance(value, bytes):
                answer.write(BYTES, value)
            else:
                answer.write(VALUE, to_utf8_json(value))
        return END, b""
    except XmtcError as error:
        return ERROR, json.dumps(str(error)).encode()
    except MemoryError:
        return FAILURE, b""
    except BaseException as error:  # a panic of Rust is no Exception
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return FAILURE, json.dumps(f"it is damaged ({reason})").encode()


class FrameWriter:
    """The frames that the child writes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def write(self, kind: bytes, content: bytes = b"") -> None:
        if len(content) > MAX_FRAME_BYTES:
            raise ValueError("one of its texts is too long")
        try:
            write_all(self.stream, HEADER.pack(kind, len(content)))
            write_all(self.stream, content)
        except OSError:
            os._exit(1)  # the parent has ended


def refuse_access(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: refuse connections, processes, and files outside the Python installation."""
    if event == "open":
        path, _, flags = arguments
        is_allowed = isinstance(path, int) or is_open_allowed(path, flags)
    elif event.startswith(FILE_EVENTS):
        paths = [each for each in arguments if isinstance(each, (str, bytes))]
        is_allowed = bool(paths) and all(is_in_temp_folder(to_absolute_path(path)) for path in paths)
    else:
        is_allowed = not event.startswith(REFUSED_EVENTS)
    if not is_allowed:
        raise PermissionError("it names another file or address, which is not opened")


def to_absolute_path(path: str | bytes) -> str:
    """Return the absolute path. Links are followed if the path goes up, because the system follows them before it."""
    name = os.fsdecode(path)
    return os.path.realpath(name) if os.pardir in name else os.path.abspath(name)


def is_in_temp_folder(place: str) -> bool:
    """Return True for the temporary folder of the child, which it has only where every file has a name."""
    return tempfile.tempdir is not None and place.startswith(os.path.join(tempfile.tempdir, TEMP_FOLDER_PREFIX))


def is_open_allowed(path: str | bytes, flags: int) -> bool:
    """Return True for modules and their data, which are read when first used, and for what the child itself holds."""
    place = to_absolute_path(path)
    if place == os.devnull or DESCRIPTOR_PATH_PATTERN.fullmatch(os.fsdecode(path)) or is_in_temp_folder(place):
        return True
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        return False
    is_code = place.endswith(MODULE_SUFFIXES)
    folders = [root for root in sys.path if is_code or root.endswith("-packages")]
    return place.startswith(tuple(root.rstrip(os.sep) + os.sep for root in (sys.prefix, sys.base_prefix, *folders)))


def set_limit(name: str, value: int | None) -> None:
    """Lower a soft limit of this process, where the system has it."""
    if resource is None or value is None or not hasattr(resource, name):
        return
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(getattr(resource, name))
        resource.setrlimit(getattr(resource, name), (value if hard < 0 else min(value, hard), hard))


def read_address_space_bytes() -> int | None:
    """Return the size of the address space of this process, where the system tells it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def die_with_parent(requests: IO[bytes], is_wanted: bool) -> None:
    """Let the kernel end this process when the parent does, also in the middle of compiled code.

    With O_ASYNC, a pipe whose other end is closed sends SIGIO, which ends the process. It would do so for new requests,
    too, and is therefore set only while the parent has nothing to write.
    """
    if fcntl is None or not hasattr(os, "O_ASYNC"):
        return
    with suppress(OSError):
        fcntl.fcntl(requests, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(requests, fcntl.F_GETFL)
        fcntl.fcntl(requests, fcntl.F_SETFL, flags | os.O_ASYNC if is_wanted else flags & ~os.O_ASYNC)
        if is_wanted and wait_for_request(requests, 0.0):
            os._exit(1)  # the parent ended before

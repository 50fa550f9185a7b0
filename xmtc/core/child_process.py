"""Run parsers of untrusted files in a child process with limits on memory, time and output.

A parser written in C or Rust can abort its process, and any parser can take all memory or never end. `Children.run`
starts `sys.executable` as a child process, streams the bytes of a file to it, and yields what the task in the child
yields: JSON values, or bytes. Nothing is pickled. The child gets no file name and no file descriptor beside its two
pipes, and an audit hook keeps it from opening files outside the Python installation, connections and processes.

The parent enforces the time limit and kills the child; a killed child raises `ChildFailed`. A child that succeeded is
kept for the next file, because its start takes as long as reading many a file.

The limits on memory and processor time use `resource.setrlimit`. Linux enforces both. macOS ignores the limit on
memory, and Windows has neither: only the limit on elapsed time holds there. A child whose parent has been killed ends
when its pipe is closed: at once on Linux, elsewhere at the end of its task.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from xmtc.core import child_worker
from xmtc.core.child_worker import (
    BEGIN,
    BYTES,
    CHUNK_BYTES,
    CONTENT,
    END,
    END_OF_CONTENT,
    ERROR,
    HEADER,
    MAX_FRAME_BYTES,
    REQUEST,
    VALUE,
    FrameTooLongError,
    import_task,
    read_frame,
    write_all,
)  # fmt: skip
from xmtc.errors import XmtcError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MIB, GIB = 2**20, 2**30
MAX_TASKS = 100  # of one child; a new one begins with fresh memory
IDLE_SECONDS = 10.0  # after which an unused child ends
# Environment variables that a child process gets.
PASSED_VARIABLES = frozenset(
    "PATH PATHEXT HOME USERPROFILE LANG LANGUAGE TMPDIR TEMP TMP SYSTEMROOT NUMBA_CACHE_DIR XDG_CACHE_HOME "
    "LD_LIBRARY_PATH DYLD_LIBRARY_PATH TOKENIZERS_PARALLELISM".split()
)
PASSED_VARIABLE_PREFIXES = ("LC_", "PYTHON", "OMP_", "OPENBLAS_", "MKL_")
BOOT = (
    "import sys, json; path, *rest = json.loads(sys.argv[1]); sys.path[:] = path; "
    "from xmtc.core.child_worker import main; main(*rest)"
)


def build_minimal_environment() -> dict[str, str]:
    """Return the environment variables that a child needs, without tokens and other secrets."""
    variables = os.environ.items()
    return {
        name: value
        for name, value in variables
        if name in PASSED_VARIABLES or name.startswith(PASSED_VARIABLE_PREFIXES)
    }


class ChildTaskError(Exception):
    """A task that its child process could not finish; the message is a reason for a sentence."""


@dataclass(frozen=True)
class TaskLimits:
    """Limits of one task."""

    memory_bytes: int = 2 * GIB  # bytes beyond those of the interpreter
    seconds: float = 60.0  # that the child may take, without the time that the parent takes between two values
    output_bytes: int = GIB  # bytes of all values

    @classmethod
    def for_file_size(cls, n_bytes: int, seconds_per_mib: float = 1.0) -> TaskLimits:
        """Return the limits for a file of the user, which grow with its size."""
        memory, output = 2 * GIB + 50 * n_bytes, GIB + 50 * n_bytes
        return cls(memory, 60 + seconds_per_mib * n_bytes / MIB, output)


class Child:
    """One child process, which does one task at a time."""

    def __init__(self, preload: Iterable[str] = (), idle_seconds: float = IDLE_SECONDS, niceness: int = 0) -> None:
        path = [os.path.abspath(place) for place in sys.path]
        arguments = json.dumps([path, list(preload), idle_seconds, niceness])
        environment = build_minimal_environment() | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-W", "ignore", "-c", BOOT, arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise XmtcError(f"A process to read the file cannot be started ({error}); free some memory.") from None
        self.n_tasks = 0
        self.has_timed_out = self.has_exceeded_output = False
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError, AttributeError):  # an unprivileged user may have many pipes, but few large ones
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)  # type: ignore[arg-type]

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def write(self, kind: bytes, content: bytes = b"") -> None:
        assert self.process.stdin is not None
        write_all(self.process.stdin, HEADER.pack(kind, len(content)))
        write_all(self.process.stdin, content)

    def try_write(self, kind: bytes, content: bytes = b"") -> bool:
        """Write a frame; return False if the child has ended."""
        try:
            self.write(kind, content)
            return True
        except (OSError, ValueError):
            return False

    def read(self, seconds: float, max_bytes: int) -> tuple[bytes, bytes] | None:
        """Return the kind and the content of the next frame; None where the child ended, was too slow or wrote more
        than that many bytes."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(max(seconds, 0.0), self.kill_on_timeout)
        watchdog.daemon = True
        watchdog.start()
        try:
            return read_frame(self.process.stdout, max_bytes)
        except FrameTooLongError:
            self.has_exceeded_output = True
            self.kill()
            return None
        except (OSError, ValueError):
            return None
        finally:
            watchdog.cancel()

    def kill_on_timeout(self) -> None:
        self.has_timed_out = True
        self.kill()

    def kill(self) -> None:
        """End the child and whatever it may have started; can be called from any thread."""
        with suppress(OSError):
            if hasattr(os, "killpg") and self.is_alive:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()

    def close(self) -> None:
        """Kill the child, wait for its end and close its pipes."""
        self.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def to_error(self, limits: TaskLimits) -> ChildTaskError:
        """Return why a child ended in the middle of a task."""
        code = self.process.wait()
        if self.has_exceeded_output:
            return ChildTaskError(f"it holds more than {limits.output_bytes // MIB:,} MiB of text")
        if self.has_timed_out or (hasattr(signal, "SIGXCPU") and code == -signal.SIGXCPU):
            return ChildTaskError(f"it takes longer than {limits.seconds:.3g} seconds")
        return make_memory_error(limits)


def make_memory_error(limits: TaskLimits) -> ChildTaskError:
    return ChildTaskError(f"it needs more than {limits.memory_bytes // MIB:,} MiB of memory, or crashes its reader")


class ChildTask:
    """One task for a child process. `values` runs it; `kill` ends it from another thread."""

    def __init__(
        self, children: ChildPool, task: str, request: Any, content: Callable[[], Iterable[bytes]], limits: TaskLimits
    ) -> None:
        self.children, self.task, self.request, self.content, self.limits = children, task, request, content, limits
        self.child: Child | None = None
        self.is_killed = False
        self.content_error: BaseException | None = None  # of reading the content

    def kill(self) -> None:
        self.is_killed = True
        if self.child is not None:
            self.child.kill()

    def run(self) -> Iterator[Any]:
        """Yield what the task yields.

        Raises
        ------
        ChildFailed
            If the child exceeded a limit, crashed or raised anything but an XmtcError.
        XmtcError
            If the task raised it.
        """
        child = self.child = self._start()
        feeder = threading.Thread(target=self._feed, args=(child,), daemon=True)
        feeder.start()
        is_done = False
        try:
            yield from self._read_results(child)
            is_done = True
        except XmtcError:
            is_done = True
            raise
        finally:
            if not is_done or self.is_killed or self.content_error:
                child.close()
            feeder.join()
            self.child = None
            self.children.release(child)
            if self.content_error is not None:
                raise self.content_error

    def _start(self) -> Child:
        """Return a child that has accepted the request; one that has ended meanwhile is replaced."""
        request = json.dumps([self.task, self.request, [self.limits.memory_bytes, self.limits.seconds]]).encode()
        while True:
            child = self.child = self.children.acquire()
            is_new = child.n_tasks == 0
            child.try_write(REQUEST, request)
            found = None if self.is_killed else child.read(self.limits.seconds, 0)
            if found is not None and found[0] == BEGIN:
                child.n_tasks += 1
                return child
            child.close()
            if is_new or self.is_killed:
                raise (
                    child.to_error(self.limits)
                    if child.has_timed_out
                    else ChildTaskError("its reader cannot be started")
                )

    def _feed(self, child: Child) -> None:
        """Write the content to the child. An error of reading it ends the child, and is raised by `values`."""
        try:
            for chunk in self.content():
                for begin in range(0, len(chunk), CHUNK_BYTES):
                    if not child.try_write(CONTENT, chunk[begin : begin + CHUNK_BYTES]):
                        return
            child.try_write(END_OF_CONTENT)
        except BaseException as error:
            self.content_error = error
            child.kill()

    def _read_results(self, child: Child) -> Iterator[Any]:
        seconds, n_left = self.limits.seconds, self.limits.output_bytes
        while True:
            begin = time.monotonic()
            found = child.read(seconds, min(n_left, MAX_FRAME_BYTES))
            seconds -= time.monotonic() - begin
            if found is None:
                raise child.to_error(self.limits)
            kind, content = found
            n_left -= len(content)
            if kind == END:
                return
            if kind == BYTES:
                yield content
            elif kind == VALUE:
                yield parse_answer(content)
            elif kind == ERROR:
                raise XmtcError(str(parse_answer(content)))
            else:
                raise ChildTaskError(str(parse_answer(content))) if content else make_memory_error(self.limits)


class ChildPool:
    """Child processes that wait for tasks, at most `n_spare` of them.

    Parameters
    ----------
    preload
        Modules that a child imports before its first task.
    idle_seconds
        Time after which an unused child ends; with 0, one always waits for the next task.
    n_spare
        Number of children that are kept.
    niceness
        By how much the priority of children is below that of this process.
    """

    def __init__(
        self,
        preload: Iterable[str] = (),
        idle_seconds: float = IDLE_SECONDS,
        max_idle: int = 1,
        niceness: int = 0,
    ) -> None:
        self.preload, self.idle_seconds, self.max_idle, self.niceness = tuple(preload), idle_seconds, max_idle, niceness
        self.idle_children: list[Child] = []
        self.lock = threading.Lock()
        self.pid = os.getpid()
        self.is_closed = False

    def create_task(
        self,
        task: str,
        request: Any,
        content: bytes | Callable[[], Iterable[bytes]],
        limits: TaskLimits = TaskLimits(),
    ) -> ChildTask:
        """Return a job for the task "module:function", which gets the request and the content as a stream."""
        chunks = (lambda: (content,)) if isinstance(content, bytes) else content
        return ChildTask(self, task, request, chunks, limits)

    def run(
        self, task: str, request: Any, content: bytes | Callable[[], Iterable[bytes]], limits: TaskLimits = TaskLimits()
    ) -> Iterator[Any]:
        """Yield what a task yields; within a child process, the task runs directly."""
        if not child_worker.is_child:
            yield from self.create_task(task, request, content, limits).run()
            return
        chunks = (content,) if isinstance(content, bytes) else content()
        yield from import_task(task)(request, io.BufferedReader(io.BytesIO(b"".join(chunks)), CHUNK_BYTES))

    def warm_up(self) -> None:
        """Start a child ahead of its first task."""
        with self.lock:
            if not self.idle_children and not self.is_closed:
                self.idle_children.append(Child(self.preload, self.idle_seconds, self.niceness))

    def acquire(self) -> Child:
        with self.lock:
            if self.pid != os.getpid():  # after a fork, the children belong to the parent
                self.pid, self.idle_children = os.getpid(), []
            while self.idle_children:
                child = self.idle_children.pop()
                if child.is_alive:
                    return child
                child.close()
        return Child(self.preload, self.idle_seconds, self.niceness)

    def release(self, child: Child) -> None:
        """Keep a child for the next task if it is alive; start another in place of one that is not."""
        with self.lock:
            is_wanted = len(self.idle_children) < self.max_idle and not self.is_closed
            if is_wanted and child.is_alive and child.n_tasks < MAX_TASKS:
                self.idle_children.append(child)
                return
        child.close()
        if not self.idle_seconds:
            self.warm_up()

    def close(self) -> None:
        """End the children that wait."""
        with self.lock:
            self.is_closed = True
            spare, self.idle_children = self.idle_children, []
        if self.pid == os.getpid():
            for child in spare:
                child.close()


CHILD_POOL = ChildPool()  # of the command line and the library
atexit.register(CHILD_POOL.close)


def parse_answer(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ChildTaskError("its reader gave an answer that is not valid") from None

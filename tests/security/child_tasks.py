"""Tasks for the child processes of test_child_process.py."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import IO, Any


def size(request: Any, content: IO[bytes]) -> Iterator[Any]:
    yield [os.getpid(), request, len(content.read())]


def allocate(n_bytes: int, content: IO[bytes]) -> Iterator[Any]:
    yield len(bytearray(n_bytes))


def never_end(request: Any, content: IO[bytes]) -> Iterator[Any]:
    """Compute in one compiled loop, which no signal handler of Python interrupts."""
    content.read()
    yield os.getpid()
    yield sum(range(10**15))


def echo(request: Any, content: IO[bytes]) -> Iterator[Any]:
    yield request


def environment(name: str, content: IO[bytes]) -> Iterator[Any]:
    yield [list(os.environ), os.environ.get(name)]


def sleep(seconds: float, content: IO[bytes]) -> Iterator[Any]:
    time.sleep(seconds)
    yield os.getpid()


def many(n: int, content: IO[bytes]) -> Iterator[Any]:
    for _ in range(n):
        yield "x" * 2**20


def huge(request: Any, content: IO[bytes]) -> Iterator[Any]:
    yield b"x" * (2**28 + 1)


def end(how: str, content: IO[bytes]) -> Iterator[Any]:
    if how == "abort":
        os.abort()
    if how == "exit":
        os._exit(0)
    if how == "panic":
        raise BaseException("a panic\nof two lines")
    if how == "print":
        print("not an answer", flush=True)
        os.write(1, b"not an answer")
        yield "an answer"


def try_to(what: str, content: IO[bytes]) -> Iterator[Any]:
    """Yield the error of each attempt."""
    attempts = {
        "read": lambda: open("/etc/passwd").close(),
        "write": lambda: open(f"{sys.prefix}/x", "w").close(),
        "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
        "look up": lambda: socket.getaddrinfo("localhost", 80),
        "run": lambda: subprocess.run(["true"]),
        "system": lambda: os.system("true"),
        "fork": lambda: os.fork() or os._exit(0),
        "remove": lambda: os.remove("/tmp/x"),
        "read root": lambda: open("/proc/self/root/etc/passwd").close(),
        "read environment": lambda: open("/proc/self/environ").close(),
        "read code": lambda: open("/etc/secret.py").close(),
        "read upwards": lambda: open(f"{os.path.dirname(os.__file__)}/../../../../../../../etc/passwd").close(),
        "execute a descriptor": lambda: os.execv("/proc/self/fd/0", ["x"]),
        "rename": lambda: os.rename("/tmp/xmtc-file-x/a", "/tmp/b"),
    }
    try:
        attempts[what]()
        yield "nothing"
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


def upload_without_memfd(request: Any, content: IO[bytes]) -> Iterator[Any]:
    """Read an upload as on systems without memfd."""
    from xmtc.server.files import read_upload

    if hasattr(os, "memfd_create"):
        del os.memfd_create
        tempfile.tempdir = os.environ["TMPDIR"]  # which the child uses at its start
    yield from read_upload(request, content)

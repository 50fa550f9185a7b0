"""Limits of child processes that parse untrusted files: memory, time, output, file access, and end with the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from xmtc.core.child_process import ChildPool, ChildTaskError, TaskLimits
from xmtc.errors import XmtcError

MIB = 2**20
linux = pytest.mark.skipif(
    sys.platform != "linux", reason="the limit on memory and the end with the parent are Linux's"
)


@pytest.fixture
def children():
    found = ChildPool(idle_seconds=0)
    yield found
    found.close()


def run(children: ChildPool, task: str, request=None, content=b"", **limits):
    return list(children.run(f"child_tasks:{task}", request, content, TaskLimits(**limits)))


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends_within(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not is_running(pid)


def test_child_is_reused(children):
    (first,) = run(children, "size", {"a": ["ä"]}, b"x" * (3 * MIB + 1))
    assert first[1:] == [{"a": ["ä"]}, 3 * MIB + 1]
    (second,) = run(children, "size", None, lambda: (b"xy", b"", b"z"))
    assert second == [first[0], None, 3]


@linux
def test_memory_is_limited(children):
    with pytest.raises(ChildTaskError, match=r"^it needs more than 100 MiB of memory, or crashes its reader$"):
        run(children, "allocate", 200 * MIB, memory_bytes=100 * MIB)
    assert run(children, "allocate", 50 * MIB, memory_bytes=100 * MIB) == [50 * MIB]


def test_child_is_killed_after_the_time_limit(children):
    values = children.run("child_tasks:never_end", None, b"", TaskLimits(seconds=0.5))
    pid = next(values)
    begin = time.monotonic()
    with pytest.raises(ChildTaskError, match=r"^it takes longer than 0\.5 seconds$"):
        next(values)
    assert time.monotonic() - begin < 10
    assert ends_within(pid, 10)


def test_time_of_the_consumer_does_not_count(children):
    for value in children.run("child_tasks:many", 4, b"", TaskLimits(seconds=0.5)):
        time.sleep(0.2)
        assert len(value) == MIB


def test_output_is_limited(children):
    with pytest.raises(ChildTaskError, match=r"^it holds more than 3 MiB of text$"):
        run(children, "many", 10**9, output_bytes=3 * MIB)
    with pytest.raises(ChildTaskError, match=r"^it is damaged \(one of its texts is too long\)$"):
        run(children, "huge")


def test_frame_above_the_limit_is_not_read(children):
    from io import BytesIO

    from xmtc.core.child_worker import HEADER, FrameTooLongError, read_frame

    stream = BytesIO(HEADER.pack(b"d", 100) + b"x" * 100)
    with pytest.raises(FrameTooLongError):
        read_frame(stream, 99)
    assert stream.tell() == HEADER.size
    stream.seek(0)
    assert read_frame(stream, 100) == (b"d", b"x" * 100)
    with pytest.raises(ChildTaskError, match=r"^it holds more than 1 MiB of text$"):
        run(children, "many", 1, output_bytes=MIB)
    assert len(run(children, "many", 1, output_bytes=MIB + 2)) == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("abort", "it needs more than 2,048 MiB of memory, or crashes its reader"),
        ("exit", "it needs more than 2,048 MiB of memory, or crashes its reader"),
        ("panic", "it is damaged (a panic of two lines)"),
    ],
)
def test_death_of_a_child_fails_only_its_task(children, how, said):
    with pytest.raises(ChildTaskError) as raised:
        run(children, "end", how)
    assert str(raised.value) == said
    assert run(children, "size")[0][1:] == [None, 0]


def test_output_of_libraries_is_not_a_result(children, capfd):
    assert run(children, "end", "print") == ["an answer"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "what",
    [
        *("read", "write", "connect", "look up", "run", "system", "fork", "remove", "rename"),
        *("read root", "read environment", "read code", "read upwards", "execute a descriptor"),
    ],
)
def test_child_cannot_open_files_or_connections(children, what):
    refused = "PermissionError: it names another file or address, which is not opened"
    assert run(children, "try_to", what) == [refused]


@linux
def test_child_can_open_modules_and_its_own_descriptors():
    from xmtc.core.child_worker import is_open_allowed

    assert is_open_allowed("/proc/self/fd/3", os.O_RDWR)
    assert is_open_allowed(os.__file__, os.O_RDONLY)
    for path in ("/proc/self/fd/3/../../root/etc/passwd", "/proc/self/statm", "/proc/self/fd/", "/proc/1/fd/3"):
        assert not is_open_allowed(path, os.O_RDONLY)


def test_child_environment_has_no_secrets(children, monkeypatch):
    monkeypatch.setenv("XMTC_TOKEN", "secret")
    monkeypatch.setenv("HOME_TOKEN", "secret")
    monkeypatch.setenv("LC_ALL", "C")
    ((names, value),) = run(children, "environment", "LC_ALL")
    assert value == "C"
    assert "PATH" in names
    assert not {"XMTC_TOKEN", "HOME_TOKEN"} & set(names)


@linux
def test_child_starts_if_pipes_cannot_be_enlarged(children, monkeypatch):
    import fcntl

    real = fcntl.fcntl

    def limited(file, command, *rest):
        if command == fcntl.F_SETPIPE_SZ:
            raise PermissionError(1, "Operation not permitted")
        return real(file, command, *rest)

    monkeypatch.setattr(fcntl, "fcntl", limited)
    assert run(children, "size", None, b"x" * (3 * MIB))[0][1:] == [None, 3 * MIB]


def test_text_size_is_counted_in_utf8_bytes(children):
    assert run(children, "echo", ["é" * MIB, "\ud800"], output_bytes=2 * MIB + 100) == [["é" * MIB, "\ud800"]]


def test_error_of_the_content_is_raised(children):
    def content():
        yield b"x" * MIB
        raise XmtcError("The file is damaged.")

    with pytest.raises(XmtcError, match="The file is damaged"):
        run(children, "size", None, content)


def test_task_is_killed_from_another_thread(children):
    task = children.create_task("child_tasks:never_end", None, b"")
    values = task.run()
    pid = next(values)
    threading.Timer(0.1, task.kill).start()
    with pytest.raises(ChildTaskError):
        next(values)
    assert ends_within(pid, 1)
    assert task.child is None


def test_unread_results_end_the_child(children):
    values = children.run("child_tasks:never_end", None, b"")
    pid = next(values)
    values.close()
    assert ends_within(pid, 1)


def test_unused_child_ends_and_is_replaced():
    children = ChildPool(idle_seconds=0.2)
    ((first, *_),) = run(children, "size")
    assert ends_within(first, 2)
    ((second, *_),) = run(children, "size")
    assert second != first
    children.close()
    assert ends_within(second, 1)


PARENT = """
import sys
from xmtc.core.child_process import ChildPool
values = ChildPool(idle_seconds=0).run("child_tasks:never_end", None, b"")
print(next(values), flush=True)
next(values)
"""


@linux
def test_child_ends_with_its_killed_parent():
    place = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": place}
    )
    pid = int(process.stdout.readline())
    assert is_running(pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert ends_within(pid, 2)

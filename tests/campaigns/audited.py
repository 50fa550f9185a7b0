"""Audit hook that records the files, connections and processes that a piece of code opens."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xmtc

INSTALLED = (sys.prefix, sys.base_prefix, str(Path(xmtc.__file__).parent), *(p for p in sys.path if "-packages" in p))
SYSTEM = ("/proc/", "/dev/null", "/etc/localtime", "/usr/share/zoneinfo", "/usr/lib/locale", "/sys/fs/cgroup")
CHILD = "xmtc.core.child_worker"
_seen: list[list[str]] = []  # one list per active watch


def _hook(event: str, arguments: tuple) -> None:
    if not _seen:
        return
    if event == "open" and not isinstance(arguments[0], int):
        said = f"open {os.path.abspath(os.fsdecode(arguments[0]))}"
    elif event == "subprocess.Popen":
        said = f"process {arguments[1]}"
    elif event.startswith(("socket.connect", "socket.getaddrinfo", "socket.bind", "os.system", "os.exec", "os.fork")):
        said = f"{event} {arguments}"
    else:
        return
    for seen in _seen:
        seen.append(said)


sys.addaudithook(_hook)


@contextmanager
def watch_access(*allowed: str | Path) -> Iterator[None]:
    """Raise AssertionError if anything is opened except the allowed places and the Python installation.

    The child processes of xmtc.core.child_process are allowed.
    """
    seen: list[str] = []
    _seen.append(seen)
    try:
        yield
    finally:
        _seen.remove(seen)
    places = tuple(f"open {place}" for place in (*map(str, allowed), *INSTALLED, *SYSTEM))
    nameless = f"open {tempfile.gettempdir()}"  # folder in which a temporary file without a name is created
    seen = [said for said in seen if said != nameless and not (said.startswith("process") and CHILD in said)]
    odd = [said for said in seen if not said.startswith(places)]
    assert not odd, f"something else was opened: {odd[:5]}"

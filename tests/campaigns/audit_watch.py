"""Audit hook that watches a process: imported modules, opened and changed files, new processes and connections.

Everything that the warm-up did not show, outside the folders of a case, is a violation.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CANARY = "xmtc_canary"  # in hostile code: any compilation or import would run the content of a file
CHILD = "xmtc.core.child_worker"  # in the command of child processes that parse untrusted files
FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.startfile", "pty.spawn",
    "socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg",
    "urllib.Request", "webbrowser.open", "ftplib.connect", "http.client.connect", "smtplib.connect", "code.__new__",
)  # fmt: skip
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link", "os.symlink")
CHANGES += ("os.truncate", "shutil.rmtree", "shutil.move", "shutil.copyfile", "shutil.copytree")
PICKLED = ("numba", "numpy", "llvmlite", "xmtc", "builtins", "collections", "functools", "copyreg", "_codecs")
SYSTEM = ("/proc/", "/sys/", "/dev/null", "/dev/shm/")


CALLS: list[str] = []


class Touch:
    """Class of an imported module that no file may call."""

    def __init__(self, *given: Any, **named: Any) -> None:
        CALLS.append(f"call of Touch with {given!r:.100} and {named!r:.100}")


class Watch:
    """Watch of the process; there is only one, because audit hooks cannot be removed."""

    def __init__(self) -> None:
        self.is_on = False
        self.is_warming = False
        self.found: list[str] = []
        self.modules: set[str] = set()  # modules that were imported, or tried, in the warm-up
        self.libraries: set[str] = set()
        self.roots: list[str] = []  # folders that may be read and written
        packages = [sys.prefix, sys.base_prefix, os.path.dirname(os.__file__), str(Path(__file__).parents[2] / "xmtc")]
        caches = [os.environ.get("NUMBA_CACHE_DIR", ""), os.environ.get("XDG_CACHE_HOME", "")]
        self.readable = [os.path.realpath(path) for path in [*packages, *caches] if path]
        sys.addaudithook(self.hook)

    def hook(self, event: str, given: tuple[Any, ...]) -> None:
        if not (self.is_on or self.is_warming):
            return
        if event == "import":
            self.see_import(given[0])
        elif event == "ctypes.dlopen":
            self.see_library(given[0])
        elif self.is_warming:
            return
        elif event == "open":
            self.see_open(*given)
        elif event == "subprocess.Popen":
            if not any(CHILD in str(word) for word in given[1]):
                self.refuse(f"a process: {given[:2]!r:.300}")
        elif event in FORBIDDEN:
            self.refuse(f"{event}: {given!r:.300}")
        elif event in CHANGES:
            self.see_change(event, given)
        elif event == "compile" and CANARY in str(given[0])[:10_000]:
            self.refuse("code of a file was compiled")
        elif event == "pickle.find_class" and not str(given[0]).startswith(PICKLED):
            self.refuse(f"unpickled {given!r:.200}")

    def refuse(self, what: str) -> None:
        """Record a violation and raise."""
        self.found.append(what)
        raise PermissionError(f"the campaign forbids this: {what}")

    def see_import(self, name: str) -> None:
        if self.is_warming:
            self.modules.add(name)
        elif name not in self.modules and not name.startswith("encodings."):
            self.found.append(f"import of {name}")

    def see_library(self, name: Any) -> None:
        if self.is_warming:
            self.libraries.add(str(name))
        elif name is not None and str(name) not in self.libraries:
            self.found.append(f"loading of the library {name}")

    def see_open(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int):
            return
        name = os.fsdecode(path)
        if not os.path.isabs(name) and not os.path.lexists(name):  # relative to an open folder, as in shutil.rmtree
            return
        is_link_refused = isinstance(flags, int) and flags & os.O_NOFOLLOW
        real = os.path.abspath(name) if is_link_refused else os.path.realpath(name)
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if self.is_within(real, self.roots) or (not writes and self.is_within(real, self.readable)):
            return
        if writes and self.is_within(real, self.readable[-2:]):  # caches
            return
        if not name.startswith(SYSTEM):
            self.found.append(f"open of {name} ({mode})")

    def see_change(self, event: str, given: tuple[Any, ...]) -> None:
        if (
            event != "os.truncate" and isinstance(given[-1], int) and given[-1] >= 0
        ):  # relative to an open folder, as in shutil.rmtree
            return
        for name in given[:2] if event in ("os.rename", "shutil.move") else given[:1]:
            if isinstance(name, (str, bytes, os.PathLike)):
                path = os.path.abspath(os.fsdecode(name))
                if not self.is_within(path, [*self.roots, *self.readable[-2:]]):
                    self.found.append(f"{event} of {path}")

    def is_within(self, path: str, roots: list[str]) -> bool:
        return any(path == root or path.startswith(root + os.sep) for root in roots)

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        """Learn what valid models import and load."""
        self.is_warming = True
        try:
            yield
        finally:
            self.is_warming = False

    @contextmanager
    def watching(self, *roots: str | Path) -> Iterator[None]:
        """Raise AssertionError after the block if a violation was seen, even if its error was caught."""
        self.roots = [os.path.realpath(root) for root in roots]
        self.found.clear()
        CALLS.clear()
        self.modules |= sys.modules.keys()
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False
            if self.found or CALLS:
                raise AssertionError("; ".join(dict.fromkeys([*self.found, *CALLS])))


def create_outside_file() -> Path:
    """Create a file that nothing may open and that hostile folders refer to."""
    path = Path(tempfile.gettempdir()) / f"{CANARY}-{os.getpid()}.html"
    path.write_text(f"{CANARY} secret")
    return path

"""Reading of files in untrusted folders: regular files of a bounded size only.

An untrusted folder may contain a FIFO, which blocks its reader, or a link to an endless device or to a private file.
All files of model, vocabulary and encoder folders are therefore opened here. The folder itself may be a link, such as
`models/current -> v3`."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

SAFE_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)
LINK_ERRNOS = (errno.ELOOP, errno.EMLINK)  # the error of O_NOFOLLOW, on Linux and on BSD
HUB_SNAPSHOTS = "snapshots"  # folder of a Hugging Face cache, whose entries are links to ../../blobs


class NotRegularError(OSError):
    """File that exists but must not be read; the message is a phrase."""


def open_regular(folder: str | Path, name: str, max_bytes: int | None = None) -> BufferedReader:
    """Open a regular file that lies in a folder.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    NotRegularError
        If it is a link, a FIFO, a device, a folder, or larger than `max_bytes`.
    """
    path = Path(folder) / name
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():  # Windows
        raise NotRegularError(f"{name} is a link")
    try:
        descriptor = os.open(path, SAFE_FLAGS)
    except OSError as error:
        if error.errno in LINK_ERRNOS:
            raise NotRegularError(f"{name} is a link, expected a regular file") from None
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise NotRegularError(f"{name} is not a regular file") from None
        raise
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise NotRegularError(f"{name} is not a regular file")
        if max_bytes is not None and state.st_size > max_bytes:
            raise NotRegularError(f"{name} has {state.st_size:,} bytes, expected at most {max_bytes:,}")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(folder: str | Path, name: str, max_bytes: int) -> bytes:
    """Return the content of a regular file; see `open_regular` for the errors."""
    with open_regular(folder, name, max_bytes) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:  # it has grown since it was opened
        raise NotRegularError(f"{name} has more than {max_bytes:,} bytes")
    return content


def is_regular(path: Path) -> bool:
    """Return True if the path is a regular file, not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def resolve_links(folder: str | Path, name: str) -> tuple[Path, str]:
    """Return the folder and the name of a file after following its links.

    Links may lead to the same folder or, from a snapshot of a Hugging Face cache, to that model's cache folder.

    Raises
    ------
    NotRegularError
        If a link leads elsewhere.
    """
    root = Path(os.path.realpath(folder))
    allowed = root.parent.parent if root.parent.name == HUB_SNAPSHOTS else root
    target = Path(os.path.realpath(root / name))
    if not target.is_relative_to(allowed):
        raise NotRegularError(f"{name} is a link that leads out of its folder")
    return target.parent, target.name

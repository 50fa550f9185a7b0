"""Files of folders that anyone may have written: regular files of a bounded size, and strict JSON.

A model folder may hold a FIFO, which blocks every reader, a link to a device without end, or a link to a file that
nobody meant to share. So everything that reads a model, vocabulary or encoder folder opens its files here. The folder
itself may be a link, such as `models/current -> v3`."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable
from io import BufferedReader
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

SAFE_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)
LINK_ERRNOS = (errno.ELOOP, errno.EMLINK)  # the error of O_NOFOLLOW, on Linux and on BSD
HUB_SNAPSHOTS = "snapshots"  # folder of a Hugging Face cache, whose entries are links to ../../blobs
MAX_KEY_CHARACTERS = 80  # characters
MAX_DEPTH = 100  # levels of nested JSON; a model of models of models has 30


class NotRegularError(OSError):
    """A file that is there and must not be read; the message is a phrase."""


def open_regular(folder: str | Path, name: str, max_bytes: int | None = None) -> BufferedReader:
    """Open a regular file that lies in a folder.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    NotRegularError
        It is a link, a FIFO, a device, a folder, or larger than `max_bytes`.
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
            raise NotRegularError(f"{name} is no regular file") from None
        raise
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise NotRegularError(f"{name} is no regular file")
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
    if len(content) > max_bytes:  # it has grown meanwhile
        raise NotRegularError(f"{name} has more than {max_bytes:,} bytes")
    return content


def is_regular(path: Path) -> bool:
    """Return True if there is a regular file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def resolve_links(folder: str | Path, name: str) -> tuple[Path, str]:
    """Return the folder and the name of a file after following its links. They may lead to a file in the same folder
    or, from a snapshot of a Hugging Face cache, in that cache's folder of the model.

    Raises NotRegularError for links that lead elsewhere."""
    here = Path(os.path.realpath(folder))
    home = here.parent.parent if here.parent.name == HUB_SNAPSHOTS else here
    target = Path(os.path.realpath(here / name))
    if not target.is_relative_to(home):
        raise NotRegularError(f"{name} is a link that leads out of its folder")
    return target.parent, target.name


def parse_json(content: bytes) -> Any:
    """Parse JSON in UTF-8. Raise ValueError for what other parsers read otherwise, or not at all: NaN, infinity, an
    object with the same key twice, and more than MAX_DEPTH levels of nesting."""
    try:
        found = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=require_distinct_keys,
            parse_constant=reject_constant,
            parse_float=parse_finite_float,
        )
    except RecursionError:
        raise make_depth_error() from None
    level = [found]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in list_inner_values(each)]
        if not level:
            return found
    raise make_depth_error()


def list_inner_values(value: Any) -> Iterable[Any]:
    """Return the values that an object or a list holds."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def make_depth_error() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def require_distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:MAX_KEY_CHARACTERS]!r} stands twice in an object")
    return found


def reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def parse_finite_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number

"""Compiled functions: `kernel` lets other threads work beside it; `fast_kernel` also takes numbers to be finite and may
fuse multiplications with additions. It may not reorder sums: whether the compiler's code does so depends on where the
arrays happen to lie in memory, and the same seed must give the same bytes.

What was compiled is kept between runs, beside the source or in the user's cache. Where neither can be written to, as in
a container that is read-only, it is kept in a temporary folder of this user's own, or else compiled in every run."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit

SETTINGS: Any = numba.config
FINITE = {"nnan", "ninf", "nsz", "arcp", "contract", "afn"}  # all of fastmath but "reassoc"


def kernel(function: Callable) -> Any:
    return compiled(function)


def fast_kernel(function: Callable) -> Any:
    return compiled(function, fastmath=FINITE)


def compiled(function: Callable, **options: Any) -> Any:
    try:
        return njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # numba found no folder that it can write to
        folder = private_folder()
        if folder is not None and folder != SETTINGS.CACHE_DIR:
            SETTINGS.CACHE_DIR = folder
            return compiled(function, **options)
        return njit(nogil=True, **options)(function)


def private_folder() -> str | None:
    """A temporary folder that nobody else can write to, because what lies in it will be executed. None where that
    cannot be made sure of, as on Windows, whose folders do not say whose they are."""
    if not hasattr(os, "getuid"):
        return None
    try:
        folder = Path(tempfile.gettempdir()) / f"xmtc-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return str(folder) if is_ours else None

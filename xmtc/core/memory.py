"""How much memory there is, to say that something will not fit before it takes what there is; and giving it back."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from xmtc.errors import XmtcError

if TYPE_CHECKING:
    import numpy as np

MIB, GIB = 2**20, 2**30
MIN_LOAD_BYTES = 512 * MIB  # of address space that the libraries of the smallest command take: on two cores 450 to 600
MIN_WORK_BYTES = 192 * MIB  # with less, a thread's first step, or the compiler's, ends the process without a word
MIN_TRIM_BYTES = 32 * MIB  # that are worth giving back
STATM = Path("/proc/self/statm")
CGROUP_MEMORY_FILE = Path("/sys/fs/cgroup/memory.max")


def get_memory_limit() -> float:
    """Bytes that this process may use at most, as far as the system tells."""
    limits = [float("inf")]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if CGROUP_MEMORY_FILE.exists() and (limit := CGROUP_MEMORY_FILE.read_text().strip()).isdigit():
        limits.append(int(limit))
    return min([*limits, *get_address_space_limits()])


def get_address_space_limits() -> list[float]:
    """What `ulimit -v` leaves this process, if it sets a limit."""
    try:
        import resource
    except ImportError:  # another system
        return []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if limit == resource.RLIM_INFINITY else [float(limit)]


def check_address_space() -> None:
    """Refuse to begin where a limit leaves so little that libraries would not say so, but end the process or, as
    OpenBLAS does, try for ever."""
    limits = get_address_space_limits()
    if not limits or not STATM.exists():
        return
    left = limits[0] - int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    needed = MIN_WORK_BYTES if "numba" in sys.modules else MIN_LOAD_BYTES
    if left < needed:
        raise XmtcError(
            f"The limit of memory that is set (ulimit -v) leaves {max(left, 0) / MIB:,.0f} MiB, but at least "
            f"{needed / MIB:,.0f} MiB are needed to begin; raise the limit."
        )


def check_fits(needed: float, what: str, remedy: str, available: float | None = None) -> None:
    """Refuse, in a sentence, what would take more bytes than there are."""
    most = get_memory_limit() if available is None else available
    if needed > most:
        takes, there_are = (f"{size / GIB:,.1f} GiB" for size in (needed, most))
        raise XmtcError(f"{what} would take {takes} of memory, of which there are {there_are}; {remedy}.")


def trim_heap() -> None:
    """What is free, to the system. glibc keeps what was taken in small pieces; other libraries have no such word."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


def concatenate_and_free(parts: list[np.ndarray]) -> np.ndarray:
    """All parts in one; each is let go as soon as it is copied, so that there is never room for all of them twice."""
    import numpy as np

    whole = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    begin, n_free = 0, MIN_TRIM_BYTES if whole.nbytes > MIN_TRIM_BYTES else 0  # what was let go before may be kept, too
    parts.reverse()
    while parts:
        part = parts.pop()
        whole[begin : begin + len(part)] = part
        begin, n_free = begin + len(part), n_free + part.nbytes
        if n_free > MIN_TRIM_BYTES:
            del part
            trim_heap()
            n_free = 0
    return whole

"""Memory limits, checks before large allocations, and release of freed memory."""

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
MIN_LOAD_BYTES = 512 * MIB  # address space of the libraries that the smallest command loads
MIN_WORK_BYTES = 192 * MIB  # with less, starting a thread or the compiler may kill the process silently
MIN_TRIM_BYTES = 32 * MIB  # freed memory that is worth returning to the system
STATM = Path("/proc/self/statm")
CGROUP_MEMORY_FILE = Path("/sys/fs/cgroup/memory.max")


def get_memory_limit() -> float:
    """Return the memory that this process may use, in bytes; infinity if unknown."""
    limits = [float("inf")]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if CGROUP_MEMORY_FILE.exists() and (limit := CGROUP_MEMORY_FILE.read_text().strip()).isdigit():
        limits.append(int(limit))
    return min([*limits, *get_address_space_limits()])


def get_address_space_limits() -> list[float]:
    """Return a list with the limit of `ulimit -v` in bytes, or an empty one if there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if limit == resource.RLIM_INFINITY else [float(limit)]


def check_address_space() -> None:
    """Raise XmtcError if `ulimit -v` leaves too little memory for the libraries.

    They would kill the process or, like OpenBLAS, retry forever."""
    limits = get_address_space_limits()
    if not limits or not STATM.exists():
        return
    left = limits[0] - int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    needed = MIN_WORK_BYTES if "numba" in sys.modules else MIN_LOAD_BYTES
    if left < needed:
        raise XmtcError(
            f"The memory limit (ulimit -v) leaves {max(left, 0) / MIB:,.0f} MiB; expected at least "
            f"{needed / MIB:,.0f} MiB: raise the limit."
        )


def check_fits(needed: float, what: str, remedy: str, available: float | None = None) -> None:
    """Raise XmtcError if `what` needs more bytes than are available."""
    limit = get_memory_limit() if available is None else available
    if needed > limit:
        raise XmtcError(
            f"{what} would need {needed / GIB:,.1f} GiB of memory, but only {limit / GIB:,.1f} GiB are "
            f"available; {remedy}."
        )


def trim_heap() -> None:
    """Return freed memory to the system, which glibc keeps otherwise; do nothing with other C libraries."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


def concatenate_and_free(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate arrays, freeing each after its copy, so that they are never all in memory twice; empties `parts`."""
    import numpy as np

    result = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    begin, n_free = 0, MIN_TRIM_BYTES if result.nbytes > MIN_TRIM_BYTES else 0  # earlier freed memory may be held, too
    parts.reverse()
    while parts:
        part = parts.pop()
        result[begin : begin + len(part)] = part
        begin, n_free = begin + len(part), n_free + part.nbytes
        if n_free > MIN_TRIM_BYTES:
            del part
            trim_heap()
            n_free = 0
    return result

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
TO_LOAD = 512 * MIB  # of address space that the libraries of the smallest command take: on two cores 450 to 600
TO_WORK = 192 * MIB  # with less, a thread's first step, or the compiler's, ends the process without a word
MUCH = 32 * MIB  # that are worth giving back
STATM = Path("/proc/self/statm")
CGROUP = Path("/sys/fs/cgroup/memory.max")


def memory() -> float:
    """Bytes that this process may use at most, as far as the system tells."""
    limits = [float("inf")]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if CGROUP.exists() and (limit := CGROUP.read_text().strip()).isdigit():
        limits.append(int(limit))
    return min([*limits, *address_space()])


def address_space() -> list[float]:
    """What `ulimit -v` leaves this process, if it sets a limit."""
    try:
        import resource
    except ImportError:  # another system
        return []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if limit == resource.RLIM_INFINITY else [float(limit)]


def check_room() -> None:
    """Refuse to begin where a limit leaves so little that libraries would not say so, but end the process or, as
    OpenBLAS does, try for ever."""
    limits = address_space()
    if not limits or not STATM.exists():
        return
    left = limits[0] - int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    needed = TO_WORK if "numba" in sys.modules else TO_LOAD
    if left < needed:
        raise XmtcError(
            f"The limit of memory that is set (ulimit -v) leaves {max(left, 0) / MIB:,.0f} MiB, but at least "
            f"{needed / MIB:,.0f} MiB are needed to begin; raise the limit."
        )


def check_fits(needed: float, what: str, remedy: str, available: float | None = None) -> None:
    """Refuse, in a sentence, what would take more bytes than there are."""
    most = memory() if available is None else available
    if needed > most:
        takes, there_are = (f"{size / GIB:,.1f} GiB" for size in (needed, most))
        raise XmtcError(f"{what} would take {takes} of memory, of which there are {there_are}; {remedy}.")


def give_back() -> None:
    """What is free, to the system. glibc keeps what was taken in small pieces; other libraries have no such word."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


def poured_together(parts: list[np.ndarray]) -> np.ndarray:
    """All parts in one; each is let go as soon as it is copied, so that there is never room for all of them twice."""
    import numpy as np

    whole = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    begin, n_free = 0, MUCH if whole.nbytes > MUCH else 0  # what was let go before may be kept, too
    parts.reverse()
    while parts:
        part = parts.pop()
        whole[begin : begin + len(part)] = part
        begin, n_free = begin + len(part), n_free + part.nbytes
        if n_free > MUCH:
            del part
            give_back()
            n_free = 0
    return whole

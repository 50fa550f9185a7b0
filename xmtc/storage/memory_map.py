"""Files as arrays, of which only what is looked at is read."""

from __future__ import annotations

import mmap
import sys
from typing import IO, Any

import numpy as np

MAP_NORESERVE = 0x4000  # of Linux on all common machines; Python does not name it before 3.13


def map_file(file: IO[bytes], dtype: Any, begin: int = 0, n: int = -1) -> np.ndarray:
    """n numbers of a file, or all, from a byte on. Copy-on-write, because compiled kernels take writable arrays and
    read-only ones for two types and would be compiled twice; nothing ever writes. So no memory is reserved for what
    would be written, without which Linux maps no file that is larger than memory."""
    dtype, first = np.dtype(dtype), begin - begin % mmap.ALLOCATIONGRANULARITY
    length = 0 if n < 0 else begin - first + n * dtype.itemsize  # 0: to the end
    if sys.platform == "linux":
        kind: dict[str, int] = {"flags": mmap.MAP_PRIVATE | MAP_NORESERVE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
    else:
        kind = {"access": mmap.ACCESS_COPY}
    return np.frombuffer(mmap.mmap(file.fileno(), length, **kind, offset=first), dtype, n, begin - first)

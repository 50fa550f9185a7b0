"""What a machine of the cluster does: some items at a time, by one thread unless more were asked for."""

from __future__ import annotations

import pickle
import platform
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import xmtc
from xmtc.cluster.transfer import unpack_value
from xmtc.errors import XmtcError

WORK_CACHE: dict[str, Any] = {}  # the work that this process did last, by its name: it is unpacked once


def process_items(version: str, name: str, work: bytes, items: bytes, n_arrays: int, *arrays: np.ndarray) -> bytes:
    """The answers to some items, and the seconds that they took. Where one fails, those to the items before it: whoever
    asks again, for it and the rest, is told why. The first n_arrays belong to the work, the others to the items; Ray
    has brought them here."""
    check_version(version)
    if name not in WORK_CACHE:
        WORK_CACHE.clear()
        threadpool_limits(1, "blas")  # its number of threads may change a digit
        WORK_CACHE[name] = unpack_value(work, arrays[:n_arrays])
    begin, function, answers = time.perf_counter(), WORK_CACHE[name], []
    for item in unpack_value(items, arrays[n_arrays:]):
        try:
            answers.append(function(item))
        except Exception:
            if not answers:
                raise
            break
    return pickle.dumps((time.perf_counter() - begin, answers), protocol=5)


def check_version(version: str) -> None:
    if version != xmtc.__version__:
        raise XmtcError(
            f"{platform.node()} has xmtc {xmtc.__version__}, and this machine {version}; install the same on all "
            "machines of the cluster."
        )

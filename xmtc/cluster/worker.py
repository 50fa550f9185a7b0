"""Ray task that processes a batch of items on one thread."""

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

WORK_CACHE: dict[str, Any] = {}  # the last unpickled function, by its id


def process_items(version: str, name: str, work: bytes, items: bytes, n_arrays: int, *arrays: np.ndarray) -> bytes:
    """Return the pickled duration and results of a batch of items.

    If an item after the first fails, return the results before it; submitted again, that item raises its error.

    Parameters
    ----------
    version : str
        Version of xmtc on the driver.
    name : str
        Id of the function.
    work, items : bytes
        Pickled function and items.
    n_arrays : int
        Number of leading arrays that belong to the function; the others belong to the items.
    *arrays : ndarray
        Shared arrays.
    """
    check_version(version)
    if name not in WORK_CACHE:
        WORK_CACHE.clear()
        threadpool_limits(1, "blas")  # the number of BLAS threads can change the last digit
        WORK_CACHE[name] = unpack_value(work, arrays[:n_arrays])
    begin, function, results = time.perf_counter(), WORK_CACHE[name], []
    for item in unpack_value(items, arrays[n_arrays:]):
        try:
            results.append(function(item))
        except Exception:
            if not results:
                raise
            break
    return pickle.dumps((time.perf_counter() - begin, results), protocol=5)


def check_version(version: str) -> None:
    if version != xmtc.__version__:
        raise XmtcError(
            f"{platform.node()} has xmtc {xmtc.__version__}, but this machine has {version}; install the same "
            "version on all machines of the cluster."
        )

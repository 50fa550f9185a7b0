"""Limits of processor time for tests, which other work on the machine does not lengthen as it does elapsed time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def get_cpu_seconds() -> float:
    """Return the processor time of this process and of its ended children."""
    return sum(os.times()[:4])


@contextmanager
def limited_cpu_time(seconds: float) -> Iterator[None]:
    """Fail if the block takes this processor time or more."""
    begin = get_cpu_seconds()
    yield
    used = get_cpu_seconds() - begin
    assert used < seconds, f"{used:.2f} seconds of processor time, expected less than {seconds}"

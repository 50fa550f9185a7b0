"""A file is read and decompressed while the program that will work on it is still being loaded: NumPy, SciPy and numba
take a second, in which all other threads are idle. What is here must not need any of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from xmtc.core.prefetch import PrefetchIterator
from xmtc.data.file_streams import Block, OnRead, read_blocks, without_compression

IN_BLOCKS = (".jsonl", ".ndjson")  # files that are read so
MOST = 32  # blocks that wait: as many as 16 threads work on at a time


class Fetched:
    """The blocks of a file, which it has begun to read."""

    def __init__(self, path: str) -> None:
        self.n_bytes = self.n_told = 0
        self.on_read: OnRead = lambda n: None
        self.blocks = PrefetchIterator(read_blocks(path, self._count), MOST)

    def _count(self, n: int) -> None:
        self.n_bytes += n

    def __iter__(self) -> Iterator[Block]:
        for block in self.blocks:
            n_new = self.n_bytes - self.n_told
            self.n_told += n_new
            self.on_read(n_new)
            yield block

    def close(self) -> None:
        self.blocks.close()


UNDER_WAY: dict[str, Fetched] = {}


@contextmanager
def fetching(path: str) -> Iterator[None]:
    """Begin to read a file that will be read in blocks; what nobody has taken at the end is let go of."""
    if without_compression(path).lower().endswith(IN_BLOCKS) and os.path.isfile(path):
        UNDER_WAY[path] = Fetched(path)
    try:
        yield
    finally:
        drop(path)


def take(path: str, on_read: OnRead | None) -> Fetched | None:
    """What was fetched of a file; None if nothing was, or somebody else has it."""
    found = UNDER_WAY.pop(path, None)
    if found is not None and on_read is not None:
        found.on_read = on_read
    return found


def drop(path: str) -> None:
    """Whoever reads a file in another way needs none of it."""
    found = UNDER_WAY.pop(path, None)
    if found is not None:
        found.close()

"""A file is read and decompressed while the program that will work on it is still being loaded: NumPy, SciPy and numba
take a second, in which all other threads are idle. What is here must not need any of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from xmtc.core.threads import PrefetchIterator
from xmtc.data.file_streams import LineBlock, OnRead, read_blocks, strip_compression_extension

PREFETCH_EXTENSIONS = (".jsonl", ".ndjson")  # files that are read so
MAX_PREFETCHED_BLOCKS = 32  # blocks that wait: as many as 16 threads work on at a time


class PrefetchedFile:
    """The blocks of a file, which it has begun to read."""

    def __init__(self, path: str) -> None:
        self.n_bytes = self.n_reported = 0
        self.on_read: OnRead = lambda n: None
        self.blocks = PrefetchIterator(read_blocks(path, self._count), MAX_PREFETCHED_BLOCKS)

    def _count(self, n: int) -> None:
        self.n_bytes += n

    def __iter__(self) -> Iterator[LineBlock]:
        for block in self.blocks:
            n_new = self.n_bytes - self.n_reported
            self.n_reported += n_new
            self.on_read(n_new)
            yield block

    def close(self) -> None:
        self.blocks.close()


ACTIVE_PREFETCHES: dict[str, PrefetchedFile] = {}


@contextmanager
def prefetch_file(path: str) -> Iterator[None]:
    """Begin to read a file that will be read in blocks; what nobody has taken at the end is let go of."""
    if strip_compression_extension(path).lower().endswith(PREFETCH_EXTENSIONS) and os.path.isfile(path):
        ACTIVE_PREFETCHES[path] = PrefetchedFile(path)
    try:
        yield
    finally:
        discard_prefetched(path)


def take_prefetched(path: str, on_read: OnRead | None) -> PrefetchedFile | None:
    """What was fetched of a file; None if nothing was, or somebody else has it."""
    found = ACTIVE_PREFETCHES.pop(path, None)
    if found is not None and on_read is not None:
        found.on_read = on_read
    return found


def discard_prefetched(path: str) -> None:
    """Whoever reads a file in another way needs none of it."""
    found = ACTIVE_PREFETCHES.pop(path, None)
    if found is not None:
        found.close()

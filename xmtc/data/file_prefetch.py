"""Reading and decompressing a file while the program still imports its libraries.

NumPy, SciPy and numba take a second to import, during which other threads are idle. This module imports none of
them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from xmtc.core.threads import PrefetchIterator
from xmtc.data.file_streams import BLOCK_BYTES, LineBlock, OnRead, read_blocks, strip_compression_extension

PREFETCH_EXTENSIONS = (".jsonl", ".ndjson")
MAX_PREFETCHED_BLOCKS = 32  # as many as 16 threads process at a time


class PrefetchedFile:
    """Blocks of lines of a file, read in a background thread."""

    def __init__(self, path: str, block_bytes: int = BLOCK_BYTES) -> None:
        self.n_bytes = self.n_reported = 0
        self.on_read: OnRead = lambda n: None
        self.blocks = PrefetchIterator(read_blocks(path, self._count, size=block_bytes), MAX_PREFETCHED_BLOCKS)

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
def prefetch_file(path: str, block_bytes: int = BLOCK_BYTES) -> Iterator[None]:
    """Start to read a JSON Lines file in the background; close it at the end if no reader has taken it."""
    if strip_compression_extension(path).lower().endswith(PREFETCH_EXTENSIONS) and os.path.isfile(path):
        ACTIVE_PREFETCHES[path] = PrefetchedFile(path, block_bytes)
    try:
        yield
    finally:
        discard_prefetched(path)


def take_prefetched(path: str, on_read: OnRead | None) -> PrefetchedFile | None:
    """Return the prefetched file and leave it to the caller; None if there is none."""
    prefetched = ACTIVE_PREFETCHES.pop(path, None)
    if prefetched is not None and on_read is not None:
        prefetched.on_read = on_read
    return prefetched


def discard_prefetched(path: str) -> None:
    """Close a prefetched file that is read in another way."""
    prefetched = ACTIVE_PREFETCHES.pop(path, None)
    if prefetched is not None:
        prefetched.close()

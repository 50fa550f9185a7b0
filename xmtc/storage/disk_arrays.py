"""Arrays that may be larger than memory: written to a working directory and then memory-mapped.

The files have no names, so that the system removes them when the arrays are freed or the process ends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np

from xmtc.core.memory import concatenate_and_free
from xmtc.errors import XmtcError
from xmtc.storage.array_file import map_file
from xmtc.storage.atomic import describe_error


def check_workdir(folder: Path) -> None:
    """Raise XmtcError if the working directory cannot be written to."""
    WorkFile(folder).append(np.zeros(1, np.uint8))


class WorkFile:
    """Unnamed file in a folder, to which arrays are appended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.size, self.lock = folder, 0, Lock()
        if os.path.lexists(folder) and not folder.is_dir():
            raise XmtcError(f"{folder} is a file; expected a directory: choose another one for --workdir.")
        try:  # stays open while one of its arrays is in use
            folder.mkdir(parents=True, exist_ok=True)
            self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        except OSError as error:
            raise self.as_workdir_error(error) from None

    def append(self, array: np.ndarray) -> int:
        """Append an array and return the offset of its first byte."""
        with self.lock:
            begin = self.size
            try:
                self.file.write(np.ascontiguousarray(array).data)
                self.file.flush()
            except OSError as error:
                raise self.as_workdir_error(error) from None
            self.size += array.nbytes
            return begin

    def map_range(self, begin: int, n: int, dtype: np.dtype) -> np.ndarray:
        """Return n numbers from a byte offset on, memory-mapped."""
        return map_file(self.file, dtype, begin, n) if n else np.empty(0, dtype)

    def as_workdir_error(self, error: OSError) -> XmtcError:
        return XmtcError(
            f"{self.folder} cannot be written ({describe_error(error)}); free disk space, or choose another directory "
            "for --workdir."
        )


class ArrayStore:
    """Store of arrays in memory or, with a folder, in a file."""

    def __init__(self, folder: Path | None) -> None:
        self.file = None if folder is None else WorkFile(folder)

    def put(self, array: np.ndarray) -> Callable[[], np.ndarray]:
        """Store an array, and return a function that returns it."""
        if self.file is None:
            return lambda: array
        file, begin, n, dtype = self.file, self.file.append(array), len(array), array.dtype
        return lambda: np.array(file.map_range(begin, n, dtype))


class PreallocatedArray:
    """Array of n numbers, filled piece by piece, in memory or, with a folder, in a file."""

    def __init__(self, n: int, dtype: Any, folder: Path | None) -> None:
        self.n, self.dtype, self.n_filled = n, np.dtype(dtype), 0
        self.file = None if folder is None else WorkFile(folder)
        self.array = np.empty(n if folder is None else 0, dtype)  # untouched memory is not allocated

    def prepare_write(self, piece: np.ndarray) -> Callable[[], None]:
        """Reserve the next place, and return a function that copies the piece there, callable from any thread.

        With a file, the piece is written at once."""
        begin, self.n_filled = self.n_filled, self.n_filled + len(piece)
        if self.file is None:
            return partial(np.copyto, self.array[begin : self.n_filled], piece)
        self.file.append(piece.astype(self.dtype, copy=False))
        return do_nothing

    def to_array(self) -> np.ndarray:
        assert self.n_filled == self.n
        return self.array if self.file is None else self.file.map_range(0, self.n, self.dtype)


def do_nothing() -> None:
    pass


class ArrayCollector:
    """Array of any number of pieces, in memory or, with a folder, in a file."""

    def __init__(self, folder: Path | None) -> None:
        self.file = None if folder is None else WorkFile(folder)
        self.pieces: list[np.ndarray] = []  # with a file the last one only, for its shape and type
        self.lengths: list[int] = []

    def add(self, piece: np.ndarray) -> None:
        self.lengths.append(len(piece))
        if self.file is not None:
            self.file.append(piece)
            self.pieces.clear()
        self.pieces.append(piece)

    def to_array(self) -> np.ndarray:
        """Concatenate all pieces and free them."""
        if self.file is None:
            return concatenate_and_free(self.pieces)
        shape, dtype = self.pieces[0].shape[1:], self.pieces[0].dtype
        n = sum(self.lengths) * int(np.prod(shape, dtype=np.int64))
        return self.file.map_range(0, n, dtype).reshape(-1, *shape)

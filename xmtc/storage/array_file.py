"""Memory-mapped arrays of files, among them safetensors files."""

from __future__ import annotations

import math
import mmap
import os
import sys
from typing import IO, Any

import numpy as np

from xmtc.storage.json_types import parse_json

MAP_NORESERVE = 0x4000  # of Linux; Python has no name for it before 3.13


def map_file(file: IO[bytes], dtype: Any, begin: int = 0, n: int = -1) -> np.ndarray:
    """Return n numbers of a file from a byte offset on, or all if n is negative, memory-mapped.

    The mapping is copy-on-write although nothing writes to it, because numba compiles kernels again for read-only
    arrays. On Linux no memory is reserved for the copies, so that files larger than memory can be mapped."""
    dtype, first = np.dtype(dtype), begin - begin % mmap.ALLOCATIONGRANULARITY
    length = 0 if n < 0 else begin - first + n * dtype.itemsize  # 0: to the end
    if sys.platform == "linux":
        kind: dict[str, int] = {"flags": mmap.MAP_PRIVATE | MAP_NORESERVE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
    else:
        kind = {"access": mmap.ACCESS_COPY}
    return np.frombuffer(mmap.mmap(file.fileno(), length, **kind, offset=first), dtype, n, begin - first)


DTYPES = {
    "BOOL": "?", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "<u1", "U16": "<u2", "U32": "<u4",
    "U64": "<u8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
MAX_HEADER_BYTES = 2**24  # a model has some hundred arrays, each described in a hundred bytes
MAX_DIMENSIONS = 8
METADATA = "__metadata__"


def map_arrays(file: IO[bytes], expected_size: int) -> dict[str, np.ndarray]:
    """Return every array of an open safetensors file by its name. Raise ValueError if the file is not one."""
    size = os.fstat(file.fileno()).st_size
    if size != expected_size:
        raise ValueError(f"it has {size} bytes instead of {expected_size}")
    content = map_file(file, np.uint8)
    header_bytes = int.from_bytes(content[:8].tobytes(), "little")
    if header_bytes > min(MAX_HEADER_BYTES, size - 8):
        raise ValueError(f"its header has {header_bytes:,} bytes, expected at most {MAX_HEADER_BYTES:,}")
    header_end = 8 + header_bytes
    header = parse_json(content[8:header_end].tobytes())
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    entries = {name: entry for name, entry in header.items() if name != METADATA}
    check_byte_ranges([parse_byte_range(entry) for entry in entries.values()], size - header_end)
    return {name: map_array(content, header_end, entry) for name, entry in entries.items()}


def parse_byte_range(entry: Any) -> tuple[int, int]:
    """Return the first byte of an array and the one after its last, counted from the end of the header."""
    begin, end = entry["data_offsets"]
    if not is_size_list([begin, end]):
        raise ValueError("the offsets of an array are not whole numbers")
    return begin, end


def check_byte_ranges(ranges: list[tuple[int, int]], size: int) -> None:
    """Raise ValueError for overlapping arrays and unused bytes, which the safetensors format forbids."""
    position = 0
    for begin, end in sorted(ranges):
        if begin != position or end < begin:
            raise ValueError("its arrays overlap, or do not follow each other")
        position = end
    if position != size:
        raise ValueError(f"its arrays end at byte {position} of {size}")


def is_size_list(values: list[Any]) -> bool:
    return all(type(value) is int and 0 <= value < 2**63 for value in values)


def map_array(content: np.ndarray, header_end: int, entry: dict[str, Any]) -> np.ndarray:
    begin, end = parse_byte_range(entry)
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), entry["shape"]
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not is_size_list(shape):
        raise ValueError("the shape of an array is not a list of sizes")
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} does not fit its offsets in the file")
    array: np.ndarray = np.ndarray(shape, dtype, content.data, header_end + begin)
    if not array.flags.aligned:  # numba would compile kernels again for it
        raise ValueError(f"an array of shape {shape} is not aligned in the file")
    return array

"""Batches of documents as a few arrays, for compiled code that must not create a Python object per document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Texts:
    """Texts as concatenated UTF-8 bytes."""

    data: np.ndarray  # uint8; may be read-only
    offsets: np.ndarray  # (n + 1,) int64; text i is data[offsets[i]:offsets[i + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> str:
        return bytes(self.data[self.offsets[number] : self.offsets[number + 1]]).decode()

    def __contains__(self, text: object) -> bool:
        return any(text == other for other in self)

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    @classmethod
    def from_strings(cls, texts: Iterable[str]) -> Texts:
        if isinstance(texts, cls):
            return texts
        return cls(*concatenate_bytes([text.encode("utf-8", "replace") for text in texts]))


@dataclass(frozen=True)
class DocumentBatch:
    """Texts with their labels; label ids are positions in the batch's own list of label names."""

    texts: Texts
    label_names: pyarrow.StringArray  # distinct
    label_ids: np.ndarray  # (n_assignments,) int32, document by document
    label_offsets: np.ndarray  # (n_docs + 1,) int64; document i has label_ids[label_offsets[i]:label_offsets[i + 1]]
    ids: pyarrow.Array | None = None  # strings or integers; null for documents without an id

    def __len__(self) -> int:
        return len(self.texts)


def concatenate_bytes(parts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated bytes as a uint8 array, and offsets of shape (n_parts + 1,).

    The array is writable: numba has a separate type for read-only arrays and would compile every function twice."""
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.frombuffer(bytearray().join(parts), np.uint8), offsets


def as_int32_view(array: Any, n: int) -> np.ndarray:
    """Return the first n int32 values (or offsets) of a pyarrow array without copying.

    pyarrow's `to_numpy` imports pandas if it is installed, which takes half a second and blocks all threads."""
    return np.frombuffer(array.buffers()[1] or b"", np.int32)[array.offset : array.offset + n]

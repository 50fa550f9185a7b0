"""Many documents in a few arrays: what compiled code works on, without a Python object for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Texts:
    """Texts as UTF-8, end to end."""

    data: np.ndarray  # uint8; may be read-only
    offsets: np.ndarray  # (n + 1,) int64, text i is text[ends[i]:ends[i + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> str:
        return bytes(self.data[self.offsets[number] : self.offsets[number + 1]]).decode()

    def __contains__(self, text: object) -> bool:
        return any(text == each for each in self)

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    @classmethod
    def from_strings(cls, texts: Iterable[str]) -> Texts:
        return (
            texts
            if isinstance(texts, cls)
            else cls(*concatenate_bytes([text.encode("utf-8", "replace") for text in texts]))
        )


@dataclass(frozen=True)
class DocumentBatch:
    """Documents with their labels, which are numbered in the order in which the batch names them."""

    texts: Texts
    label_names: pyarrow.StringArray  # of the labels, each once
    label_ids: np.ndarray  # (n,) int32, the numbers of all documents' labels, one after the other
    label_offsets: np.ndarray  # (n_docs + 1,) int64, document i has labels[starts[i]:starts[i + 1]], each once

    def __len__(self) -> int:
        return len(self.texts)


def concatenate_bytes(parts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Words or texts in one array, and where each begins and ends. The array can be written to, because numba takes
    read-only ones for a type of their own and would compile everything twice."""
    ends = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=ends[1:])
    return np.frombuffer(bytearray().join(parts), np.uint8), ends


def as_int32_view(array: Any, n: int) -> np.ndarray:
    """The first n numbers in the memory of an array of pyarrow, or of where its items begin. Its own `to_numpy` imports
    pandas where that is installed: half a second, in which no other thread can work."""
    return np.frombuffer(array.buffers()[1] or b"", np.int32)[array.offset : array.offset + n]

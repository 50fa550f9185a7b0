"""Words and their numbers in three flat arrays, so that a vocabulary of any size opens by memory-mapping: the words'
UTF-8 bytes end to end, where each ends, and an open-addressing hash table of word numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xmtc.compiled import kernel

FREE = -1  # an empty slot of the hash table


@dataclass(frozen=True)
class Vocabulary:
    text: NDArray[np.uint8]  # all words end to end
    ends: NDArray[np.int64]  # (n + 1,) word i is text[ends[i]:ends[i + 1]]
    table: NDArray[np.int32]  # a power of two long and at most half full

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: int) -> str:
        return bytes(self.text[self.ends[number] : self.ends[number + 1]]).decode(errors="replace")

    def words(self) -> list[str]:
        text, ends = bytes(self.text), self.ends.tolist()
        return [text[start:end].decode(errors="replace") for start, end in pairwise(ends)]

    def check(self) -> None:
        """Refuse what a search could not come to an end in, or what would lead it out of the arrays."""
        flat = self.text.ndim == self.ends.ndim == self.table.ndim == 1
        if not flat or not len(self.ends) or self.ends[0] < 0 or self.ends[-1] > len(self.text):
            raise ValueError("its words do not lie within their text")
        if (self.ends[1:] < self.ends[:-1]).any():
            raise ValueError("some of its words end before they begin")
        if len(self.table).bit_count() != 1 or self.table.min() != FREE or self.table.max() >= len(self):
            raise ValueError("its table of words points beyond the words or has no free slot")

    def find(self, text: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The numbers of words given as bytes and ends; FREE for those that are not in the vocabulary."""
        return find_words(self.text, self.ends, self.table, text, ends)

    @classmethod
    def of(cls, words: Iterable[str]) -> Vocabulary:
        """Distinct words, numbered in the order given."""
        return cls.from_bytes([word.encode("utf-8", "replace") for word in words])

    @classmethod
    def from_bytes(cls, words: list[bytes]) -> Vocabulary:
        text = np.frombuffer(b"".join(words), np.uint8)
        ends = np.zeros(len(words) + 1, np.int64)
        np.cumsum([len(word) for word in words], out=ends[1:])
        return cls(text, ends, hash_table(text, ends))


@kernel
def hash_bytes(text, start, end):
    """FNV-1a."""
    h = np.uint64(14695981039346656037)
    for i in range(start, end):
        h = (h ^ np.uint64(text[i])) * np.uint64(1099511628211)
    return h ^ (h >> np.uint64(32))  # the table takes the low bits: fold the high ones in


@kernel
def find_slot(text, ends, table, key, start, end, h):
    """Where the word key[start:end] stands in the table, or the free slot where it would."""
    mask = np.uint64(len(table) - 1)
    slot = h & mask
    while True:
        word = table[slot]
        if word == FREE:
            return slot
        begin, length = ends[word], ends[word + 1] - ends[word]
        if length == end - start:
            same = True
            for i in range(length):
                if text[begin + i] != key[start + i]:
                    same = False
                    break
            if same:
                return slot
        slot = (slot + np.uint64(1)) & mask


@kernel
def hash_table(text, ends):
    """A table for distinct words, at most half full."""
    n = len(ends) - 1
    size = 16
    while size < 2 * n:
        size *= 2
    table = np.full(size, FREE, np.int32)
    for word in range(n):
        h = hash_bytes(text, ends[word], ends[word + 1])
        table[find_slot(text, ends, table, text, ends[word], ends[word + 1], h)] = word
    return table


@kernel
def find_words(text, ends, table, keys, key_ends):
    numbers = np.empty(len(key_ends) - 1, np.int32)
    for i in range(len(numbers)):
        h = hash_bytes(keys, key_ends[i], key_ends[i + 1])
        numbers[i] = table[find_slot(text, ends, table, keys, key_ends[i], key_ends[i + 1], h)]
    return numbers

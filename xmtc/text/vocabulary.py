"""Words and their numbers in three flat arrays, so that a vocabulary of any size opens by memory-mapping: the words'
UTF-8 bytes end to end, where each ends, and an open-addressing hash table of word numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from xmtc.base.form import Form, array
from xmtc.compiled import kernel

FREE = -1  # an empty slot of the hash table


@dataclass(frozen=True)
class Vocabulary(Form):
    text: np.ndarray = array(np.uint8)  # all words end to end
    ends: np.ndarray = array(np.int64)  # (n + 1,) word i is text[ends[i]:ends[i + 1]]
    table: np.ndarray = array(np.int32)  # a power of two long and at most half full

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

    def number(self, word: str) -> int:
        """The number of one word; FREE if it is not in the vocabulary."""
        text = np.frombuffer(word.encode("utf-8", "replace"), np.uint8)
        return int(self.find(text, np.array([0, len(text)]))[0])

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

    @classmethod
    def picked(cls, text: np.ndarray, ends: np.ndarray, numbers: np.ndarray) -> Vocabulary:
        """Some of the words that are given as bytes and ends, in the order of the numbers."""
        return cls.from_bytes([bytes(text[ends[i] : ends[i + 1]]) for i in numbers])


def merge(batches: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The distinct words of all batches as bytes and ends, and the number among them of each batch's words. A batch is
    its words as bytes and ends."""
    text = np.concatenate([words for words, _ in batches] or [np.zeros(0, np.uint8)])
    lengths = np.concatenate([np.diff(ends) for _, ends in batches] or [np.zeros(0, np.int64)])
    all_ends = np.concatenate([[0], np.cumsum(lengths)])
    numbers, firsts = number_distinct(text, all_ends)
    distinct = np.concatenate([[0], np.cumsum(lengths[firsts])])
    splits = np.cumsum([len(ends) - 1 for _, ends in batches])
    return gather(text, all_ends, firsts, distinct), distinct, np.split(numbers, splits[:-1])[: len(batches)]


def most_frequent(
    text: np.ndarray, ends: np.ndarray, frequencies: np.ndarray, at_least: int = 1, n: int | None = None
) -> np.ndarray:
    """The words found in at least so many documents, most frequent first, equally frequent ones in the order of their
    bytes; the first n of them, or all."""
    kept = np.flatnonzero(frequencies >= at_least)
    words, counts = bytes(text), frequencies.tolist()
    order = sorted(kept.tolist(), key=lambda i: (-counts[i], words[ends[i] : ends[i + 1]]))
    return np.array(order[:n], np.int64)


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


@kernel
def number_distinct(text, ends):
    """Number the distinct words as they turn up: each word's number, and where each number turned up first."""
    n, size = len(ends) - 1, 16
    while size < 2 * n:
        size *= 2
    table, numbers, firsts = np.full(size, FREE, np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
    n_distinct = 0
    for word in range(n):
        h = hash_bytes(text, ends[word], ends[word + 1])
        slot = find_slot(text, ends, table, text, ends[word], ends[word + 1], h)
        if table[slot] == FREE:
            table[slot] = word
            numbers[word], firsts[n_distinct] = n_distinct, word
            n_distinct += 1
        else:
            numbers[word] = numbers[table[slot]]
    return numbers, firsts[:n_distinct].copy()


@kernel
def gather(text, ends, words, new_ends):
    """The bytes of some of the words, end to end."""
    out = np.empty(new_ends[-1], np.uint8)
    for i in range(len(words)):
        out[new_ends[i] : new_ends[i + 1]] = text[ends[words[i]] : ends[words[i] + 1]]
    return out

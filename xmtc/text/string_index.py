"""Index from strings to numbers in three flat arrays, which open by memory-mapping at any size: the concatenated UTF-8
bytes, the end offsets, and an open-addressing hash table of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.data.batch import concatenate_bytes
from xmtc.storage.form import Form, array

NOT_FOUND = -1  # result of a search without a match, and content of an empty slot of the hash table
FNV_OFFSET_BASIS, FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # FNV-1a
MIN_TABLE_SLOTS = 16
MIN_MERGE_WORDS = 200_000  # minimum number of words for a merge; small, so that little remains for the last one


@dataclass(frozen=True)
class StringIndex(Form):
    """Distinct words, numbered from 0, with a hash table for their lookup."""

    text: np.ndarray = array(np.uint8)  # concatenated bytes of all words
    ends: np.ndarray = array(np.int64)  # (n + 1,); word i is text[ends[i]:ends[i + 1]]
    table: np.ndarray = array(np.int32)  # hash table; its length is a power of two, and it is at most half full

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: int) -> str:
        return bytes(self.text[self.ends[number] : self.ends[number + 1]]).decode(errors="replace")

    def words(self) -> list[str]:
        text, ends = bytes(self.text), self.ends.tolist()
        return [text[start:end].decode(errors="replace") for start, end in pairwise(ends)]

    def check(self) -> None:
        """Raise a ValueError if a search could be endless or leave the arrays."""
        is_flat = self.text.ndim == self.ends.ndim == self.table.ndim == 1
        if not is_flat or not len(self.ends) or self.ends[0] < 0 or self.ends[-1] > len(self.text):
            raise ValueError("its words do not lie within their text")
        if (self.ends[1:] < self.ends[:-1]).any():
            raise ValueError("some of its words end before they begin")
        if len(self.table).bit_count() != 1 or self.table.min() != NOT_FOUND or self.table.max() >= len(self):
            raise ValueError("its table of words points beyond the words or has no free slot")

    def find_packed(self, text: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return the numbers of words given as concatenated bytes and end offsets; NOT_FOUND for unknown words."""
        numbers = np.empty(len(ends) - 1, np.int32)
        find_words(self.text, self.ends, self.table, text, ends, numbers)
        return numbers

    def find(self, word: str) -> int:
        """Return the number of a word, or NOT_FOUND."""
        text = np.frombuffer(word.encode("utf-8", "replace"), np.uint8)
        return int(self.find_packed(text, np.array([0, len(text)]))[0])

    @classmethod
    def from_strings(cls, words: Iterable[str]) -> StringIndex:
        """Build an index of distinct words in the given order."""
        return cls.from_bytes([word.encode("utf-8", "replace") for word in words])

    @classmethod
    def from_bytes(cls, words: list[bytes]) -> StringIndex:
        text, ends = concatenate_bytes(words)
        return cls(text, ends, index_distinct_words(text, ends[:-1], ends[1:]).table)

    @classmethod
    def from_subset(cls, text: np.ndarray, ends: np.ndarray, numbers: np.ndarray) -> StringIndex:
        """Build an index of selected words, given as concatenated bytes and end offsets, in the order of `numbers`."""
        text, ends = select_words(text, ends, numbers)
        return cls(text, ends, index_distinct_words(text, ends[:-1], ends[1:]).table)


def merge_word_batches(batches: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return the distinct words of all batches as (bytes, end offsets), and for each batch the numbers of its words. A
    batch is its words as (bytes, end offsets)."""
    text = np.concatenate([words for words, _ in batches] or [np.zeros(0, np.uint8)])
    lengths = np.concatenate([np.diff(ends) for _, ends in batches] or [np.zeros(0, np.int64)])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    merged = index_distinct_words(text, ends[:-1], ends[1:])
    splits = np.cumsum([len(ends) - 1 for _, ends in batches])
    return merged.text, merged.ends, np.split(merged.numbers, splits[:-1])[: len(batches)]


class WordMerger:
    """Incremental `merge_word_batches` for a stream of batches, which does not hold the words of all batches."""

    def __init__(self, min_merge_words: int = MIN_MERGE_WORDS) -> None:
        self.min_merge_words = min_merge_words
        self.text, self.ends = np.zeros(0, np.uint8), np.zeros(1, np.int64)
        self.numbers: list[np.ndarray] = []  # word numbers of each merged batch
        self.pending: list[tuple[np.ndarray, np.ndarray]] = []
        self.n_pending_words = 0

    def add(self, text: np.ndarray, ends: np.ndarray) -> None:
        """Add a batch. A merge needs at least a quarter as many words as are merged already, so that these are looked
        up only a few times in all."""
        self.pending.append((text, ends))
        self.n_pending_words += len(ends) - 1
        if self.n_pending_words > max(self.min_merge_words, len(self.ends) // 4):
            self.merge()

    def merge(self) -> None:
        self.text, self.ends, (_, *numbers) = merge_word_batches([(self.text, self.ends), *self.pending])
        self.numbers += [batch_numbers.copy() for batch_numbers in numbers]
        self.pending, self.n_pending_words = [], 0


class DistinctWords(NamedTuple):
    """Distinct words, numbered by first occurrence."""

    text: np.ndarray  # uint8; concatenated bytes of the distinct words
    ends: np.ndarray  # (n_distinct + 1,) int64
    table: np.ndarray  # hash table of a StringIndex of the words
    numbers: np.ndarray  # (n,) int32; number of each input word


def index_distinct_words(text: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> DistinctWords:
    """Number the distinct words among text[begins[i]:ends[i]]. Buffers are large enough for all to be distinct; memory
    that is never written is not allocated by the operating system."""
    n = len(begins)
    words = np.empty(int((ends - begins).sum()), np.uint8)
    word_ends = np.zeros(n + 1, np.int64)
    hashes, numbers = np.empty(n, np.uint64), np.empty(n, np.int32)
    buffer = np.empty(compute_max_slots(n), np.int32)

    n_distinct, size = write_distinct_words(text, begins, ends, words, word_ends, hashes, buffer, numbers)
    word_ends = word_ends[: n_distinct + 1].copy()
    return DistinctWords(words[: word_ends[-1]].copy(), word_ends, buffer[:size].copy(), numbers)


def compute_max_slots(n: int) -> int:
    """Return the maximum number of hash table slots for n words."""
    return max(MIN_TABLE_SLOTS, 1 << (2 * n - 1).bit_length())


def select_most_frequent(
    text: np.ndarray, ends: np.ndarray, frequencies: np.ndarray, min_frequency: int = 1, n: int | None = None
) -> np.ndarray:
    """Return the numbers of the n (default all) most frequent words with at least min_frequency, by descending
    frequency and then by bytes."""
    kept = np.flatnonzero(frequencies >= min_frequency)
    first, second = (pack_prefixes(text, ends, kept, skipped) for skipped in (0, 8))
    kept = kept[np.lexsort((second, first, -frequencies[kept]))]
    # words of equal frequency with equal first 16 bytes are adjacent now; their order is not determined yet
    first, second = (pack_prefixes(text, ends, kept, skipped) for skipped in (0, 8))
    is_tie = (first[1:] == first[:-1]) & (second[1:] == second[:-1]) & (np.diff(frequencies[kept]) == 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_tie, [False]])))
    for begin, end in zip(edges[::2].tolist(), (edges[1::2] + 1).tolist(), strict=True):
        kept[begin:end] = sorted(kept[begin:end].tolist(), key=lambda i: bytes(text[ends[i] : ends[i + 1]]))
    return kept[:n]


def pack_prefixes(text: np.ndarray, ends: np.ndarray, numbers: np.ndarray, skipped: int) -> np.ndarray:
    """Return eight bytes of each word, after the skipped ones and padded with zeros, as uint64, shape (n,)."""
    prefixes = np.zeros(len(numbers), np.uint64)
    for at in range(skipped, skipped + 8):
        places = ends[numbers] + at
        is_inside = places < ends[numbers + 1]
        prefixes <<= np.uint64(8)
        prefixes[is_inside] |= text[places[is_inside]]
    return prefixes


def select_words(text: np.ndarray, ends: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return some of the words given as concatenated bytes and end offsets, in the order of `numbers`."""
    lengths = ends[numbers + 1] - ends[numbers]
    new_ends = np.concatenate([[0], np.cumsum(lengths)])
    return text[np.repeat(ends[numbers] - new_ends[:-1], lengths) + np.arange(new_ends[-1])], new_ends


@kernel
def hash_bytes(text, start, end):
    """Return the FNV-1a hash of text[start:end]."""
    h = FNV_OFFSET_BASIS
    for i in range(start, end):
        h = (h ^ np.uint64(text[i])) * FNV_PRIME
    return h ^ (h >> np.uint64(32))  # the table uses the low bits only


@kernel
def find_slot(text, ends, table, key, start, end, h):
    """Return the slot of the word key[start:end], or the empty slot where it belongs."""
    mask = np.uint64(len(table) - 1)
    slot = h & mask
    while True:
        word = table[slot]
        if word == NOT_FOUND:
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
def find_words(text, ends, table, keys, key_ends, numbers):
    for i in range(len(numbers)):
        h = hash_bytes(keys, key_ends[i], key_ends[i + 1])
        numbers[i] = table[find_slot(text, ends, table, keys, key_ends[i], key_ends[i + 1], h)]


@kernel
def write_distinct_words(text, begins, ends, words, word_ends, hashes, buffer, numbers):
    """Write the distinct words among text[begins[i]:ends[i]] into `words`, with their ends and hashes, and the number
    of each i; return the number of distinct words and of used slots of `buffer`."""
    table, n, out = clear_table(buffer, np.int64(MIN_TABLE_SLOTS)), np.int64(0), np.int64(0)
    for i in range(len(begins)):
        h = hash_bytes(text, begins[i], ends[i])
        slot = find_slot(words, word_ends, table, text, begins[i], ends[i], h)
        if table[slot] == NOT_FOUND:
            table[slot], hashes[n] = n, h
            for byte in range(begins[i], ends[i]):
                words[out] = text[byte]
                out += 1
            n += 1
            word_ends[n] = out
            numbers[i] = n - 1
            if 2 * n > len(table):
                table = grow_table(buffer, 2 * len(table), hashes, n)
        else:
            numbers[i] = table[slot]
    return n, len(table)


@kernel
def grow_table(buffer, size, hashes, n):
    """Rebuild the hash table of n words in a larger part of its buffer."""
    table = clear_table(buffer, size)
    mask = np.uint64(size - 1)
    for word in range(n):
        slot = hashes[word] & mask
        while table[slot] != NOT_FOUND:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = word
    return table


@kernel
def clear_table(buffer, size):
    for slot in range(size):
        buffer[slot] = NOT_FOUND
    return buffer[:size]

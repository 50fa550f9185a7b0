"""Words of texts, counted per document or in their order: the compiled half of the text features.

A word is a run of letters, digits, marks and underscores: Python's `\\w`, plus the combining marks without which
Devanagari, Arabic or decomposed accents would fall apart. Texts are brought to Unicode's composed form (NFC) first.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from xmtc.base.form import Form
from xmtc.compiled import kernel
from xmtc.text.vocabulary import FREE, Vocabulary, find_slot, hash_bytes

LETTERS, SELECTORS, LAST_CHARACTER = 0x40000, 0xE0000, 0xE01F0  # letters lie below the first, marks also in the rest
BATCH_BYTES = 4_000_000  # text counted by one thread at a time: large enough to share words, small enough to stream


@dataclass(frozen=True)
class Tokenizer(Form):
    """How a text becomes terms: words, or runs of up to `ngrams` words joined by a blank."""

    lowercase: bool = True
    min_chars: int = 2
    ngrams: int = 1
    stop_words: tuple[str, ...] = ()

    def pack(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Texts as bytes end to end, and where each begins and ends."""
        parts = [self._normal(text).encode("utf-8", "replace") for text in texts]
        starts = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=starts[1:])
        return np.frombuffer(b"".join(parts), np.uint8), starts

    def _normal(self, text: str) -> str:
        text = text if text.isascii() else unicodedata.normalize("NFC", text)
        return text.lower() if self.lowercase else text

    def count(self, texts: Iterable[str]) -> Counts:
        """The terms of a batch of texts, with a vocabulary of the batch's own."""
        return Counts(*count_terms(*self.pack(texts), word_characters(), self.min_chars, self.ngrams, *self._stop))

    def number(self, texts: Iterable[str], max_words: int) -> Sequences:
        """The words of a batch of texts, in their order and max_words of each at most, with a vocabulary of the batch's
        own."""
        return Sequences(*number_words(*self.pack(texts), max_words, word_characters(), self.min_chars, *self._stop))

    @functools.cached_property
    def _stop(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        stop = Vocabulary.of(dict.fromkeys(self._normal(word) for word in self.stop_words))
        return stop.text, stop.ends, stop.table

    def check(self) -> None:
        if not (0 < self.min_chars < 2**31 and 0 < self.ngrams < 2**31):
            raise ValueError(f"it makes words of {self.min_chars} characters and terms of {self.ngrams} words")

    def __call__(self, text: str) -> list[str]:
        """The terms of one text, in the order of their first appearance, repeated as often as they occur."""
        counts = self.count([text])
        words = Vocabulary(counts.text, counts.ends, np.empty(0, np.int32)).words()
        return [words[i] for i, n in zip(counts.terms, counts.counts, strict=True) for _ in range(n)]


@dataclass(frozen=True)
class Counts:
    """How often each document of a batch holds each term; terms are numbered within the batch."""

    text: np.ndarray  # uint8, the batch's terms end to end
    ends: np.ndarray  # (n_terms + 1,) int64
    starts: np.ndarray  # (n_docs + 1,) int64, document i has entries starts[i]:starts[i + 1]
    terms: np.ndarray  # (n_entries,) int32
    counts: np.ndarray  # (n_entries,) int32


@dataclass(frozen=True)
class Sequences:
    """The words of each document of a batch, in their order; words are numbered within the batch from 1, and a document
    without words is a 0."""

    text: np.ndarray  # uint8, the batch's words end to end
    ends: np.ndarray  # (n_words + 1,) int64
    frequencies: np.ndarray  # (n_words,) int64, documents that hold each word
    starts: np.ndarray  # (n_docs + 1,) int64, document i is ids[starts[i]:starts[i + 1]]
    ids: np.ndarray  # (n,) int32


def batches(texts: Iterable[str], size: int = BATCH_BYTES) -> Iterator[list[str]]:
    """Consecutive texts in lists of about `size` characters."""
    batch: list[str] = []
    length = 0
    for text in texts:
        batch.append(text)
        length += len(text) + 64
        if length > size:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


@functools.cache
def word_characters() -> np.ndarray:
    """Which code points are part of words."""
    found = np.zeros(LAST_CHARACTER, bool)
    for begin, end in ((0, LETTERS), (SELECTORS, LAST_CHARACTER)):
        found[begin:end] = [is_word_character(chr(code)) for code in range(begin, end)]
    return found


def is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


@kernel
def decode(text, i):
    """The code point at byte i, and where the next one begins."""
    first = np.int64(text[i])
    if first < 0x80:
        return first, i + 1
    if first < 0xE0:
        return (first & 0x1F) << 6 | (text[i + 1] & 0x3F), i + 2
    if first < 0xF0:
        return (first & 0x0F) << 12 | (text[i + 1] & 0x3F) << 6 | (text[i + 2] & 0x3F), i + 3
    tail = (text[i + 1] & 0x3F) << 12 | (text[i + 2] & 0x3F) << 6 | (text[i + 3] & 0x3F)
    return (first & 0x07) << 18 | tail, i + 4


@kernel
def split_words(text, start, end, most, is_word, min_chars, stop_text, stop_ends, stop_table, words, begins):
    """Write the words of text[start:end], `most` at the most, into `words`, one blank between them, and where each
    begins into `begins`; return how many there are. begins[n] is where word n would begin, so word i ends at
    begins[i + 1] - 1."""
    n, out, i = 0, 0, start
    begins[0] = 0
    while i < end and n < most:
        begin, n_chars = i, 0
        while i < end:
            code, after = decode(text, i)
            if code >= LAST_CHARACTER or not is_word[code]:
                break
            i = after
            n_chars += 1
        if n_chars >= min_chars:
            h = hash_bytes(text, begin, i)
            if stop_table[find_slot(stop_text, stop_ends, stop_table, text, begin, i, h)] == FREE:
                for j in range(begin, i):
                    words[out] = text[j]
                    out += 1
                words[out] = 32
                out += 1
                n += 1
                begins[n] = out
        if i < end:
            i = decode(text, i)[1]
    return n


@kernel
def grown(array, needed):
    """The array, or a copy twice as long where it is too short."""
    if needed <= len(array):
        return array
    longer = np.empty(max(needed, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


@kernel
def larger_table(table, hashes, n):
    """The hash table of n terms, twice as long."""
    table = np.full(2 * len(table), FREE, np.int32)
    mask = np.uint64(len(table) - 1)
    for term in range(n):
        slot = hashes[term] & mask
        while table[slot] != FREE:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = term
    return table


@kernel
def no_terms():
    """How a batch's own vocabulary begins: its terms end to end, where each ends, their hashes, the hash table."""
    return np.empty(4096, np.uint8), np.zeros(512, np.int64), np.empty(512, np.uint64), np.full(1024, FREE, np.int32)


@kernel
def with_term(terms, ends, hashes, table, slot, n_terms, words, begin, end, h):
    """A batch's own vocabulary of n_terms terms, grown by words[begin:end], whose hash is h and whose place is slot."""
    after = ends[n_terms] + end - begin
    terms, ends, hashes = grown(terms, after), grown(ends, n_terms + 2), grown(hashes, n_terms + 1)
    terms[ends[n_terms] : after] = words[begin:end]
    ends[n_terms + 1], hashes[n_terms], table[slot] = after, h, n_terms
    if 2 * (n_terms + 1) > len(table):
        table = larger_table(table, hashes, n_terms + 1)
    return terms, ends, hashes, table


@kernel
def longest_text(starts):
    longest = 0
    for doc in range(len(starts) - 1):
        longest = max(longest, starts[doc + 1] - starts[doc])
    return longest


@kernel
def count_terms(text, starts, is_word, min_chars, ngrams, stop_text, stop_ends, stop_table):
    n_docs, longest = len(starts) - 1, longest_text(starts)
    words = np.empty(2 * longest + 1, np.uint8)
    begins = np.empty(longest + 2, np.int64)
    terms, ends, hashes, table = no_terms()
    last_doc, last_entry, n_terms = np.empty(512, np.int64), np.empty(512, np.int64), 0
    entry_terms, entry_counts, n_entries = np.empty(1024, np.int32), np.empty(1024, np.int32), 0
    entry_starts = np.zeros(n_docs + 1, np.int64)
    for doc in range(n_docs):
        span = starts[doc], starts[doc + 1], longest
        n_words = split_words(text, *span, is_word, min_chars, stop_text, stop_ends, stop_table, words, begins)
        for first in range(n_words):
            for after in range(first + 1, min(first + ngrams, n_words) + 1):
                begin, end = begins[first], begins[after] - 1
                h = hash_bytes(words, begin, end)
                slot = find_slot(terms, ends, table, words, begin, end, h)
                term = table[slot]
                if term == FREE:
                    terms, ends, hashes, table = with_term(
                        terms, ends, hashes, table, slot, n_terms, words, begin, end, h
                    )
                    term = n_terms
                    n_terms += 1
                    last_doc, last_entry = grown(last_doc, n_terms), grown(last_entry, n_terms)
                    last_doc[term] = -1
                if last_doc[term] != doc:
                    last_doc[term], last_entry[term] = doc, n_entries
                    entry_terms, entry_counts = grown(entry_terms, n_entries + 1), grown(entry_counts, n_entries + 1)
                    entry_terms[n_entries], entry_counts[n_entries] = term, 0
                    n_entries += 1
                entry_counts[last_entry[term]] += 1
        entry_starts[doc + 1] = n_entries
    return (
        terms[: ends[n_terms]].copy(),
        ends[: n_terms + 1].copy(),
        entry_starts,
        entry_terms[:n_entries].copy(),
        entry_counts[:n_entries].copy(),
    )


@kernel
def number_words(text, starts, max_words, is_word, min_chars, stop_text, stop_ends, stop_table):
    n_docs, longest = len(starts) - 1, longest_text(starts)
    words = np.empty(2 * longest + 1, np.uint8)
    begins = np.empty(longest + 2, np.int64)
    terms, ends, hashes, table = no_terms()
    last_doc, frequencies, n_terms = np.empty(512, np.int64), np.empty(512, np.int64), 0
    ids, id_starts = np.empty(1024, np.int32), np.zeros(n_docs + 1, np.int64)
    for doc in range(n_docs):
        span = starts[doc], starts[doc + 1], max_words
        n_words = split_words(text, *span, is_word, min_chars, stop_text, stop_ends, stop_table, words, begins)
        first = id_starts[doc]
        id_starts[doc + 1] = first + max(1, n_words)
        ids = grown(ids, id_starts[doc + 1])
        ids[first] = 0
        for i in range(n_words):
            begin, end = begins[i], begins[i + 1] - 1
            h = hash_bytes(words, begin, end)
            slot = find_slot(terms, ends, table, words, begin, end, h)
            term = table[slot]
            if term == FREE:
                terms, ends, hashes, table = with_term(terms, ends, hashes, table, slot, n_terms, words, begin, end, h)
                term = n_terms
                n_terms += 1
                last_doc, frequencies = grown(last_doc, n_terms), grown(frequencies, n_terms)
                last_doc[term], frequencies[term] = -1, 0
            if last_doc[term] != doc:
                last_doc[term] = doc
                frequencies[term] += 1
            ids[first + i] = term + 1
    return (
        terms[: ends[n_terms]].copy(),
        ends[: n_terms + 1].copy(),
        frequencies[:n_terms].copy(),
        id_starts,
        ids[: id_starts[n_docs]].copy(),
    )

"""Compiled tokenizer: words of texts as counts per document or as sequences.

A word is a run of letters, digits, marks and underscores: Python's `\\w`, plus combining marks, without which words in
Devanagari, in Arabic or with decomposed accents would be split. A chunk is a run of characters other than white space.
Texts are normalised to NFC first.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.core.threads import cache_with_lock
from xmtc.data.batch import Texts, concatenate_bytes
from xmtc.storage.form import Form
from xmtc.text.normalisation import normalize_text, normalize_texts
from xmtc.text.string_index import (
    FNV_OFFSET_BASIS,
    FNV_PRIME,
    MIN_TABLE_SLOTS,
    NOT_FOUND,
    StringIndex,
    clear_table,
    compute_max_slots,
    find_slot,
    grow_table,
    hash_bytes,
    index_distinct_words,
)
from xmtc.text.token_pattern import check_token_pattern, separate_tokens

LETTER_CODES_END = 0x40000  # all letters are below
VARIATION_SELECTORS_START, WORD_CODES_END = 0xE0000, 0xE01F0  # marks beyond the letters
CODES_END = 0x110000
SPACE_BYTE = 32
MAX_SKIPPED_WORDS = 5
TOKEN_UNITS = WORD_UNIT, CHUNK_UNIT = "words", "chunks"
NAME_UNIT = "names"  # matches of NAME_PATTERN, which a Tokenizer has as its pattern
BATCH_BYTES = 2_000_000  # text per thread: large enough for repeated words, small enough to stream


@dataclass(frozen=True)
class Tokenizer(Form):
    """Tokenizer of texts into words, chunks or matches of a pattern, or into n-grams of up to `ngrams` of these joined
    by a space."""

    lowercase: bool = True
    min_chars: int = 2
    ngrams: int = 1
    stop_words: tuple[str, ...] = ()
    unit: str = WORD_UNIT
    pattern: str = ""  # regular expression of a token, for the unit CHUNK_UNIT
    skip: int = 0  # maximum number of words between the two words of a pair, with ngrams > 1

    def pack(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return normalised texts as concatenated bytes and offsets."""
        if isinstance(texts, Texts):
            normalized = normalize_texts(texts, self.lowercase)
            return normalized.data, normalized.offsets
        return concatenate_bytes([normalize_text(text, self.lowercase).encode("utf-8", "replace") for text in texts])

    def pack_tokens(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return normalised texts as `pack`; if there is a pattern, only their tokens."""
        text, starts = self.pack(texts)
        return separate_tokens(text, starts, self.pattern) if self.pattern else (text, starts)

    def count(self, texts: Iterable[str]) -> BatchTermCounts:
        """Return the term counts of a batch of texts."""
        if self.ngrams == 1:
            return self._count_words(texts)
        terms = build_ngrams(self._split_words(texts), self.ngrams, self.skip)
        distinct = index_distinct_words(terms.text, terms.begins, terms.ends)
        counts = count_per_document(terms.starts, distinct.numbers, len(distinct.ends) - 1)
        return BatchTermCounts(distinct.text, distinct.ends, *counts)

    def index_words(self, texts: Iterable[str], max_words: int) -> WordSequences:
        """Return the word sequences of a batch of texts, with at most max_words words per text."""
        words = self._split_words(texts, max_words)
        distinct = index_distinct_words(words.text, words.begins, words.ends)
        n_words = len(distinct.ends) - 1
        _, document_words, _ = count_per_document(words.starts, distinct.numbers, n_words)

        lengths = np.diff(words.starts)
        ids = np.insert(distinct.numbers + np.int32(1), words.starts[:-1][lengths == 0], 0)
        starts = np.concatenate([[0], np.cumsum(np.maximum(lengths, 1))])
        frequencies = np.bincount(document_words, minlength=n_words)
        return WordSequences(distinct.text, distinct.ends, frequencies, starts, ids)

    def _count_words(self, texts: Iterable[str]) -> BatchTermCounts:
        """Split, number and count words in a single pass.

        Nothing is stored for each occurrence of a word, which limits the memory traffic of many threads. Buffers are
        large enough for all words to be distinct; memory that is never written is not allocated."""
        text, starts = self.pack_tokens(texts)
        max_words = self._max_word_count(text, starts)
        words, word_ends = np.empty(len(text), np.uint8), np.zeros(max_words + 1, np.int64)
        hashes, slots = np.empty(max_words, np.uint64), np.empty(compute_max_slots(max_words), np.int32)
        latest, new_starts = np.empty(max_words, np.int64), np.zeros_like(starts)
        terms, counts = np.empty(max_words, np.int32), np.empty(max_words, np.int32)

        limits = self.character_mask, self.min_chars
        vocabulary, results = (words, word_ends, hashes, slots), (latest, new_starts, terms, counts)
        n_words, n = count_words(text, starts, *limits, *self._stop_word_arrays, *vocabulary, *results)
        word_ends = word_ends[: n_words + 1].copy()
        return BatchTermCounts(
            words[: word_ends[-1]].copy(), word_ends, new_starts, terms[:n].copy(), counts[:n].copy()
        )

    def _max_word_count(self, text: np.ndarray, starts: np.ndarray) -> int:
        """Return the maximum number of words of texts; words are separated by at least one byte."""
        return (len(text) + len(starts)) // (self.min_chars + 1)

    def _split_words(self, texts: Iterable[str], max_words: int = 2**62) -> ByteSpans:
        """Return the words of texts, at most max_words of each, copied with one space after each word, so that n-grams
        are contiguous."""
        text, starts = self.pack_tokens(texts)
        n_possible = self._max_word_count(text, starts)
        words, word_starts = np.empty(len(text) + n_possible, np.uint8), np.zeros(len(starts), np.int64)
        begins, ends = np.empty(n_possible, np.int64), np.empty(n_possible, np.int64)

        limits = max_words, self.character_mask, self.min_chars
        n = split_words(text, starts, *limits, *self._stop_word_arrays, words, begins, ends, word_starts)
        return ByteSpans(words, word_starts, begins[:n], ends[:n])

    @property
    def character_mask(self) -> np.ndarray:
        """Code points that belong to tokens."""
        return word_character_mask() if self.unit == WORD_UNIT else chunk_character_mask()

    @functools.cached_property
    def _stop_word_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        stop = StringIndex.from_strings(dict.fromkeys(normalize_text(word, self.lowercase) for word in self.stop_words))
        return stop.text, stop.ends, stop.table

    def check(self) -> None:
        if not (0 < self.min_chars < 2**31 and 0 < self.ngrams < 2**31):
            raise ValueError(f"its min_chars={self.min_chars} or ngrams={self.ngrams} is out of range")
        if not 0 <= self.skip <= MAX_SKIPPED_WORDS:
            raise ValueError(f"its skip={self.skip} is out of range")
        if self.unit not in TOKEN_UNITS:
            raise ValueError(f"its unit={self.unit!r:.100} is neither {WORD_UNIT} nor {CHUNK_UNIT}")
        if self.pattern:
            check_token_pattern(self.pattern)
            if self.unit != CHUNK_UNIT:
                raise ValueError(f"it has a pattern, but unit={self.unit!r:.100}")

    def __call__(self, text: str) -> list[str]:
        """Return the terms of a text in the order of their first occurrence, repeated as often as they occur."""
        counts = self.count([text])
        words = StringIndex(counts.text, counts.ends, np.empty(0, np.int32)).words()
        return [words[i] for i, n in zip(counts.terms, counts.counts, strict=True) for _ in range(n)]


@dataclass(frozen=True)
class BatchTermCounts:
    """Term counts of the documents of a batch; terms are numbered within the batch."""

    text: np.ndarray  # uint8; concatenated bytes of the batch's distinct terms
    ends: np.ndarray  # (n_terms + 1,) int64
    starts: np.ndarray  # (n_docs + 1,) int64; document i has the entries starts[i]:starts[i + 1]
    terms: np.ndarray  # (n_entries,) int32
    counts: np.ndarray  # (n_entries,) int32


@dataclass(frozen=True)
class WordSequences:
    """Word sequences of the documents of a batch. Words are numbered within the batch from 1; a document without words
    is a single 0."""

    text: np.ndarray  # uint8; concatenated bytes of the batch's distinct words
    ends: np.ndarray  # (n_words + 1,) int64
    frequencies: np.ndarray  # (n_words,) int64; document frequencies
    starts: np.ndarray  # (n_docs + 1,) int64; document i is ids[starts[i]:starts[i + 1]]
    ids: np.ndarray  # (n,) int32


class ByteSpans(NamedTuple):
    """Words or terms as spans text[begins[i]:ends[i]]; document d has the spans starts[d]:starts[d + 1]."""

    text: np.ndarray
    starts: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


def build_ngrams(words: ByteSpans, ngrams: int, skip: int = 0) -> ByteSpans:
    """Return the n-grams of up to `ngrams` words of each document, ordered by first word and then by length; then its
    pairs of words with one to `skip` words between them, ordered by their distance."""
    number = np.arange(len(words.begins))
    n_left = np.repeat(words.starts[1:], np.diff(words.starts)) - number
    n_runs = np.minimum(n_left, ngrams)
    before = np.concatenate([[0], np.cumsum(n_runs)])

    last = np.arange(before[-1]) + np.repeat(number - before[:-1], n_runs)
    runs = ByteSpans(words.text, before[words.starts], np.repeat(words.begins, n_runs), words.ends[last])
    return add_skip_grams(runs, words, n_left, skip) if skip else runs


def add_skip_grams(runs: ByteSpans, words: ByteSpans, n_left: np.ndarray, skip: int) -> ByteSpans:
    """Append to the n-grams of each document its pairs of words at distances from 2 to `skip` + 1. `n_left` has the
    number of words of the document from each word on."""
    first = np.concatenate([np.flatnonzero(n_left > distance) for distance in range(2, skip + 2)])
    second = first + np.repeat(
        np.arange(2, skip + 2), [np.count_nonzero(n_left > distance) for distance in range(2, skip + 2)]
    )
    begins = np.column_stack([words.begins[first], words.begins[second]]).ravel()
    ends = np.column_stack([words.ends[first] + 1, words.ends[second]]).ravel()  # with the space after the first word
    pairs, pair_ends = copy_ranges(words.text, begins, ends)

    document = np.concatenate([repeat_document(runs.starts), repeat_document(words.starts)[first]])
    order = np.argsort(document, kind="stable")
    return ByteSpans(
        np.concatenate([words.text, pairs]),
        np.searchsorted(document[order], np.arange(len(words.starts))),
        np.concatenate([runs.begins, len(words.text) + pair_ends[:-1:2]])[order],
        np.concatenate([runs.ends, len(words.text) + pair_ends[2::2]])[order],
    )


def repeat_document(starts: np.ndarray) -> np.ndarray:
    """Return the document of each item; document d has the items starts[d]:starts[d + 1]."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def copy_ranges(text: np.ndarray, begins: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return text[begins[i]:stops[i]] for each i as concatenated bytes and end offsets."""
    lengths = stops - begins
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return text[np.repeat(begins - ends[:-1], lengths) + np.arange(ends[-1])], ends


def count_per_document(
    starts: np.ndarray, terms: np.ndarray, n_terms: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (starts, terms, counts): the distinct terms of each document in the order of their first occurrence, and
    their counts. Document d has terms[starts[d]:starts[d + 1]]."""
    distinct_starts, latest = np.zeros_like(starts), np.full(n_terms, -1)
    distinct, counts = np.empty(len(terms), np.int32), np.empty(len(terms), np.int32)
    n = count_terms(starts, terms, latest, distinct_starts, distinct, counts)
    return distinct_starts, distinct[:n].copy(), counts[:n].copy()


def batch_texts(texts: Iterable[str | Texts], size: int = BATCH_BYTES) -> Iterator[Collection[str]]:
    """Yield consecutive texts in lists of about `size` characters; a Texts is yielded unchanged."""
    batch: list[str] = []
    length = 0
    for text in texts:
        if isinstance(text, Texts):
            if batch:
                yield batch
                batch, length = [], 0
            yield text
            continue
        batch.append(text)
        length += len(text) + 64
        if length > size:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


@cache_with_lock
def word_character_mask() -> np.ndarray:
    """Return which code points are word characters."""
    mask = np.zeros(WORD_CODES_END, bool)
    mask[:LETTER_CODES_END] = np.strings.isalnum(list_characters(LETTER_CODES_END))
    for begin, end in ((0, LETTER_CODES_END), (VARIATION_SELECTORS_START, WORD_CODES_END)):
        others = begin + np.flatnonzero(~mask[begin:end])
        mask[others] = [is_word_character(chr(code)) for code in others.tolist()]
    return mask


def list_characters(end: int) -> np.ndarray:
    """Return the characters of the code points below `end`, for the vectorised string methods of NumPy."""
    return np.arange(end, dtype=np.uint32).view("U1")


def is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


@cache_with_lock
def chunk_character_mask() -> np.ndarray:
    """Return which code points are not white space."""
    mask = np.ones(CODES_END, bool)
    mask[:LETTER_CODES_END] = ~np.strings.isspace(list_characters(LETTER_CODES_END))
    return mask


@kernel
def decode_code_point(text, i):
    """Return the code point at byte i, and the position of the next one."""
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
def count_words(
    text, starts, is_word, min_chars, stop_text, stop_ends, stop_table,
    words, word_ends, hashes, slots, latest, new_starts, terms, counts
):  # fmt: skip
    """Write the distinct words of all texts into `words` and `word_ends`, and the result of `count_per_document` into
    the last three arguments; return the numbers of distinct words and of counts.

    This is `split_words`, `write_distinct_words` and `count_terms` in one loop. Function calls are avoided, because for
    each word they would take as long as the work."""
    size = np.int64(MIN_TABLE_SLOTS)  # of the hash table at the beginning of `slots`
    clear_table(slots, size)
    mask = np.uint64(size - 1)
    n_words, n, has_stops = np.int64(0), np.int64(0), len(stop_ends) > 1
    for doc in range(len(starts) - 1):
        i, end, doc_start = starts[doc], starts[doc + 1], n
        while i < end:
            begin, n_chars, h = i, np.int64(0), FNV_OFFSET_BASIS  # of the current word
            while i < end:
                if text[i] < 0x80:
                    if not is_word[text[i]]:
                        break
                    h = (h ^ np.uint64(text[i])) * FNV_PRIME
                    i += 1
                else:
                    code, after = decode_code_point(text, i)
                    if code >= len(is_word) or not is_word[code]:
                        break
                    while i < after:
                        h = (h ^ np.uint64(text[i])) * FNV_PRIME
                        i += 1
                n_chars += 1
            if n_chars >= min_chars and not (
                has_stops and is_stop_word(stop_text, stop_ends, stop_table, text, begin, i)
            ):
                h ^= h >> np.uint64(32)
                slot = h & mask  # search for the word, or for its empty slot
                while slots[slot] != NOT_FOUND:
                    word = np.int64(slots[slot])
                    if hashes[word] == h and is_same_bytes(words, word_ends[word], word_ends[word + 1], text, begin, i):
                        break
                    slot = (slot + np.uint64(1)) & mask
                word = np.int64(slots[slot])
                if word == NOT_FOUND:
                    word = n_words
                    slots[slot], hashes[word], latest[word] = word, h, NOT_FOUND
                    n_words += 1
                    word_ends[n_words] = append_bytes(text, begin, i, words, word_ends[word])
                    if 2 * n_words > size:
                        size *= 2
                        grow_table(slots, size, hashes, n_words)
                        mask = np.uint64(size - 1)
                if latest[word] < doc_start:
                    latest[word], terms[n], counts[n] = n, word, 0
                    n += 1
                counts[latest[word]] += 1
            if i < end:
                i = decode_code_point(text, i)[1]
        new_starts[doc + 1] = n
    return n_words, n


@kernel
def is_same_bytes(words, first, last, text, begin, end):
    """Return True if words[first:last] and text[begin:end] are equal."""
    if last - first != end - begin:
        return False
    while begin < end and words[first] == text[begin]:
        first += 1
        begin += 1
    return begin == end


@kernel
def append_bytes(text, begin, end, words, out):
    """Copy text[begin:end] to words[out:]; return the end of the copy."""
    for i in range(begin, end):
        words[out] = text[i]
        out += 1
    return out


@kernel
def split_words(
    text, starts, max_words, is_word, min_chars, stop_text, stop_ends, stop_table, words, begins, ends, word_starts
):  # fmt: skip
    """Write the words of every text, at most max_words of each, into `words`, each followed by a space, and their
    begins and ends, and the first word of every text; return the number of words."""
    n, out = np.int64(0), np.int64(0)
    for doc in range(len(starts) - 1):
        i, end = starts[doc], starts[doc + 1]
        while i < end and n - word_starts[doc] < max_words:
            begin, n_chars = i, 0
            while i < end:
                code, after = decode_code_point(text, i)
                if code >= len(is_word) or not is_word[code]:
                    break
                i = after
                n_chars += 1
            if n_chars >= min_chars and not is_stop_word(stop_text, stop_ends, stop_table, text, begin, i):
                begins[n] = out
                for j in range(begin, i):
                    words[out] = text[j]
                    out += 1
                ends[n] = out
                words[out] = SPACE_BYTE
                out += 1
                n += 1
            if i < end:
                i = decode_code_point(text, i)[1]
        word_starts[doc + 1] = n
    return n


@kernel
def is_stop_word(stop_text, stop_ends, stop_table, text, begin, end):
    """Return True if text[begin:end] is a stop word."""
    if len(stop_ends) == 1:
        return False
    h = hash_bytes(text, begin, end)
    return stop_table[find_slot(stop_text, stop_ends, stop_table, text, begin, end, h)] != NOT_FOUND


@kernel
def count_terms(starts, terms, latest, distinct_starts, distinct, counts):
    """Write the result of `count_per_document` into the last three arguments and return the number of entries.
    latest[t] is the last entry of term t; it belongs to the current document unless it precedes the first entry of
    that document."""
    n = np.int64(0)
    for doc in range(len(starts) - 1):
        for i in range(starts[doc], starts[doc + 1]):
            term = terms[i]
            if latest[term] < distinct_starts[doc]:
                latest[term], distinct[n], counts[n] = n, term, 0
                n += 1
            counts[latest[term]] += 1
        distinct_starts[doc + 1] = n
    return n

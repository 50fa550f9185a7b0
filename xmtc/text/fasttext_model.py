"""The words of a fastText model (.bin), with the vectors that fastText itself writes into the .vec beside it: the mean
of a word's own row and the rows of its runs of characters.

Words outside the model's dictionary stay unknown, though fastText would make up a vector for them from their runs."""

from __future__ import annotations

import struct

import numpy as np

from xmtc.compiled import kernel
from xmtc.errors import XmtcError
from xmtc.text.vector_files import BLOCK_BYTES, Cursor, VectorFile, Vectors, Wanted, checked, finite

SUPERVISED = 3
END_OF_SENTENCE = b"</s>"  # the one word without runs of characters
SHORTEST_RUN, LONGEST_RUN, BUCKETS = 9, 10, 8  # where they stand among the twelve whole numbers of the header


def fasttext_model(cursor: Cursor) -> VectorFile:
    version, *settings, _ = struct.unpack("<4x13id", cursor.take(64))
    if version not in (11, 12):
        raise XmtcError(f"{cursor.name} is a fastText model of version {version}, expected 11 or 12; give its .vec.")
    shortest, longest, n_buckets = settings[SHORTEST_RUN], settings[LONGEST_RUN], settings[BUCKETS]
    if (version == 11 and settings[7] == SUPERVISED) or n_buckets <= 0:
        longest = 0
    d = checked(settings[0], cursor.name)

    def read(wanted: Wanted) -> Vectors:
        n_words, has_runs, words = read_dictionary(cursor, wanted)
        runs = (shortest, longest if has_runs else 0, n_buckets)
        owners, rows = rows_of_words(words, n_words, runs)
        sums = sum_rows(cursor, d, len(words), owners, rows)
        counts = np.bincount(owners, minlength=len(words)).astype(np.float32)
        for i, (word, _) in enumerate(words):
            yield word, finite(sums[i] / counts[i], cursor, word)

    return VectorFile(d, read)


def read_dictionary(cursor: Cursor, wanted: Wanted) -> tuple[int, bool, list[tuple[bytes, int]]]:
    """How many words there are, whether their runs of characters have rows, and the wanted words with their rows."""
    n_entries, n_words, _, _, n_pruned = struct.unpack("<3i2q", cursor.take(28))
    words = []
    for number in range(n_entries):
        word = cursor.until(b"\0")
        cursor.take(9)  # how often it occurs, and whether it is a label
        if number < n_words and wanted(word):  # labels come after the words
            words.append((word, number))
    cursor.take(8 * max(0, n_pruned))
    return n_words, n_pruned != 0, words


def rows_of_words(words: list[tuple[bytes, int]], n_words: int, runs: tuple[int, int, int]):
    """Pairs of a word (its index in the list) and a row of the matrix that belongs to it, in the order of the rows."""
    bracketed = [b"" if word == END_OF_SENTENCE else b"<%b>" % word for word, _ in words]
    ends = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in bracketed], out=ends[1:])
    text = np.frombuffer(b"".join(bracketed), np.uint8)
    owners, buckets = hash_runs(text, ends, *runs)
    owners = np.concatenate([np.arange(len(words), dtype=np.int32), owners])
    rows = np.concatenate([np.array([row for _, row in words], np.int32), n_words + buckets])
    order = np.argsort(rows, kind="stable")
    return owners[order], rows[order]


def sum_rows(cursor: Cursor, d: int, n_words: int, owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The sums of each word's rows, while the matrix passes by."""
    if cursor.take(1) != b"\0":
        raise XmtcError(f"{cursor.name} is a compressed fastText model (.ftz); give the whole model or its .vec.")
    n_rows, n_columns = struct.unpack("<2q", cursor.take(16))
    if n_columns != d or (len(rows) and rows[-1] >= n_rows):
        raise cursor.broken(f"the model has {n_rows} rows of {n_columns} values, expected more rows of {d} values")
    sums = np.zeros((n_words, d), np.float32)
    n_block = max(1, BLOCK_BYTES // (4 * d))
    for first in range(0, n_rows, n_block):
        n = min(n_block, n_rows - first)
        block = np.frombuffer(cursor.take(4 * d * n), "<f4").reshape(n, d)
        begin, end = np.searchsorted(rows, [first, first + n])
        add_rows(sums, owners[begin:end], rows[begin:end] - first, block)
    return sums


@kernel
def add_rows(sums, owners, rows, block):
    for i in range(len(rows)):
        for column in range(block.shape[1]):
            sums[owners[i], column] += block[rows[i], column]


@kernel
def hash_runs(text, ends, shortest, longest, n_buckets):
    """The runs of `shortest` to `longest` characters of every word: whose each is, and its bucket. FNV-1a, but for
    fastText's taking bytes as signed."""
    room = len(text) * max(0, longest - shortest + 1)
    owners, buckets, n = np.empty(room, np.int32), np.empty(room, np.int32), 0
    for word in range(len(ends) - 1):
        end = ends[word + 1]
        for begin in range(ends[word], end):
            if text[begin] & 0xC0 == 0x80:  # within a character
                continue
            h, at, n_chars = np.uint64(2166136261), begin, 0
            while at < end and n_chars < longest:
                byte = np.uint64(text[at])
                h ^= byte | np.uint64(0xFFFFFF00) if byte >= 128 else byte
                h = h * np.uint64(16777619) & np.uint64(0xFFFFFFFF)
                at += 1
                if at < end and text[at] & 0xC0 == 0x80:
                    continue
                n_chars += 1
                is_bracket = n_chars == 1 and (begin == ends[word] or at == end)
                if n_chars >= shortest and not is_bracket:
                    owners[n], buckets[n] = word, h % np.uint64(n_buckets)
                    n += 1
    return owners[:n].copy(), buckets[:n].copy()

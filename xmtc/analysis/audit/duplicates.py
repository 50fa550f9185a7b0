"""Duplicate documents: the same text, or nearly the same set of words, including words that are rare in the corpus."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from scipy.sparse import csr_array

from xmtc.analysis.audit.near_duplicates import find_similar_rows
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr
from xmtc.data.document import Document

MIN_WORD_OVERLAP = 0.9  # Jaccard similarity of near-duplicates
SNIPPET_CHARACTERS = 100
WORD_PATTERN = re.compile(r"\w+")


class DocumentCollector:
    """Collector of ids, text beginnings, fingerprints and words of documents that pass through `watch`."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.snippets: list[str] = []
        self.fingerprints = array("q")  # of the contents; 0 if empty
        self.word_ids: dict[str, int] = {}
        self.word_indices = array("i")  # distinct word ids of all documents, one document after the other
        self.offsets = array("q", [0])

    def watch(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield the documents and collect them; a second corpus is appended to the first."""
        for document in documents:
            self.ids.append(document.id)
            self.snippets.append(" ".join(document.text[: 2 * SNIPPET_CHARACTERS].split())[:SNIPPET_CHARACTERS])
            self.add_content(document)
            yield document

    def add_content(self, document: Document) -> None:
        if document.features is None:
            text = " ".join(normalize("NFKC", document.text).casefold().split())
            content = text.encode("utf-8", "replace")
            self.word_indices.extend(
                sorted({self.word_ids.setdefault(w, len(self.word_ids)) for w in WORD_PATTERN.findall(text)})
            )
        else:
            content = b"".join(part.tobytes() for part in document.features)
            self.word_indices.extend(document.features[0].tolist())
        self.fingerprints.append(hash_content(content))
        self.offsets.append(len(self.word_indices))

    def word_matrix(self) -> csr_array:
        """Return ones at the words or features of each document, shape (n_docs, n_words)."""
        indices = np.array(self.word_indices, np.int32)
        shape = len(self.ids), int(indices.max(initial=0)) + 1
        matrix = csr_array(
            (np.ones(len(indices), np.int8), indices, narrow_indptr(np.array(self.offsets))), shape=shape
        )
        matrix.sort_indices()
        return matrix


def hash_content(content: bytes) -> int:
    """Return a 64-bit hash; the probability of a collision among a million documents is 3e-8."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big", signed=True) if content else 0


class DuplicateDocuments(NamedTuple):
    """Duplicate of each document, arrays of shape (n_docs,)."""

    other: np.ndarray  # an earlier document that is a duplicate; NO_ROW if there is none
    similarity: np.ndarray  # Jaccard similarity of their words
    is_exact: np.ndarray  # equal except for case, spaces and Unicode composition


def find_duplicate_documents(
    fingerprints: np.ndarray, words: csr_array, n_reference: int = 1, run: Run = Run()
) -> DuplicateDocuments:
    """Find an earlier duplicate of each document.

    With `n_reference` above 1, find duplicates of the documents from `n_reference` on among those before it.
    """
    other, similarity = find_similar_rows(words, MIN_WORD_OVERLAP, n_reference=n_reference, run=run)
    _, where, group = np.unique(fingerprints, return_index=True, return_inverse=True)
    earliest, numbers = where[group], np.arange(len(fingerprints))
    is_exact = (
        (fingerprints != 0) & (earliest < (numbers if n_reference <= 1 else n_reference)) & (numbers >= n_reference)
    )
    return DuplicateDocuments(np.where(is_exact, earliest, other), np.where(is_exact, 1.0, similarity), is_exact)

"""Documents that are there twice, to the letter or nearly: with the same words but for one in ten, however often and in
whatever order they stand. Every word counts, also those that are too rare for a model."""

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

MIN_WORD_OVERLAP = 0.9  # of the words of two documents, the share that both have
SNIPPET_CHARACTERS = 100  # characters of a text that are kept
WORD_PATTERN = re.compile(r"\w+")


class DocumentCollector:
    """What is remembered of documents while something else reads them."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.snippets: list[str] = []
        self.fingerprints = array("q")  # of their contents; 0 where there is none
        self.word_ids: dict[str, int] = {}  # of the words
        self.word_indices = array("i")  # numbers of each document's words, each once, one document after the other
        self.offsets = array("q", [0])

    def watch(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The same documents, which may be a second corpus: it is noted after the first."""
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
        """(n_docs, n_words) ones at the words, or columns, of each document."""
        indices = np.array(self.word_indices, np.int32)
        shape = len(self.ids), int(indices.max(initial=0)) + 1
        found = csr_array((np.ones(len(indices), np.int8), indices, narrow_indptr(np.array(self.offsets))), shape=shape)
        found.sort_indices()
        return found


def hash_content(content: bytes) -> int:
    """Of a million documents, two that differ are taken for one with chance 3e-8."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big", signed=True) if content else 0


class DuplicateDocuments(NamedTuple):
    """(n_docs,) each."""

    other: np.ndarray  # a document before that is the same, or nearly; NONE where there is none
    similarity: np.ndarray  # the share of their words that both have
    is_exact: np.ndarray  # whether it is the same but for capitals, blanks and how letters are composed


def find_duplicate_documents(
    fingerprints: np.ndarray, words: csr_array, n_reference: int = 1, run: Run = Run()
) -> DuplicateDocuments:
    """Each document with one that comes before it; with `first`, those from there on with one that is before that."""
    other, similarity = find_similar_rows(words, MIN_WORD_OVERLAP, n_reference=n_reference, run=run)
    _, where, group = np.unique(fingerprints, return_index=True, return_inverse=True)
    earliest, numbers = where[group], np.arange(len(fingerprints))
    is_exact = (
        (fingerprints != 0) & (earliest < (numbers if n_reference <= 1 else n_reference)) & (numbers >= n_reference)
    )
    return DuplicateDocuments(np.where(is_exact, earliest, other), np.where(is_exact, 1.0, similarity), is_exact)

"""A seeded split of a corpus into a training and a test part, in which every label occurs in the training part.

Documents are visited in random order. Each goes to the test part unless that would take the last training document of
one of its labels, until the test part is full. So a label with one document has it in the training part, and every
label with two or more may stand in both. The test part falls short of the wish only if no other document can go.

The first pass keeps label numbers only; the second writes both parts, each in the order of the corpus."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress

import numpy as np

from xmtc.data.corpus import Corpus, writing_corpus
from xmtc.data.document import Document
from xmtc.data.files import STANDARD_STREAM
from xmtc.errors import XmtcError


@dataclass(frozen=True)
class Split:
    """How many documents went where, and how many were wished for in the test part."""

    n_train: int
    n_test: int
    n_wished: int


def split_corpus(
    corpus: Corpus,
    train: str,
    test: str,
    share: float | None = None,
    count: int | None = None,
    seed: int = 0,
    format: str | None = None,
) -> Split:
    """Write the two parts; the test part gets a share of the documents (0.2 unless told), or a count of them."""
    if STANDARD_STREAM in (train, test) or os.path.realpath(train) == os.path.realpath(test):
        raise XmtcError(f"The parts {train} and {test} must be two files; choose two names.")
    for part in (train, test):
        corpus.check_target(part)  # before the first pass, which may be long
    labels, ends = _labels_of(corpus)
    wished = _wished(len(ends), share, count)
    in_test = choose_test(labels, ends, wished, seed)
    seen = 0
    with writing_corpus(train, format, corpus) as add_to_train, writing_corpus(test, format, corpus) as add_to_test:
        for seen, document in enumerate(corpus, 1):
            if seen > len(in_test):
                break
            (add_to_test if in_test[seen - 1] else add_to_train)(document)
        if seen != len(in_test):
            raise XmtcError(f"{corpus.path} changed while it was read; nothing was written, so split it again.")
    n_test = int(in_test.sum())
    return Split(len(in_test) - n_test, n_test, wished)


@dataclass(frozen=True)
class Part:
    """Some documents of a corpus; each pass streams them anew."""

    documents: Iterable[Document]
    chosen: np.ndarray  # (n_docs,) bool

    def __iter__(self) -> Iterator[Document]:
        return compress(self.documents, self.chosen)

    def __len__(self) -> int:
        return int(self.chosen.sum())


def hold_out(documents: Iterable[Document], share: float = 0.2, seed: int = 0) -> tuple[Part, Part]:
    """The two parts of documents that can be iterated over again, for training and held out, without writing them. What
    is held out is a plain sample of the documents with labels: where parameters are compared, rare labels and unseen
    ones shall be as frequent as they will be."""
    has_labels = np.array([bool(document.labels) for document in documents], dtype=bool)
    labelled = np.flatnonzero(has_labels)
    if len(labelled) < 2:
        raise XmtcError(
            f"Found {len(labelled)} documents with labels; expected at least two, one to train on, one to measure on."
        )
    held_out = np.zeros(len(has_labels), dtype=bool)
    held_out[np.random.default_rng(seed).permutation(labelled)[: _wished(len(labelled), share, None)]] = True
    return Part(documents, ~held_out), Part(documents, held_out)


def choose_test(labels: np.ndarray, ends: np.ndarray, n_test: int, seed: int) -> np.ndarray:
    """A mask over documents, true for at most n_test that can go to the test part.

    labels: label numbers of all documents one after the other; ends: (n_docs,) where each document's labels end."""
    in_test = np.zeros(len(ends), dtype=bool)
    in_training = np.bincount(labels).tolist()
    flat, stops = labels.tolist(), ends.tolist()
    room = n_test
    for doc in np.random.default_rng(seed).permutation(len(stops)).tolist():
        if room == 0:
            break
        own = flat[stops[doc - 1] if doc else 0 : stops[doc]]
        if all(in_training[label] > 1 for label in own):
            for label in own:
                in_training[label] -= 1
            in_test[doc] = True
            room -= 1
    return in_test


def _labels_of(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    numbers: dict[str, int] = {}
    labels, ends = array("q"), array("q")
    for document in corpus:
        labels.extend(numbers.setdefault(label, len(numbers)) for label in document.labels)
        ends.append(len(labels))
    return np.array(labels, dtype=np.int64), np.array(ends, dtype=np.int64)


def _wished(n_docs: int, share: float | None, count: int | None) -> int:
    if share is not None and count is not None:
        raise XmtcError(f"Found both a share ({share}) and a count ({count}) for the test part; give one of them.")
    if n_docs < 2:
        raise XmtcError("The corpus holds one document; expected at least two, one for each part.")
    if count is not None:
        if not 0 < count < n_docs:
            raise XmtcError(f"count={count} is out of range; expected 1 to {n_docs - 1} of {n_docs} documents.")
        return count
    share = 0.2 if share is None else share
    if not 0 < share < 1:
        raise XmtcError(f"share={share} is out of range; expected a number between 0 and 1.")
    return min(max(round(share * n_docs), 1), n_docs - 1)  # neither part is empty

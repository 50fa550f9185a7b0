"""A matrix of labels and a fingerprint, from a stream of documents that is read once."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.prefetch import BackgroundWorker
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr
from xmtc.data.batch import Batch, Texts, whole_numbers
from xmtc.data.document import Document

ALONE = Run(threads=1)
HASHED_BEHIND = 16  # batches whose texts may wait for a thread that hashes them
TOGETHER = 32  # batches whose labels are numbered at a time
NO_TEXTS = Texts(np.zeros(0, np.uint8), np.zeros(1, np.int64))
Documents = TypeVar("Documents", Document, Document | Batch)


class LabelCollector:
    """Collects the labels of documents while something else reads them, and makes a matrix of them afterwards."""

    def __init__(self, run: Run = ALONE) -> None:
        self.run = run
        self.numbers: dict[str, int] = {}  # of the labels, in order of appearance
        self.flat = array("i")  # label numbers of all documents, one after the other
        self.offsets = array("q", [0])  # document i has flat[offsets[i]:offsets[i + 1]]
        self.lengths = array("q")  # bytes of text, or values of features, of each document
        self.waiting: list[Batch] = []  # whose labels are to be numbered, many at a time; without their texts
        self.contents = hashlib.blake2b(digest_size=16)  # all of them end to end

    def watch(self, documents: Iterable[Documents]) -> Iterator[Documents]:
        """The same documents; their labels are collected as they are read."""
        with closing(BackgroundWorker(self.contents.update, HASHED_BEHIND)) as hash_behind:
            for document in documents:
                if isinstance(document, Batch):
                    self._add_batch(document, self.contents.update if self.run.n_threads == 1 else hash_behind)
                else:
                    hash_behind.finish()
                    self._number_waiting()
                    self._add(document)
                yield document
        self._number_waiting()

    def _add(self, document: Document) -> None:
        self.flat.extend([self.numbers.setdefault(label, len(self.numbers)) for label in document.labels])
        self.offsets.append(len(self.flat))
        if document.features is None:
            content = document.text.encode("utf-8", "replace")
        else:
            content = b"".join(part.tobytes() for part in document.features)
        self.lengths.append(len(content))
        self.contents.update(content)

    def _add_batch(self, batch: Batch, hash_texts: Callable[[memoryview], None]) -> None:
        self.lengths.frombytes(np.diff(batch.texts.ends).tobytes())
        hash_texts(batch.texts.text.data)
        self.waiting.append(replace(batch, texts=NO_TEXTS))
        if len(self.waiting) >= TOGETHER:
            self._number_waiting()

    def _number_waiting(self) -> None:
        """Number the labels of the batches that wait: each name is looked up once for all of them."""
        if not self.waiting:
            return
        import pyarrow

        found = pyarrow.concat_arrays([batch.names for batch in self.waiting]).dictionary_encode()
        names = found.dictionary.to_pylist()
        numbers = np.array([self.numbers.setdefault(name, len(self.numbers)) for name in names], np.int32)
        found_numbers = numbers[whole_numbers(found.indices, len(found))]
        of_batches = np.split(found_numbers, np.cumsum([len(b.names) for b in self.waiting])[:-1])
        for batch, of_batch in zip(self.waiting, of_batches, strict=True):
            self.offsets.frombytes((batch.starts[1:] + len(self.flat)).tobytes())
            self.flat.frombytes(of_batch[batch.labels].tobytes())
        self.waiting.clear()

    def fingerprint(self) -> str:
        """The same for the same documents alone, whether they came one by one or in batches."""
        found = self.contents.copy()
        for part in (self.lengths, self.offsets, self.flat):
            found.update(part)
        found.update(repr(list(self.numbers)).encode("utf-8", "replace"))
        return found.hexdigest()

    def matrix(self, names: Iterable[str]) -> csr_array:
        """(n_docs, n_names) float32 with ones at the labels. Labels that are not among the names have further columns
        at the end: labels that a model with these names cannot predict."""
        columns = {name: i for i, name in enumerate(names)}
        found = sorted(self.numbers)
        column_of = np.empty(len(found), np.int32)  # by label number
        column_of[[self.numbers[name] for name in found]] = [columns.setdefault(name, len(columns)) for name in found]

        indices = column_of[np.frombuffer(self.flat, np.int32)] if len(self.flat) else np.zeros(0, np.int32)
        ones = np.ones(len(indices), np.float32)
        indptr = narrow_indptr(np.array(self.offsets))

        Y = csr_array((ones, indices, indptr), shape=(len(indptr) - 1, len(columns)))
        Y.sum_duplicates()
        Y.data[:] = 1
        return Y

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

from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr
from xmtc.core.threads import BackgroundWorker
from xmtc.data.batch import DocumentBatch, Texts, as_int32_view
from xmtc.data.document import Document

SINGLE_THREADED_RUN = Run(threads=1)
MAX_PENDING_HASHES = 16  # batches whose texts may wait for a thread that hashes them
BATCHES_PER_LOOKUP = 32  # batches whose labels are numbered at a time
EMPTY_TEXTS = Texts(np.zeros(0, np.uint8), np.zeros(1, np.int64))
Documents = TypeVar("Documents", Document, Document | DocumentBatch)


class LabelCollector:
    """Collects the labels of documents while something else reads them, and makes a matrix of them afterwards."""

    def __init__(self, run: Run = SINGLE_THREADED_RUN) -> None:
        self.run = run
        self.id_by_label: dict[str, int] = {}  # of the labels, in order of appearance
        self.label_ids = array("i")  # label numbers of all documents, one after the other
        self.offsets = array("q", [0])  # document i has flat[offsets[i]:offsets[i + 1]]
        self.content_lengths = array("q")  # bytes of text, or values of features, of each document
        self.pending_batches: list[
            DocumentBatch
        ] = []  # whose labels are to be numbered, many at a time; without their texts
        self.content_hash = hashlib.blake2b(digest_size=16)  # all of them end to end

    def collect(self, documents: Iterable[Documents]) -> Iterator[Documents]:
        """The same documents; their labels are collected as they are read."""
        with closing(BackgroundWorker(self.content_hash.update, MAX_PENDING_HASHES)) as hash_behind:
            for document in documents:
                if isinstance(document, DocumentBatch):
                    self._add_batch(document, self.content_hash.update if self.run.n_threads == 1 else hash_behind)
                else:
                    hash_behind.finish()
                    self._number_pending()
                    self._add(document)
                yield document
        self._number_pending()

    def _add(self, document: Document) -> None:
        self.label_ids.extend([self.id_by_label.setdefault(label, len(self.id_by_label)) for label in document.labels])
        self.offsets.append(len(self.label_ids))
        if document.features is None:
            content = document.text.encode("utf-8", "replace")
        else:
            content = b"".join(part.tobytes() for part in document.features)
        self.content_lengths.append(len(content))
        self.content_hash.update(content)

    def _add_batch(self, batch: DocumentBatch, hash_texts: Callable[[memoryview], None]) -> None:
        self.content_lengths.frombytes(np.diff(batch.texts.offsets).tobytes())
        hash_texts(batch.texts.data.data)
        self.pending_batches.append(replace(batch, texts=EMPTY_TEXTS))
        if len(self.pending_batches) >= BATCHES_PER_LOOKUP:
            self._number_pending()

    def _number_pending(self) -> None:
        """Number the labels of the batches that wait: each name is looked up once for all of them."""
        if not self.pending_batches:
            return
        import pyarrow

        found = pyarrow.concat_arrays([batch.label_names for batch in self.pending_batches]).dictionary_encode()
        names = found.dictionary.to_pylist()
        numbers = np.array([self.id_by_label.setdefault(name, len(self.id_by_label)) for name in names], np.int32)
        found_numbers = numbers[as_int32_view(found.indices, len(found))]
        of_batches = np.split(found_numbers, np.cumsum([len(b.label_names) for b in self.pending_batches])[:-1])
        for batch, of_batch in zip(self.pending_batches, of_batches, strict=True):
            self.offsets.frombytes((batch.label_offsets[1:] + len(self.label_ids)).tobytes())
            self.label_ids.frombytes(of_batch[batch.label_ids].tobytes())
        self.pending_batches.clear()

    def fingerprint(self) -> str:
        """The same for the same documents alone, whether they came one by one or in batches."""
        found = self.content_hash.copy()
        for part in (self.content_lengths, self.offsets, self.label_ids):
            found.update(part)
        found.update(repr(list(self.id_by_label)).encode("utf-8", "replace"))
        return found.hexdigest()

    def to_matrix(self, names: Iterable[str]) -> csr_array:
        """(n_docs, n_names) float32 with ones at the labels. Labels that are not among the names have further columns
        at the end: labels that a model with these names cannot predict."""
        columns = {name: i for i, name in enumerate(names)}
        found = sorted(self.id_by_label)
        column_of = np.empty(len(found), np.int32)  # by label number
        column_of[[self.id_by_label[name] for name in found]] = [
            columns.setdefault(name, len(columns)) for name in found
        ]

        indices = column_of[np.frombuffer(self.label_ids, np.int32)] if len(self.label_ids) else np.zeros(0, np.int32)
        ones = np.ones(len(indices), np.float32)
        indptr = narrow_indptr(np.array(self.offsets))

        Y = csr_array((ones, indices, indptr), shape=(len(indptr) - 1, len(columns)))
        Y.sum_duplicates()
        Y.data[:] = 1
        return Y

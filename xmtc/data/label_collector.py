"""Collection of a label matrix and a fingerprint from a stream of documents that is read once."""

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
MAX_PENDING_HASHES = 16  # batches in the queue of the hashing thread
BATCHES_PER_LOOKUP = 32  # batches whose labels are numbered together
EMPTY_TEXTS = Texts(np.zeros(0, np.uint8), np.zeros(1, np.int64))
Documents = TypeVar("Documents", Document, Document | DocumentBatch)


class LabelCollector:
    """Collector of the labels of documents while another consumer reads them."""

    def __init__(self, run: Run = SINGLE_THREADED_RUN) -> None:
        self.run = run
        self.id_by_label: dict[str, int] = {}  # in order of appearance
        self.label_ids = array("i")  # of all documents, one after the other
        self.offsets = array("q", [0])  # document i has label_ids[offsets[i]:offsets[i + 1]]
        self.content_lengths = array("q")  # bytes of the text or of the features of each document
        self.pending_batches: list[DocumentBatch] = []  # without texts; their labels are not numbered yet
        self.content_hash = hashlib.blake2b(digest_size=16)  # of the concatenated contents

    def collect(self, documents: Iterable[Documents]) -> Iterator[Documents]:
        """Yield the documents unchanged and collect their labels."""
        with closing(BackgroundWorker(self.content_hash.update, MAX_PENDING_HASHES)) as background_hash:
            hash_texts = self.content_hash.update if self.run.n_threads == 1 else background_hash
            for document in documents:
                if isinstance(document, DocumentBatch):
                    self._add_batch(document, hash_texts)
                else:
                    background_hash.finish()
                    self._number_pending()
                    self._add(document)
                yield document
        self._number_pending()

    def _add(self, document: Document) -> None:
        labels = sorted(document.labels) if isinstance(document.labels, (set, frozenset)) else document.labels
        self.label_ids.extend([self.id_by_label.setdefault(label, len(self.id_by_label)) for label in labels])
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
        """Number the labels of the pending batches; each distinct name is looked up once."""
        if not self.pending_batches:
            return
        import pyarrow

        encoded = pyarrow.concat_arrays([batch.label_names for batch in self.pending_batches]).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        distinct_ids = np.array([self.id_by_label.setdefault(name, len(self.id_by_label)) for name in names], np.int32)
        ids = distinct_ids[as_int32_view(encoded.indices, len(encoded))]
        batch_ends = np.cumsum([len(batch.label_names) for batch in self.pending_batches])
        for batch, batch_ids in zip(self.pending_batches, np.split(ids, batch_ends[:-1]), strict=True):
            self.offsets.frombytes((batch.label_offsets[1:] + len(self.label_ids)).tobytes())
            self.label_ids.frombytes(batch_ids[batch.label_ids].tobytes())
        self.pending_batches.clear()

    def fingerprint(self) -> str:
        """Return a hash of the documents, which does not depend on their division into batches."""
        content_hash = self.content_hash.copy()
        for part in (self.content_lengths, self.offsets, self.label_ids):
            content_hash.update(part)
        content_hash.update(repr(list(self.id_by_label)).encode("utf-8", "replace"))
        return content_hash.hexdigest()

    def to_matrix(self, names: Iterable[str]) -> csr_array:
        """Return the label matrix, shape (n_docs, n_columns), float32 ones.

        The first columns are those of `names`. Labels that are not among them, which a model with these names cannot
        predict, have further columns in alphabetical order."""
        columns = {name: i for i, name in enumerate(names)}
        labels = sorted(self.id_by_label)
        label_columns = [columns.setdefault(label, len(columns)) for label in labels]
        column_by_id = np.empty(len(labels), np.int32)
        column_by_id[[self.id_by_label[label] for label in labels]] = label_columns

        ids = np.frombuffer(self.label_ids, np.int32) if len(self.label_ids) else np.zeros(0, np.int32)
        indices = column_by_id[ids]
        ones = np.ones(len(indices), np.float32)
        indptr = narrow_indptr(np.array(self.offsets))

        Y = csr_array((ones, indices, indptr), shape=(len(indptr) - 1, len(columns)))
        Y.sum_duplicates()
        Y.data[:] = 1
        return Y

"""A matrix of labels and a fingerprint, from a stream of documents that is read once."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from scipy.sparse import csr_array

from xmtc.data.document import Document
from xmtc.sparse import narrow


class LabelCollector:
    """Collects the labels of documents while something else reads them, and makes a matrix of them afterwards."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}  # of the labels, in order of appearance
        self.flat = array("i")  # label numbers of all documents, one after the other
        self.offsets = array("q", [0])  # document i has flat[offsets[i]:offsets[i + 1]]
        self.fingerprint = hashlib.blake2b(digest_size=16)

    def watch(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The same documents; their labels are collected as they are read."""
        for document in documents:
            for label in document.labels:
                self.flat.append(self.numbers.setdefault(label, len(self.numbers)))
            self.offsets.append(len(self.flat))

            content = document.text if document.features is None else b"".join(f.tobytes() for f in document.features)
            self.fingerprint.update(repr((content, document.labels)).encode("utf-8", "replace"))
            yield document

    def matrix(self, names: Iterable[str]) -> csr_array:
        """(n_docs, n_names) float32 with ones at the labels. Labels that are not among the names have further columns
        at the end: labels that a model with these names cannot predict."""
        columns = {name: i for i, name in enumerate(names)}
        found = sorted(self.numbers)
        column_of = np.empty(len(found), np.int32)  # by label number
        column_of[[self.numbers[name] for name in found]] = [columns.setdefault(name, len(columns)) for name in found]

        indices = column_of[np.array(self.flat, np.int64)] if len(self.flat) else np.zeros(0, np.int32)
        ones = np.ones(len(indices), np.float32)
        indptr = narrow(np.array(self.offsets))

        Y = csr_array((ones, indices, indptr), shape=(len(indptr) - 1, len(columns)))
        Y.sum_duplicates()
        Y.data[:] = 1
        return Y

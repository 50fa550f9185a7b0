"""Labels and a fingerprint, gathered from a stream of documents as they pass by."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from scipy.sparse import csr_array

from xmtc.data.document import Document
from xmtc.sparse import narrow


class LabelCollector:
    """Label names of the documents that pass, as a compact matrix."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.flat, self.ends = array("i"), array("q", [0])
        self.fingerprint = hashlib.blake2b(digest_size=16)

    def watch(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents, their labels collected on the way."""
        for document in documents:
            for label in document.labels:
                self.flat.append(self.numbers.setdefault(label, len(self.numbers)))
            self.ends.append(len(self.flat))
            content = document.text if document.features is None else b"".join(f.tobytes() for f in document.features)
            self.fingerprint.update(repr((content, document.labels)).encode("utf-8", "replace"))
            yield document

    def matrix(self, names: Iterable[str]) -> csr_array:
        """(n_docs, n_names) with ones; labels that are not among the names follow in further columns, so that they
        count as what a model cannot know."""
        columns = {name: i for i, name in enumerate(names)}
        order = [columns.setdefault(name, len(columns)) for name in sorted(self.numbers)]
        number = np.empty(len(order), np.int32)
        number[[self.numbers[name] for name in sorted(self.numbers)]] = order
        indices = number[np.array(self.flat, np.int64)] if len(self.flat) else np.zeros(0, np.int32)
        ones = np.ones(len(indices), np.float32)
        Y = csr_array((ones, indices, narrow(np.array(self.ends))), shape=(len(self.ends) - 1, len(columns)))
        Y.sum_duplicates()
        Y.data[:] = 1
        return Y

"""Identity of documents: their own ids, and hashes of their contents for documents without one."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TypeVar

from xmtc.data.batch import DocumentBatch
from xmtc.data.document import Document, LineNumber

HASH_BYTES = 8
Documents = TypeVar("Documents", Document, Document | DocumentBatch)


class IdentityCollector:
    """Collector of the ids and content hashes of documents while another consumer reads them."""

    def __init__(self) -> None:
        self.ids: list[str] = []  # empty for documents without an id of their own
        self.hashes = array("Q")

    def collect(self, documents: Iterable[Documents]) -> Iterator[Documents]:
        """Yield the documents unchanged and collect their identities."""
        for document in documents:
            if isinstance(document, DocumentBatch):
                self._add_batch(document)
            else:
                self.ids.append(get_own_id(document))
                self.hashes.append(hash_document(document))
            yield document

    def _add_batch(self, batch: DocumentBatch) -> None:
        ids = [None] * len(batch) if batch.ids is None else batch.ids.to_pylist()
        self.ids += ["" if id is None else str(id) for id in ids]
        content, offsets = batch.texts.data.data, batch.texts.offsets.tolist()
        self.hashes.extend(hash_content(content[offsets[i] : offsets[i + 1]]) for i in range(len(batch)))


def get_own_id(document: Document) -> str:
    """Return the id of a document, or an empty string if it has only a line number."""
    return "" if isinstance(document.id, LineNumber) else document.id


def hash_document(document: Document) -> int:
    """Return a hash of the text or of the features of a document."""
    if document.features is None:
        return hash_content(document.text.encode("utf-8", "replace"))
    return hash_content(b"".join(part.tobytes() for part in document.features))


def hash_content(content: bytes | memoryview) -> int:
    return int.from_bytes(blake2b(content, digest_size=HASH_BYTES).digest(), "little")

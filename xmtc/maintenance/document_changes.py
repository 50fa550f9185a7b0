"""New, corrected and forgotten documents of an update, merged with the documents that a model keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from xmtc import features
from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr
from xmtc.core.training_store import TrainingStore, renumber_columns
from xmtc.data.document import Document
from xmtc.data.identity import get_own_id, hash_document
from xmtc.errors import XmtcError, truncate_text
from xmtc.features import FittedViews

NEW_ROW = -1  # row of a document that the model does not keep yet


class Feedback(NamedTuple):
    """Labels of a document that a person has accepted (those of the document) and rejected."""

    document: Document
    rejected: Sequence[str]


@dataclass
class ChangedDocument:
    """Document of an update: its features, its labels, and the row that it replaces."""

    document: Document
    row: int  # among the stored documents, or NEW_ROW
    labels: list[str]
    rejected: list[str] = field(default_factory=list)
    is_feedback: bool = False


class DocumentFinder:
    """Rows of stored documents by their own id, or by their content."""

    def __init__(self, store: TrainingStore) -> None:
        ids, hashes, names = store.read_ids(), store.hashes.tolist(), set(np.flatnonzero(store.is_name).tolist())
        self.rows_by_id = {id: row for row, id in enumerate(ids) if id}
        self.rows_by_hash = {content: row for row, content in enumerate(hashes) if row not in names}

    def find(self, document: Document) -> int:
        """Return the row of a document, or NEW_ROW; only a document without an id of its own is found by content."""
        if id := get_own_id(document):
            return self.rows_by_id.get(id, NEW_ROW)
        return self.rows_by_hash.get(hash_document(document), NEW_ROW)

    def find_ids(self, ids: Iterable[str]) -> np.ndarray:
        """Return the rows of documents to forget; raise XmtcError for an unknown id."""
        rows = []
        for id in ids:
            if id not in self.rows_by_id:
                raise XmtcError(f"The model keeps no document with the id {truncate_text(id)!r}; check the id.")
            rows.append(self.rows_by_id[id])
        return np.unique(np.array(rows, np.int64))


def collect_changes(
    store: TrainingStore, labels: Sequence[str], documents: Iterable[Document], feedback: Iterable[Feedback]
) -> list[ChangedDocument]:
    """Return the documents of an update, each once; the last version of a document counts.

    A document replaces all labels of its old version. Feedback adds the accepted labels and removes the rejected ones;
    other labels stay."""
    finder, Y, rejected = DocumentFinder(store), store.label_matrix(), store.rejected_matrix()
    changes: dict[int | str, ChangedDocument] = {}

    def get_key(document: Document, row: int) -> int | str:
        return row if row != NEW_ROW else get_own_id(document) or f"#{hash_document(document)}"

    for document in documents:
        row = finder.find(document)
        changes[get_key(document, row)] = ChangedDocument(document, row, list(document.labels))
    for document, wrong in feedback:
        row = finder.find(document)
        before = changes.get(get_key(document, row))
        if before is None and row != NEW_ROW:
            own = (m.indices[m.indptr[row] : m.indptr[row + 1]].tolist() for m in (Y, rejected))
            stored_labels, stored_rejected = ([labels[i] for i in numbers] for numbers in own)
            before = ChangedDocument(document, row, stored_labels, stored_rejected)
        old_labels, old_rejected = ([], []) if before is None else (before.labels, before.rejected)
        kept = [label for label in old_labels if label not in wrong]
        negatives = [label for label in old_rejected if label not in document.labels]
        changes[get_key(document, row)] = ChangedDocument(
            document,
            row,
            list(dict.fromkeys([*kept, *document.labels])),
            list(dict.fromkeys([*negatives, *wrong])),
            is_feedback=True,
        )
    return list(changes.values())


class MergedDocuments(NamedTuple):
    """Stored and changed documents, with the labels after the update."""

    data: Dataset
    rejected: csr_array
    ids: list[str]
    hashes: np.ndarray
    stored_rows: np.ndarray  # stored document of each row, or NEW_ROW for those that changed

    def select_rows(self, rows: np.ndarray) -> MergedDocuments:
        return MergedDocuments(
            data=self.data.select_rows(rows),
            rejected=self.rejected[rows],
            ids=[self.ids[row] for row in rows.tolist()],
            hashes=self.hashes[rows],
            stored_rows=self.stored_rows[rows],
        )


def merge_documents(
    store: TrainingStore,
    stored: Dataset,
    changes: Sequence[ChangedDocument],
    changed: Dataset,
    forgotten: np.ndarray,
    targets: np.ndarray,
    labels: Sequence[str],
) -> MergedDocuments:
    """Return all documents after an update: corrected ones in their old place, new ones at the end.

    Names of removed labels are left out. Corrected documents keep their weights, and new ones have weight 1.

    Parameters
    ----------
    store, stored
        Stored documents, and their features.
    changes, changed
        Documents of the update, and their features.
    forgotten
        Rows of stored documents to leave out.
    targets
        New number of each old label, or NO_LABEL.
    labels
        Labels after the update.
    """
    n_stored = store.n_docs
    source = np.arange(n_stored)  # row of stored documents followed by changed ones
    appended = []
    for number, change in enumerate(changes):
        if change.row == NEW_ROW:
            appended.append(n_stored + number)
        else:
            source[change.row] = n_stored + number
    numbers = {label: number for number, label in enumerate(labels)}
    Y, rejected = (
        csr_array(vstack([renumber_columns(old, targets, len(labels)), build_label_rows(new, numbers)], format="csr"))
        for old, new in (
            (store.label_matrix(), [change.labels for change in changes]),
            (store.rejected_matrix(), [change.rejected for change in changes]),
        )
    )
    weights, is_name = stored.weights, stored.is_name
    if weights is not None:
        weights = np.append(weights, [1.0 if change.row == NEW_ROW else weights[change.row] for change in changes])
    if is_name is not None:
        forgotten = np.append(forgotten, np.flatnonzero(is_name & (np.diff(Y.indptr)[:n_stored] == 0)))
        is_name = np.append(is_name, np.zeros(len(changes), bool))
    order = np.concatenate([np.delete(source, forgotten), np.array(appended, np.int64)])
    views = {name: stack_views(view, changed.views[name]) for name, view in stored.views.items()}
    ids = [*store.read_ids(), *(get_own_id(change.document) for change in changes)]
    hashes = np.append(store.hashes, np.array([hash_document(change.document) for change in changes], np.uint64))
    rows = np.arange(len(ids))
    stored_rows = np.where(rows < n_stored, rows, NEW_ROW)
    return MergedDocuments(Dataset(views, Y, weights, is_name=is_name), rejected, ids, hashes, stored_rows).select_rows(
        order
    )


def build_label_rows(rows: Sequence[Sequence[str]], numbers: Mapping[str, int]) -> csr_array:
    """Return an indicator matrix of label names; names without a number are left out."""
    known = [sorted({numbers[label] for label in row if label in numbers}) for row in rows]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in known])]).astype(np.int64)
    indices = np.array([number for row in known for number in row], np.int32)
    ones = np.ones(len(indices), np.float32)
    return csr_array((ones, indices, narrow_indptr(indptr)), shape=(len(rows), len(numbers)))


def stack_views(first: Bag | Tokens, second: Bag | Tokens) -> Bag | Tokens:
    """Return the documents of two views, with the encoder of the first and the terms of the second."""
    if isinstance(first, Bag) and isinstance(second, Bag):
        matrix = csr_array(vstack([first.matrix, second.matrix], format="csr", dtype=np.float32))
        return first.copy_with(matrix=matrix, vocabulary=second.vocabulary)
    assert isinstance(first, Tokens)
    assert isinstance(second, Tokens)
    ids = np.concatenate([first.ids, second.ids])
    offsets = np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]])
    return second.copy_with(ids=ids, offsets=offsets, encoder=first.encoder)


def transform_changes(views: FittedViews, changes: Sequence[ChangedDocument], run: Run) -> Dataset:
    """Return the features of changed documents."""
    return features.transform(views, [change.document for change in changes], run)

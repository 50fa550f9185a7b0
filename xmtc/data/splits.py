"""Seeded splits of documents into training and test or validation sets.

`split_corpus` writes a corpus as two files. Unless the split is plain random, every label keeps a training document:
documents are visited in random order, and each goes to the test set unless it is the last training document of one of
its labels, until the test set is full.

`hold_out` splits documents without writing them. It draws a plain random sample, so that rare and unseen labels are as
frequent in it as in new documents.

`train_valid_split` splits the arrays of a Dataset, for early stopping and calibration. The validation set is a random
sample, too; `sample_rows_keeping_labels` draws one that leaves every label a training document."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.data.corpus import Corpus, open_corpus_writer
from xmtc.data.document import Document
from xmtc.data.file_streams import STANDARD_STREAM
from xmtc.data.formats.paired import split_path_pair
from xmtc.errors import XmtcError

TEST_SHARE = 0.2
VALIDATION_SHARE, MAX_VALIDATION_DOCUMENTS = 0.05, 4000


@dataclass(frozen=True)
class SplitSizes:
    """Numbers of documents in each set, and the number that was requested for the test set."""

    n_train: int
    n_test: int
    n_requested: int


def split_corpus(
    corpus: Corpus,
    train: str,
    test: str,
    share: float | None = None,
    count: int | None = None,
    seed: int = 0,
    format: str | None = None,
    *,
    is_random: bool = False,
) -> SplitSizes:
    """Write a corpus as two files; the test set gets a share of the documents (0.2 by default), or a count.

    The first pass over the corpus stores only label ids; the second writes both files in the order of the corpus. The
    test set is smaller than requested if every other document is the last training document of a label. With
    `is_random` it is a plain random sample, which may have labels that no training document has."""
    _check_output_paths(corpus, train, test)
    labels, ends = _collect_labels(corpus)
    n_requested = _compute_test_size(len(ends), share, count)
    if is_random:
        in_test = np.zeros(len(ends), dtype=bool)
        in_test[np.random.default_rng(seed).permutation(len(ends))[:n_requested]] = True
    else:
        in_test = choose_test_documents(labels, ends, n_requested, seed)

    n_read = 0
    with (
        open_corpus_writer(train, format, corpus) as add_to_train,
        open_corpus_writer(test, format, corpus) as add_to_test,
    ):
        for n_read, document in enumerate(corpus, 1):
            if n_read > len(in_test):
                break
            (add_to_test if in_test[n_read - 1] else add_to_train)(document)

        if n_read != len(in_test):
            raise XmtcError(f"{corpus.path} changed while it was read; nothing was written, so run the split again.")

    n_test = int(in_test.sum())
    return SplitSizes(n_train=len(in_test) - n_test, n_test=n_test, n_requested=n_requested)


def choose_test_documents(labels: np.ndarray, ends: np.ndarray, n_test: int, seed: int) -> np.ndarray:
    """Return a mask, shape (n_docs,), of at most n_test documents; every label keeps a document outside of it.

    `labels` are the label ids of all documents, one after the other; document i has labels[ends[i - 1]:ends[i]]."""
    in_test = np.zeros(len(ends), dtype=bool)
    n_training = np.bincount(labels).tolist()  # training documents of each label
    label_list, end_list = labels.tolist(), ends.tolist()

    n_left = n_test
    for doc in np.random.default_rng(seed).permutation(len(end_list)).tolist():
        if n_left == 0:
            break

        doc_labels = label_list[end_list[doc - 1] if doc else 0 : end_list[doc]]
        if all(n_training[label] > 1 for label in doc_labels):
            for label in doc_labels:
                n_training[label] -= 1
            in_test[doc] = True
            n_left -= 1

    return in_test


@dataclass(frozen=True)
class Subset:
    """Subset of the documents of a corpus, streamed again by each iteration."""

    documents: Iterable[Document]
    mask: np.ndarray  # (n_docs,) bool

    def __iter__(self) -> Iterator[Document]:
        return compress(self.documents, self.mask)

    def __len__(self) -> int:
        return int(self.mask.sum())


def hold_out(documents: Iterable[Document], share: float = TEST_SHARE, seed: int = 0) -> tuple[Subset, Subset]:
    """Hold out a random share of the labelled documents.

    Parameters
    ----------
    documents : iterable of Document
        Corpus or list, not a generator: it is iterated once here and once for each use of a result.
    share : float
        Share of the labelled documents that is held out.
    seed : int
        Seed of the random sample.

    Returns
    -------
    tuple of (Subset, Subset)
        Training documents, including those without labels, and held-out documents.

    Examples
    --------
    >>> from xmtc import Document
    >>> documents = [Document(str(i), "text", ["label"]) for i in range(10)]
    >>> train, test = hold_out(documents, share=0.3)
    >>> len(train), len(test)
    (7, 3)
    """
    has_labels = np.array([bool(document.labels) for document in documents], dtype=bool)
    labelled = _shuffle_labelled(np.flatnonzero(has_labels), seed)
    held_out = np.zeros(len(has_labels), dtype=bool)
    held_out[labelled[: _compute_test_size(len(labelled), share)]] = True
    return Subset(documents, ~held_out), Subset(documents, held_out)


def train_valid_split(
    data: Dataset,
    valid: Dataset | None,
    seed: int,
    share: float = VALIDATION_SHARE,
    max_valid: int = MAX_VALIDATION_DOCUMENTS,
) -> tuple[Dataset, Dataset]:
    """Return training and validation data; if there is no `valid`, hold out a share of the labelled documents."""
    if valid is not None:
        _check_has_labels(valid)
        return data, valid
    held_out = sample_labelled_rows(data, seed, share, max_valid)
    return drop_rows(data, held_out), data.select_rows(held_out)


def sample_labelled_rows(
    data: Dataset, seed: int, share: float = VALIDATION_SHARE, max_rows: int = MAX_VALIDATION_DOCUMENTS
) -> np.ndarray:
    """Return the rows of a random share of the labelled documents, ascending."""
    labelled = _shuffle_labelled(find_labelled_rows(data), seed)
    return np.sort(labelled[: min(max_rows, max(1, int(len(labelled) * share)))])


def sample_folds(data: Dataset, seed: int, n_rows: int, n_folds: int) -> list[np.ndarray]:
    """Return disjoint random samples of n_rows labelled documents each, their rows ascending."""
    labelled = _shuffle_labelled(find_labelled_rows(data), seed)
    return [np.sort(labelled[number * n_rows : (number + 1) * n_rows]) for number in range(n_folds)]


def _shuffle_labelled(rows: np.ndarray, seed: int) -> np.ndarray:
    """Return rows of labelled documents in random order; raise XmtcError if there are fewer than two."""
    if len(rows) < 2:
        raise XmtcError(
            f"Found {len(rows)} documents with labels; expected at least two, one for training and one to hold out."
        )
    return np.random.default_rng(seed).permutation(rows)


def sample_rows_keeping_labels(data: Dataset, seed: int, n_rows: int) -> np.ndarray:
    """Return the rows of at most n_rows labelled documents; every label keeps a document outside of them."""
    assert data.Y is not None
    labelled = find_labelled_rows(data)
    Y = data.Y[labelled]
    return labelled[choose_test_documents(Y.indices, Y.indptr[1:], n_rows, seed)]


def find_labelled_rows(data: Dataset) -> np.ndarray:
    """Return the rows of the documents with labels and a positive weight; names of labels are no documents."""
    assert data.Y is not None
    has_labels = np.diff(data.Y.indptr) > 0
    if data.is_name is not None:
        has_labels &= ~data.is_name
    return np.flatnonzero(has_labels if data.weights is None else has_labels & (data.weights > 0))


def drop_rows(data: Dataset, rows: np.ndarray) -> Dataset:
    """Return the data without some documents.

    If only labels of documents have names, as without a vocabulary, names of labels that lose their last document are
    dropped too: such labels of new documents are not known by name either."""
    is_kept = np.ones(data.n_docs, bool)
    is_kept[rows] = False
    if data.is_name is None and data.names is None:
        return data.select_rows(np.flatnonzero(is_kept))
    assert data.Y is not None
    is_document = np.ones(data.n_docs, bool) if data.is_name is None else ~data.is_name
    had_documents, has_documents = (
        np.bincount(data.Y[kept].indices, minlength=data.n_labels) > 0 for kept in (is_document, is_document & is_kept)
    )
    is_unknown = had_documents & ~has_documents
    if _has_names_without_documents(data, had_documents):  # a vocabulary lists labels that no document has
        is_unknown[:] = False
    names = data.names and data.names.select(~is_unknown[data.names.labels])
    if data.is_name is not None:
        is_kept &= ~(data.is_name & (data.Y @ is_unknown > 0))
    return data.select_rows(np.flatnonzero(is_kept)).copy_with(names=names)


def _has_names_without_documents(data: Dataset, has_documents: np.ndarray) -> bool:
    assert data.Y is not None
    has_unseen_row = data.is_name is not None and bool((data.Y[data.is_name] @ ~has_documents).any())
    return has_unseen_row or (data.names is not None and not has_documents[data.names.labels].all())


def _check_output_paths(corpus: Corpus, train: str, test: str) -> None:
    """Raise XmtcError, before the first pass, if the results cannot be written to these paths."""
    train_files, test_files = (set(map(os.path.realpath, split_path_pair(path))) for path in (train, test))
    if STANDARD_STREAM in (train, test) or train_files & test_files:
        raise XmtcError(f"The parts {train} and {test} must be two files; choose two names.")
    for path in (train, test):
        corpus.check_not_overwritten(path)


def _collect_labels(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Return the label ids of all documents, one after the other, and the end of each document's labels."""
    id_by_label: dict[str, int] = {}
    labels, ends = array("q"), array("q")
    for document in corpus:
        labels.extend(id_by_label.setdefault(label, len(id_by_label)) for label in document.labels)
        ends.append(len(labels))
    return np.array(labels, dtype=np.int64), np.array(ends, dtype=np.int64)


def _compute_test_size(n_docs: int, share: float | None, count: int | None = None) -> int:
    """Return the size of a test set with this share or count; neither set is empty."""
    if share is not None and count is not None:
        raise XmtcError(f"Found both a share ({share}) and a count ({count}) for the test part; pass one of them.")
    if n_docs < 2:
        raise XmtcError("The corpus has one document; expected at least two, one for each part.")

    if count is not None:
        if not 0 < count < n_docs:
            raise XmtcError(f"count={count} is out of range; expected 1 to {n_docs - 1} of {n_docs} documents.")
        return count

    share = TEST_SHARE if share is None else share
    if not 0 < share < 1:
        raise XmtcError(f"share={share} is out of range; expected a number between 0 and 1.")
    return min(max(round(share * n_docs), 1), n_docs - 1)


def _check_has_labels(valid: Dataset) -> None:
    if valid.Y is None or not valid.Y.nnz:
        raise XmtcError(
            "No validation document has a label of the training documents; check the labels field, or train without "
            "validation documents."
        )

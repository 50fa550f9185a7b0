"""Documents divided in two, in several ways. All are seeded: the same seed gives the same documents.

`split_corpus` writes a corpus as two files, for training and for test. Every label stays in the training part:
documents are visited in random order, and each goes to the test part unless it is the last training document of one of
its labels, until the test part is full. So a label with a single document has it in the training part.

`hold_out` divides documents without writing them, to compare hyper-parameters. It draws a plain random sample, so that
rare and unseen labels are as frequent in it as they will be in new documents.

`train_valid_split` divides the arrays that a method is trained on. The validation documents decide when training stops,
or what scores mean. They are a random sample, too; `kept_labels` draws one that leaves every label a document."""

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
VALIDATION_SHARE, MAX_VALIDATION_DOCUMENTS = 0.05, 4000  # validation documents: one in 20, at most 4,000


@dataclass(frozen=True)
class SplitSizes:
    """How many documents each part got, and how many were requested for the test part."""

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
) -> SplitSizes:
    """Write a corpus as two files; the test part gets a share of the documents (0.2 by default), or a count of them.

    The first pass over the corpus keeps label numbers only; the second writes both parts, in the order of the corpus.
    The test part is smaller than requested if every other document is the last training document of a label."""
    _check_output_paths(corpus, train, test)
    labels, ends = _collect_labels(corpus)
    n_requested = _compute_test_size(len(ends), share, count)
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
            raise XmtcError(f"{corpus.path} changed while it was read; nothing was written, so split it again.")

    n_test = int(in_test.sum())
    return SplitSizes(n_train=len(in_test) - n_test, n_test=n_test, n_requested=n_requested)


def choose_test_documents(labels: np.ndarray, ends: np.ndarray, n_test: int, seed: int) -> np.ndarray:
    """(n_docs,) bool: at most n_test documents that are not the last training document of any label.

    labels: label numbers of all documents, one after the other; ends: (n_docs,) where each document's labels end."""
    in_test = np.zeros(len(ends), dtype=bool)
    n_training = np.bincount(labels).tolist()  # training documents of each label
    flat, stops = labels.tolist(), ends.tolist()

    n_left = n_test
    for doc in np.random.default_rng(seed).permutation(len(stops)).tolist():
        if n_left == 0:
            break

        doc_labels = flat[stops[doc - 1] if doc else 0 : stops[doc]]
        if all(n_training[label] > 1 for label in doc_labels):
            for label in doc_labels:
                n_training[label] -= 1
            in_test[doc] = True
            n_left -= 1

    return in_test


@dataclass(frozen=True)
class Subset:
    """Some of the documents of a corpus; each pass streams them anew."""

    documents: Iterable[Document]
    mask: np.ndarray  # (n_docs,) bool

    def __iter__(self) -> Iterator[Document]:
        return compress(self.documents, self.mask)

    def __len__(self) -> int:
        return int(self.mask.sum())


def hold_out(documents: Iterable[Document], share: float = TEST_SHARE, seed: int = 0) -> tuple[Subset, Subset]:
    """Documents for training, and a share of those with labels that is held out of it.

    The documents are passed over once here and once more for each use of a part, so they cannot be a generator."""
    has_labels = np.array([bool(document.labels) for document in documents], dtype=bool)
    labelled = np.flatnonzero(has_labels)
    if len(labelled) < 2:
        raise XmtcError(
            f"Found {len(labelled)} documents with labels; expected at least two, one to train on, one to measure on."
        )

    order = np.random.default_rng(seed).permutation(labelled)
    held_out = np.zeros(len(has_labels), dtype=bool)
    held_out[order[: _compute_test_size(len(labelled), share)]] = True
    return Subset(documents, ~held_out), Subset(documents, held_out)


def train_valid_split(
    data: Dataset,
    valid: Dataset | None,
    seed: int,
    share: float = VALIDATION_SHARE,
    max_valid: int = MAX_VALIDATION_DOCUMENTS,
) -> tuple[Dataset, Dataset]:
    """Training and validation documents: `data` and `valid` if the user has validation documents, or else a share of
    the documents with labels is held out of `data`."""
    if valid is not None:
        _check_has_labels(valid)
        return data, valid
    held_out = sample_labelled_rows(data, seed, share, max_valid)
    return drop_rows(data, held_out), data.select_rows(held_out)


def sample_labelled_rows(
    data: Dataset, seed: int, share: float = VALIDATION_SHARE, max_rows: int = MAX_VALIDATION_DOCUMENTS
) -> np.ndarray:
    """The rows of a random share of the documents with labels: new documents, too, have labels that are rare."""
    labelled = find_labelled_rows(data)
    if len(labelled) < 2:
        raise XmtcError(
            f"Found {len(labelled)} documents with labels; expected two, of which one is held out of training."
        )

    order = np.random.default_rng(seed).permutation(labelled)
    return np.sort(order[: min(max_rows, max(1, int(len(labelled) * share)))])


def sample_rows_keeping_labels(data: Dataset, seed: int, n_rows: int) -> np.ndarray:
    """The rows of at most so many documents with labels, none of which is the last document of a label."""
    assert data.Y is not None
    labelled = find_labelled_rows(data)
    Y = data.Y[labelled]
    return labelled[choose_test_documents(Y.indices, Y.indptr[1:], n_rows, seed)]


def find_labelled_rows(data: Dataset) -> np.ndarray:
    """Of the documents with labels; one that weighs nothing is none."""
    assert data.Y is not None
    has_labels = np.diff(data.Y.indptr) > 0
    return np.flatnonzero(has_labels if data.weights is None else has_labels & (data.weights > 0))


def drop_rows(data: Dataset, rows: np.ndarray) -> Dataset:
    return data.select_rows(np.setdiff1d(np.arange(data.n_docs), rows))


def _check_output_paths(corpus: Corpus, train: str, test: str) -> None:
    """Refuse, before the first pass, which may be long, what could not be written after it."""
    train_files, test_files = (set(map(os.path.realpath, split_path_pair(part))) for part in (train, test))
    if STANDARD_STREAM in (train, test) or train_files & test_files:
        raise XmtcError(f"The parts {train} and {test} must be two files; choose two names.")
    for part in (train, test):
        corpus.check_not_overwritten(part)


def _collect_labels(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Label numbers of all documents, one after the other, and where each document's labels end."""
    numbers: dict[str, int] = {}
    labels, ends = array("q"), array("q")
    for document in corpus:
        labels.extend(numbers.setdefault(label, len(numbers)) for label in document.labels)
        ends.append(len(labels))
    return np.array(labels, dtype=np.int64), np.array(ends, dtype=np.int64)


def _compute_test_size(n_docs: int, share: float | None, count: int | None = None) -> int:
    """How many of the documents a test part with this share or count has; neither part is empty."""
    if share is not None and count is not None:
        raise XmtcError(f"Found both a share ({share}) and a count ({count}) for the test part; give one of them.")
    if n_docs < 2:
        raise XmtcError("The corpus holds one document; expected at least two, one for each part.")

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
            "No validation document has a label that training documents have, so that nothing can be told from "
            "them; check their labels field, or leave them out."
        )

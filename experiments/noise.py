"""Label noise at a known rate, for experiments with noisy labels. Three kinds:

- missing: each label of a document is removed with a probability of the rate;
- swap: as missing, and for each removed label the document gets a wrong one, a label that it did not have. Wrong labels
  are drawn in proportion to their frequency, so that each label stays about as frequent as it was: drawn uniformly, the
  many rare labels of a large set would have more wrong documents than right ones;
- flip: every cell of documents × labels is inverted with a probability of the rate, as in Rank-AE (Wang et al., NAACL
  2019, Sec. 3.3). Most cells are empty, so this is for small label sets: with 4,000 labels and a rate of 0.1 a document
  gets 400 labels.

One random number decides for each label (with flip, for each cell), so that with the same seed a higher rate removes
all that a lower rate removes, and swap removes what missing removes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.sparse import narrow_indptr
from xmtc.data.corpus import Corpus, open_corpus_writer
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError

NOISE_KINDS = ("missing", "swap", "flip")
MAX_FLIPPED = 100_000_000  # labels added by flip; more would take gigabytes
MAX_SAMPLING_ROUNDS = 20  # of drawing for all documents at once


@dataclass(frozen=True)
class NoiseCounts:
    """Counts of changed labels."""

    n_docs: int
    n_labels: int  # label assignments before
    n_removed: int
    n_added: int
    n_unlabelled: int  # documents that lost all labels


def write_noisy_corpus(
    corpus: Corpus, target: str, rate: float, kind: str = "missing", seed: int = 0, format: str | None = None
) -> NoiseCounts:
    """Write a copy of the corpus with label noise. The first pass reads labels, the second writes."""
    check_noise_options(rate, kind)
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    corpus.check_not_overwritten(target)  # before the first pass, which may be long

    collector = LabelCollector()
    deque(collector.collect(corpus), maxlen=0)
    names = sorted(collector.id_by_label)
    before = collector.to_matrix(names)
    after = add_label_noise(before, rate, kind, seed)

    n_read = 0
    with open_corpus_writer(target, format, corpus) as add:
        for n_read, document in enumerate(corpus, 1):
            if n_read > after.shape[0]:
                break
            add(relabel_document(document, [names[i] for i in get_label_row(after, n_read - 1)]))

        if n_read != after.shape[0]:
            raise XmtcError(f"{corpus.path} changed while it was read; nothing was written. Run the command again.")

    return count_noise(before, after)


def count_noise(before: csr_array, after: csr_array) -> NoiseCounts:
    n_kept = before.multiply(after).nnz
    lost_all = (np.diff(before.indptr) > 0) & (np.diff(after.indptr) == 0)
    return NoiseCounts(
        n_docs=before.shape[0],
        n_labels=before.nnz,
        n_removed=before.nnz - n_kept,
        n_added=after.nnz - n_kept,
        n_unlabelled=int(lost_all.sum()),
    )


def relabel_document(document: Document, labels: list[str]) -> Document:
    """Return the document with other labels; old ones keep their order, new ones follow."""
    new, had = set(labels), set(document.labels)
    return document._replace(
        labels=[name for name in document.labels if name in new] + [name for name in labels if name not in had]
    )


def add_label_noise(Y: csr_array, rate: float, kind: str = "missing", seed: int = 0) -> csr_array:
    """Return a noisy copy of the label matrix Y; a document may lose all labels."""
    check_noise_options(rate, kind)
    Y = csr_array(Y, copy=True)
    Y.sum_duplicates()
    Y.eliminate_zeros()

    rng = np.random.default_rng(seed)
    if kind == "flip":
        return flip_labels(Y, rate, rng)

    removed = rng.random(Y.nnz) < rate
    cells = to_cells(Y)
    if kind == "missing":
        return matrix_from_cells(cells[~removed], Y)

    n_removed = np.bincount(cells[removed] // max(Y.shape[1], 1), minlength=Y.shape[0])
    wrong = sample_wrong_cells(Y, n_removed, rng)
    return matrix_from_cells(np.sort(np.concatenate([cells[~removed], wrong])), Y)


def flip_labels(Y: csr_array, rate: float, rng: np.random.Generator) -> csr_array:
    n_docs, n_labels = Y.shape
    if (n_more := n_docs * n_labels * rate) > MAX_FLIPPED:
        raise XmtcError(
            f"Flipping {rate:g} of {n_docs:,} documents × {n_labels:,} labels would add {n_more:,.0f} labels, expected "
            f"at most {MAX_FLIPPED:,}; choose a lower rate, or swap."
        )
    rows = (
        doc * n_labels
        + np.setxor1d(get_label_row(Y, doc), np.flatnonzero(rng.random(n_labels) < rate), assume_unique=True)
        for doc in range(n_docs)
    )
    return matrix_from_cells(np.concatenate([np.zeros(0, np.int64), *rows]), Y)


def sample_wrong_cells(Y: csr_array, n_wrong: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw cells (document · n_labels + label) that are empty in Y, `n_wrong` per document where there are enough.

    Labels are drawn in proportion to their frequency."""
    n_docs, n_labels = Y.shape
    frequencies = np.bincount(Y.indices, minlength=n_labels)
    n_wrong = np.minimum(n_wrong, np.count_nonzero(frequencies) - np.diff(Y.indptr))

    cumulative = np.cumsum(frequencies)
    taken = to_cells(Y)
    drawn = [np.zeros(0, np.int64)]
    pending = np.repeat(np.arange(n_docs), n_wrong)  # one document index per label still to be drawn
    for _ in range(MAX_SAMPLING_ROUNDS):
        if not len(pending):
            break

        # One label for each at once; a document that has it already stays pending.
        labels = np.searchsorted(cumulative, rng.integers(Y.nnz, size=len(pending)), side="right")
        cells, first = np.unique(pending * n_labels + labels, return_index=True)
        is_free = ~np.isin(cells, taken)
        drawn.append(cells[is_free])
        taken = np.concatenate([taken, cells[is_free]])
        pending = np.delete(pending, first[is_free])

    return np.concatenate([*drawn, *sample_remaining_cells(pending, np.sort(taken), frequencies, rng)])


def sample_remaining_cells(
    pending: np.ndarray, taken: np.ndarray, frequencies: np.ndarray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Draw the cells of documents that have nearly all frequent labels from their missing labels only."""
    n_labels = len(frequencies)
    docs, counts = np.unique(pending, return_counts=True)
    begins, ends = (np.searchsorted(taken, edges * n_labels) for edges in (docs, docs + 1))

    for doc, n, begin, end in zip(docs, counts, begins, ends, strict=True):
        weights = frequencies.astype(np.float64)
        weights[taken[begin:end] % n_labels] = 0
        yield doc * n_labels + rng.choice(n_labels, n, replace=False, p=weights / weights.sum())


def to_cells(Y: csr_array) -> np.ndarray:
    """Return document · n_labels + label of every entry, ascending."""
    return np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * Y.shape[1] + Y.indices


def matrix_from_cells(cells: np.ndarray, like: csr_array) -> csr_array:
    """Return a matrix with the shape and type of `like` and ones in these ascending cells."""
    n_docs, n_labels = like.shape
    ends = np.searchsorted(cells, np.arange(n_docs + 1) * n_labels)
    ones = np.ones(len(cells), like.dtype)
    return csr_array((ones, (cells % max(n_labels, 1)).astype(np.int32), narrow_indptr(ends)), shape=like.shape)


def get_label_row(Y: csr_array, doc: int) -> np.ndarray:
    return Y.indices[Y.indptr[doc] : Y.indptr[doc + 1]]


def check_noise_options(rate: float, kind: str) -> None:
    if not 0 <= rate <= 1:
        raise XmtcError(f"rate={rate} is out of range; expected a number from 0 to 1.")
    if kind not in NOISE_KINDS:
        raise XmtcError(f"kind={kind!r} is unknown; expected one of {', '.join(NOISE_KINDS)}.")

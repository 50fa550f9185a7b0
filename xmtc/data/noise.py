"""Label noise of a known rate, for experiments with imperfect labels. Three kinds:

- missing: each label of a document is taken away with the rate;
- swap: as missing, and for each label that went the document gets a wrong one, a label that it never had. Wrong ones
  are drawn by how often labels occur, so that each stays about as frequent as it was: drawn evenly, the many rare
  labels of a large set would have more wrong documents than right ones;
- flip: every cell of documents × labels changes sides with the rate, as in Rank-AE (Wang et al., NAACL 2019, Sec. 3.3).
  Most cells are empty, so that this is for small label sets: with 4,000 labels and a rate of 0.1 a document gets 400.

One random number decides on a label (of flip, a cell), so that with the same seed a higher rate takes all that a lower
one does, and swap takes what missing does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.data.collect import LabelCollector
from xmtc.data.corpus import Corpus, writing_corpus
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.sparse import narrow

KINDS = ("missing", "swap", "flip")
MOST_FLIPPED = 100_000_000  # labels that flip may add: some gigabytes, which is never what was meant
ROUNDS = 20  # in which wrong labels are drawn for all documents at once


@dataclass(frozen=True)
class Noise:
    """What noise did to a corpus."""

    n_docs: int
    n_labels: int  # of all documents together, before
    n_removed: int
    n_added: int
    n_bare: int  # documents that had labels, and have none left


def noisy_corpus(
    corpus: Corpus, target: str, rate: float, kind: str = "missing", seed: int = 0, format: str | None = None
) -> Noise:
    """Write the corpus with noise in its labels: the labels that occur in it, in alphabetical order, are the columns
    of `noisy`. The first pass keeps labels only, the second writes."""
    check(rate, kind)
    corpus.check_target(target)  # before the first pass, which may be long
    collector = LabelCollector()
    deque(collector.watch(corpus), maxlen=0)
    names = sorted(collector.numbers)
    before = collector.matrix(names)
    after = noisy(before, rate, kind, seed)
    seen = 0
    with writing_corpus(target, format, corpus) as add:
        for seen, document in enumerate(corpus, 1):
            if seen > after.shape[0]:
                break
            add(relabelled(document, [names[i] for i in row_of(after, seen - 1)]))
        if seen != after.shape[0]:
            raise XmtcError(f"{corpus.path} changed while it was read; nothing was written, so begin again.")
    n_kept = before.multiply(after).nnz
    n_bare = int(((np.diff(before.indptr) > 0) & (np.diff(after.indptr) == 0)).sum())
    return Noise(seen, before.nnz, before.nnz - n_kept, after.nnz - n_kept, n_bare)


def relabelled(document: Document, labels: list[str]) -> Document:
    """The document with other labels; those that it had keep their order, new ones follow."""
    new, had = set(labels), set(document.labels)
    return document._replace(
        labels=[name for name in document.labels if name in new] + [name for name in labels if name not in had]
    )


def noisy(Y: csr_array, rate: float, kind: str = "missing", seed: int = 0) -> csr_array:
    """Labels Y (n_docs, n_labels) with noise; a document may end without any."""
    check(rate, kind)
    Y = csr_array(Y, copy=True)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    rng = np.random.default_rng(seed)
    if kind == "flip":
        return flipped(Y, rate, rng)
    gone, cells = rng.random(Y.nnz) < rate, cells_of(Y)
    if kind == "missing":
        return with_ones(cells[~gone], Y)
    n_gone = np.bincount(cells[gone] // max(Y.shape[1], 1), minlength=Y.shape[0])
    return with_ones(np.sort(np.concatenate([cells[~gone], wrong_cells(Y, n_gone, rng)])), Y)


def flipped(Y: csr_array, rate: float, rng: np.random.Generator) -> csr_array:
    n_docs, n_labels = Y.shape
    if (n_more := n_docs * n_labels * rate) > MOST_FLIPPED:
        raise XmtcError(
            f"Flipping {rate:g} of {n_docs:,} documents × {n_labels:,} labels would add {n_more:,.0f} labels, expected "
            f"at most {MOST_FLIPPED:,}; choose a lower rate, or swap."
        )
    rows = (
        doc * n_labels + np.setxor1d(row_of(Y, doc), np.flatnonzero(rng.random(n_labels) < rate), assume_unique=True)
        for doc in range(n_docs)
    )
    return with_ones(np.concatenate([np.zeros(0, np.int64), *rows]), Y)


def wrong_cells(Y: csr_array, wished: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cells (document · n_labels + label) that are empty in Y, as many in each document as wished for, or as there are
    labels that it has not. Drawn for all documents at once; what was drawn in vain is drawn again."""
    n_docs, n_labels = Y.shape
    frequencies = np.bincount(Y.indices, minlength=n_labels)
    wished = np.minimum(wished, np.count_nonzero(frequencies) - np.diff(Y.indptr))
    taken = cells_of(Y)
    waiting, until = np.repeat(np.arange(n_docs), wished), np.cumsum(frequencies)
    drawn = [np.zeros(0, np.int64)]
    for _ in range(ROUNDS):
        if not len(waiting):
            break
        labels = np.searchsorted(until, rng.integers(Y.nnz, size=len(waiting)), side="right")
        cells, first = np.unique(waiting * n_labels + labels, return_index=True)
        free = ~np.isin(cells, taken)
        drawn.append(cells[free])
        taken = np.concatenate([taken, cells[free]])
        waiting = np.delete(waiting, first[free])
    taken.sort()
    docs, counts = np.unique(waiting, return_counts=True)
    begins, ends = (np.searchsorted(taken, edges * n_labels) for edges in (docs, docs + 1))
    # these have nearly all of what occurs often: look only at what they have not
    for doc, n, begin, end in zip(docs, counts, begins, ends, strict=True):
        weights = frequencies.astype(np.float64)
        weights[taken[begin:end] % n_labels] = 0
        labels = rng.choice(n_labels, n, replace=False, p=weights / weights.sum())
        drawn.append(doc * n_labels + labels)
    return np.concatenate(drawn)


def cells_of(Y: csr_array) -> np.ndarray:
    """Document · n_labels + label of every label, ascending."""
    return np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * Y.shape[1] + Y.indices


def with_ones(cells: np.ndarray, like: csr_array) -> csr_array:
    """A matrix of the shape and type of another, with ones in cells that ascend."""
    n_docs, n_labels = like.shape
    ends = np.searchsorted(cells, np.arange(n_docs + 1) * n_labels)
    ones = np.ones(len(cells), like.dtype)
    return csr_array((ones, (cells % max(n_labels, 1)).astype(np.int32), narrow(ends)), shape=like.shape)


def row_of(Y: csr_array, doc: int) -> np.ndarray:
    return Y.indices[Y.indptr[doc] : Y.indptr[doc + 1]]


def check(rate: float, kind: str) -> None:
    if not 0 <= rate <= 1:
        raise XmtcError(f"rate={rate} is out of range; expected a number from 0 to 1.")
    if kind not in KINDS:
        raise XmtcError(f"kind={kind!r} is unknown; expected one of {', '.join(KINDS)}.")

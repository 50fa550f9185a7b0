"""Predictions as matrices with a row for each document and a column for each label, as scikit-learn has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.memory import GIB, get_memory_limit
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr
from xmtc.data.document import Document
from xmtc.errors import XmtcError

MAX_RANKED_CELLS = 2**24  # of documents × labels that are ranked at a time, each with a number and a score
MAX_MEMORY_SHARE = 0.5  # of the memory that one matrix may take


def to_sparse_matrix(predictions: Predictions, n_labels: int, should_binarise: bool = False) -> csr_array:
    """(n_docs, n_labels) float32, the scores of the labels that are named; or int64, ones in their place."""
    is_named = predictions.labels != NO_LABEL
    labels = predictions.labels[is_named]
    values = np.ones(len(labels), np.int64) if should_binarise else predictions.scores[is_named]
    ends = narrow_indptr(np.concatenate([[0], np.cumsum(is_named.sum(axis=1))]))
    matrix = csr_array((values, labels, ends), shape=(predictions.n_docs, n_labels))
    matrix.sort_indices()
    return matrix


def compute_dense_scores(
    rank: Callable[[Sequence[Document], int, Run], Predictions], documents: Sequence[Document], n_labels: int, run: Run
) -> np.ndarray:
    """(n_docs, n_labels) float32, the scores of all labels; some documents at a time, because ranking takes more memory
    than its result."""
    scores = np.zeros((len(documents), n_labels), np.float32)
    step = max(1, MAX_RANKED_CELLS // n_labels)
    for begin in range(0, len(documents), step):
        part = rank(documents[begin : begin + step], n_labels, run)
        rows, places = np.nonzero(part.labels != NO_LABEL)
        scores[begin + rows, part.labels[rows, places]] = part.scores[rows, places]
    return scores


def check_matrix_memory(n_docs: int, n_labels: int, item_size: int) -> None:
    """Refuse a dense matrix that would fill the memory."""
    needed = n_docs * n_labels * item_size
    if needed > MAX_MEMORY_SHARE * get_memory_limit():
        raise XmtcError(
            f"The scores of {n_docs:,} documents × {n_labels:,} labels take {needed / GIB:,.1f} GiB, more than half of "
            "the memory; ask for the best alone with predict_proba(X, k=100) or rank(X, k=100)."
        )

"""Conversion of predictions to matrices of documents × labels, as scikit-learn expects them."""

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

MAX_RANKED_CELLS = 2**24  # documents × labels that are ranked at a time; each takes a label id and a score
MAX_MEMORY_SHARE = 0.5  # of the memory for one matrix


def to_sparse_matrix(predictions: Predictions, n_labels: int, should_binarise: bool = False) -> csr_array:
    """Return the predicted labels as a matrix, shape (n_docs, n_labels): scores (float32), or ones (int64)."""
    is_predicted = predictions.labels != NO_LABEL
    labels = predictions.labels[is_predicted]
    values = np.ones(len(labels), np.int64) if should_binarise else predictions.scores[is_predicted]
    indptr = narrow_indptr(np.concatenate([[0], np.cumsum(is_predicted.sum(axis=1))]))
    matrix = csr_array((values, labels, indptr), shape=(predictions.n_docs, n_labels))
    matrix.sort_indices()
    return matrix


def compute_dense_scores(
    rank: Callable[[Sequence[Document], int, Run], Predictions], documents: Sequence[Document], n_labels: int, run: Run
) -> np.ndarray:
    """Return the scores of all labels, shape (n_docs, n_labels), float32.

    Documents are ranked in parts, because ranking takes more memory than its result."""
    scores = np.zeros((len(documents), n_labels), np.float32)
    step = max(1, MAX_RANKED_CELLS // n_labels)
    for start in range(0, len(documents), step):
        part = rank(documents[start : start + step], n_labels, run)
        rows, ranks = np.nonzero(part.labels != NO_LABEL)
        scores[start + rows, part.labels[rows, ranks]] = part.scores[rows, ranks]
    return scores


def check_matrix_memory(n_docs: int, n_labels: int, item_size: int) -> None:
    """Raise XmtcError if a dense matrix would fill the memory."""
    n_bytes = n_docs * n_labels * item_size
    if n_bytes > MAX_MEMORY_SHARE * get_memory_limit():
        raise XmtcError(
            f"The scores of {n_docs:,} documents × {n_labels:,} labels take {n_bytes / GIB:,.1f} GiB, more than half "
            "of the memory; request only the best labels with predict_proba(X, k=100) or rank(X, k=100)."
        )

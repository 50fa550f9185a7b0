"""Prediction in batches that several threads share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xmtc.core.predictions import Predictions
from xmtc.core.run import Run


def predict_in_batches(
    predict: Callable[[slice], Predictions], n_docs: int, k: int, max_batch_docs: int, run: Run
) -> Predictions:
    """Return the predictions for all documents, computed by all threads in batches of rows.

    Batches have at most `max_batch_docs` documents, and fewer if that gives every thread a batch.
    """
    docs_per_thread = -(-n_docs // run.n_threads) if n_docs > 1 else 1  # counting the threads takes time
    size = max(1, min(max_batch_docs, docs_per_thread))
    batches = [slice(start, min(start + size, n_docs)) for start in range(0, n_docs, size)]
    empty = Predictions.from_valid_arrays(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
    return Predictions.stack([empty, *run.map(predict, batches, "predicting", total=len(batches))])

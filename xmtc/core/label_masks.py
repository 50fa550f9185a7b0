"""The best of some labels only: what may not be answered is left out before the best k are cut.

A model names its best labels, whatever they are; it is asked for more until each document has k that are allowed, or
the model has named all it can."""

from __future__ import annotations

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run

CANDIDATE_GROWTH_FACTOR = 8  # times as many labels are asked for when a document is short of some
MAX_PREDICTION_CELLS = 1 << 24  # labels that are held at a time


def predict_allowed(model: Model, data: Dataset, k: int, allowed: np.ndarray, run: Run = Run()) -> Predictions:
    """The best k among the labels that are allowed, (n_labels,) bool."""
    k = min(k, model.n_labels)
    wanted = min(k, int(allowed.sum()))
    labels, scores = np.full((data.n_docs, k), NO_LABEL, np.int32), np.zeros((data.n_docs, k), np.float32)
    left, asked = np.arange(data.n_docs), k + min(k, int((~allowed).sum()))
    while len(left):
        is_short = np.zeros(len(left), bool)
        size = max(1, MAX_PREDICTION_CELLS // asked)
        for begin in range(0, len(left), size):
            rows = left[begin : begin + size]
            found = select_allowed(model.predict(data.select_rows(rows), asked, run), allowed, k)
            labels[rows, : found.k], scores[rows, : found.k] = found.labels, found.scores
            is_short[begin : begin + size] = (found.labels[:, :wanted] == NO_LABEL).any(axis=1)
        left = left[is_short]
        if asked >= model.n_labels:  # if its search was bounded: once more, without bounds
            wider = model.to_exhaustive()
            if wider is model:
                break
            model = wider
        asked = min(CANDIDATE_GROWTH_FACTOR * asked, model.n_labels)
    return Predictions.from_valid_arrays(labels, scores)


def select_allowed(found: Predictions, allowed: np.ndarray, k: int) -> Predictions:
    """The first k of each document that are allowed, in their order."""
    kept = np.append(allowed, False)[found.labels]  # NO_LABEL is the last
    order = np.argsort(~kept, axis=1, kind="stable")[:, :k]
    kept = np.take_along_axis(kept, order, axis=1)
    labels = np.where(kept, np.take_along_axis(found.labels, order, axis=1), NO_LABEL)
    scores = np.where(kept, np.take_along_axis(found.scores, order, axis=1), 0)
    return Predictions.from_valid_arrays(labels.astype(np.int32), scores.astype(np.float32))

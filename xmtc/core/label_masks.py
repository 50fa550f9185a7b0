"""Prediction among allowed labels only.

The model predicts more and more labels, until each document has k allowed ones or the model has no more. An exhaustive
search then adds labels after those that the beam found, so that the first labels are the same for every k."""

from __future__ import annotations

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.ranking_steps import extend_ranking
from xmtc.core.run import Run

CANDIDATE_GROWTH_FACTOR = 8  # factor by which the number of candidates grows
MAX_PREDICTION_CELLS = 1 << 24  # maximum number of candidates held at a time


def predict_allowed(model: Model, data: Dataset, k: int, allowed: np.ndarray, run: Run = Run()) -> Predictions:
    """Return the best k labels among those in a boolean mask, shape (n_labels,)."""
    k = min(k, model.n_labels)
    n_wanted = min(k, int(allowed.sum()))
    labels, scores = np.full((data.n_docs, k), NO_LABEL, np.int32), np.zeros((data.n_docs, k), np.float32)
    pending, n_candidates = np.arange(data.n_docs), k + min(k, int((~allowed).sum()))
    has_missed_labels = False
    while len(pending):
        is_short = np.zeros(len(pending), bool)
        size = max(1, MAX_PREDICTION_CELLS // n_candidates)
        for begin in range(0, len(pending), size):
            rows = pending[begin : begin + size]
            part = select_allowed(model.predict(data.select_rows(rows), n_candidates, run), allowed, k)
            if has_missed_labels:
                part = extend_ranking(Predictions.from_valid_arrays(labels[rows], scores[rows]), part, k)
            labels[rows, : part.k], scores[rows, : part.k] = part.labels, part.scores
            is_short[begin : begin + size] = (part.labels[:, :n_wanted] == NO_LABEL).any(axis=1)
        pending = pending[is_short]
        if n_candidates >= model.n_labels:  # a beam may have missed labels
            exhaustive = model.to_exhaustive()
            if exhaustive is model:
                break
            model, has_missed_labels = exhaustive, True
        n_candidates = min(CANDIDATE_GROWTH_FACTOR * n_candidates, model.n_labels)
    return Predictions.from_valid_arrays(labels, scores)


def select_allowed(predictions: Predictions, allowed: np.ndarray, k: int) -> Predictions:
    """Return the first k allowed labels of each document, in order."""
    kept = np.append(allowed, False)[predictions.labels]  # NO_LABEL (-1) selects the appended False
    order = np.argsort(~kept, axis=1, kind="stable")[:, :k]
    kept = np.take_along_axis(kept, order, axis=1)
    labels = np.where(kept, np.take_along_axis(predictions.labels, order, axis=1), NO_LABEL)
    scores = np.where(kept, np.take_along_axis(predictions.scores, order, axis=1), 0)
    return Predictions.from_valid_arrays(labels.astype(np.int32), scores.astype(np.float32))

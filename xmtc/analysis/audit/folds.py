"""Out-of-fold predictions: each fold is predicted by a model trained on the other folds."""

from __future__ import annotations

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Method
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.errors import XmtcError


def check_folds(n_folds: int) -> None:
    if n_folds < 2:
        raise XmtcError(f"--folds {n_folds} leaves no training documents; expected at least 2.")


def assign_folds(groups: np.ndarray, n_folds: int, seed: int = 0) -> np.ndarray:
    """Return a random fold for each document, shape (n_docs,); documents of one group share a fold.

    Groups are duplicates: a copy in another fold would confirm its own labels.
    """
    check_folds(n_folds)
    members, group = np.unique(groups, return_inverse=True)
    if len(members) < n_folds:
        fewer = f", or --folds {len(members)}" if len(members) > 1 else ""
        raise XmtcError(
            f"{len(members)} different documents cannot be split in {n_folds} folds; give more documents{fewer}."
        )
    of_group = np.empty(len(members), np.int64)
    of_group[np.random.default_rng(seed).permutation(len(members))] = np.arange(len(members)) % n_folds
    return of_group[group]


def predict_out_of_fold(method: Method, data: Dataset, folds: np.ndarray, k: int, run: Run = Run()) -> Predictions:
    """Return the k best labels of each document, predicted by a model of the other folds."""
    labels = np.full((data.n_docs, k), NO_LABEL, np.int32)
    scores = np.zeros((data.n_docs, k), np.float32)
    n_folds = int(folds.max()) + 1
    with run.stage(f"predicting {n_folds} folds", n_folds) as progress:
        for fold in range(n_folds):
            held_out = np.flatnonzero(folds == fold)
            part = predict_held_out(method, data, folds != fold, held_out, k, run.without_output())
            labels[held_out, : part.k], scores[held_out, : part.k] = part.labels, part.scores
            progress.advance()
    return Predictions.from_valid_arrays(labels, scores)


def predict_held_out(
    method: Method, data: Dataset, is_training: np.ndarray, held_out: np.ndarray, k: int, run: Run
) -> Predictions:
    """Train on some documents and predict others; labels without training documents are dropped before."""
    part = data.select_rows(np.flatnonzero(is_training))
    assert part.Y is not None
    known = np.flatnonzero(np.bincount(part.Y.indices, minlength=data.n_labels))
    if not len(known):
        raise XmtcError("No document outside a fold has a label; give more labelled documents, or fewer --folds.")
    model = method.fit(part.select_label_columns(known), None, run)
    unlabelled = data.select_rows(held_out).copy_with(Y=None, weights=None)
    predictions = model.predict(unlabelled, min(k, len(known)), run)
    labels = np.where(predictions.labels == NO_LABEL, NO_LABEL, known[predictions.labels])
    return Predictions.from_valid_arrays(labels.astype(np.int32), predictions.scores)

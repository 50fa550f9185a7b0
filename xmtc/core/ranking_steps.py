"""Rankings whose first labels do not depend on the number of requested labels.

A model that averages several rankings, such as those of trees, reads only the first labels of each. If it read more of
them for a larger k, other labels could be first. It therefore reads them in steps: the first labels are ranked by the
first step, and a deeper step only adds labels after them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xmtc.core.predictions import NO_LABEL, Predictions

SECOND_STEP_LABELS = 100  # of each ranking; every further step reads STEP_FACTOR times as many
STEP_FACTOR = 10


def list_steps(k: int, first: int) -> list[int]:
    """Return the number of labels that each step reads, up to the first step with at least k labels."""
    steps = [first]
    while steps[-1] < k:
        steps.append(SECOND_STEP_LABELS if steps[-1] < SECOND_STEP_LABELS else STEP_FACTOR * steps[-1])
    return steps


def rank_in_steps(rank: Callable[[int, int], Predictions], steps: list[int], k: int) -> Predictions:
    """Return k labels per document; `rank(step, n)` returns the best n by the first `step` labels of each ranking."""
    predictions = rank(steps[0], min(k, steps[0]))
    for step in steps[1:]:
        n = min(k, step)
        predictions = extend_ranking(predictions, rank(step, n), n)
    return predictions


def extend_ranking(predictions: Predictions, deeper: Predictions, k: int) -> Predictions:
    """Return predictions followed by the other labels of a deeper ranking, k in all.

    A score is at most that of the label before it."""
    labels = np.hstack([predictions.labels, deeper.labels])
    scores = np.hstack([predictions.scores, deeper.scores])
    by_label = np.argsort(labels, axis=1, kind="stable")
    ordered = np.take_along_axis(labels, by_label, axis=1)
    is_repeated = np.zeros(labels.shape, bool)
    np.put_along_axis(is_repeated, by_label[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    is_dropped = is_repeated | (labels == NO_LABEL)
    order = np.argsort(is_dropped, axis=1, kind="stable")[:, :k]
    is_empty = np.take_along_axis(is_dropped, order, axis=1)
    labels = np.where(is_empty, NO_LABEL, np.take_along_axis(labels, order, axis=1))
    scores = np.where(is_empty, 0, np.minimum.accumulate(np.take_along_axis(scores, order, axis=1), axis=1))
    return Predictions.from_valid_arrays(labels.astype(np.int32, copy=False), scores.astype(np.float32, copy=False))

"""Values of metrics by their names, over a test set or document by document."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import Predictions
from xmtc.evaluation.metric_names import RANKING_METRICS, parse_metrics
from xmtc.evaluation.ranked_results import Indicators, to_ranked_results
from xmtc.labels.propensity import Propensity


def evaluate(
    predictions: Predictions,
    Y: Indicators,
    metrics: str | Iterable[str] = RANKING_METRICS,
    train_frequencies: np.ndarray | None = None,
    propensity: Propensity = Propensity(),
    n_train: int | None = None,
    lineage: csr_array | None = None,
    assigned: Predictions | None = None,
) -> dict[str, float]:
    """Each metric by its name, as a fraction from 0 to 1; nan for a frequency group without labels.

    Y, dense or sparse, has a row for each document and ones at its labels. Its columns are numbered as the labels of
    the predictions are: those of a Classifier as its `classes_`. It may have more columns than the model has labels:
    those labels were unseen in training. The propensity-scored metrics need train_frequencies, how many of the n_train
    training documents have each label (0 beyond its end). The hierarchical ones need lineage: a row for each column of
    Y, with ones at the label itself and at all that stand above it. Those at a decision (micro-F1@decision) need given:
    the predictions that were decided to be given.
    """
    judged = to_ranked_results(predictions, Y, train_frequencies, propensity, n_train, lineage, assigned)
    return {metric.name: metric.compute(judged) for metric in parse_metrics(metrics)}


def evaluate_per_document(
    predictions: Predictions,
    Y: Indicators,
    metrics: str | Iterable[str] = RANKING_METRICS,
    train_frequencies: np.ndarray | None = None,
    propensity: Propensity = Propensity(),
    n_train: int | None = None,
) -> dict[str, np.ndarray]:
    """(n_docs,) values of each metric that has values per document; their mean is what `evaluate` gives."""
    judged = to_ranked_results(
        predictions, Y, train_frequencies=train_frequencies, propensity=propensity, n_train=n_train
    )
    return {metric.name: metric.compute_per_document(judged) for metric in parse_metrics(metrics)}

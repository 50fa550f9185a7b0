"""Values of metrics by name, over a test set or per document."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.evaluation.ranked_results import Indicators, to_ranked_results
from xmtc.evaluation.registry import RANKING_METRICS, parse_metrics
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
    """Return the value of each metric, as a fraction from 0 to 1.

    Parameters
    ----------
    predictions : Predictions
        Ranked labels of each document.
    Y : array or sparse matrix of shape (n_docs, n_labels)
        True labels: one row per document, ones at its labels. Columns have the label numbers of the predictions; for a
        Classifier that is the order of its `classes_`. Columns beyond the model's labels are labels unseen in training.
    metrics : str or iterable of str
        Names of metrics, such as `P@5`, `nDCG@5` or `macro-F1@0.5`.
    train_frequencies : array of shape (n_labels,), optional
        Number of training documents with each label, for the propensity-scored metrics and for unseen and rare labels.
        Missing labels count 0.
    propensity : Propensity
        Propensity model of the propensity-scored metrics.
    n_train : int, optional
        Number of training documents, for the propensity-scored metrics.
    lineage : sparse matrix with one row per column of Y, optional
        Ones at each label itself and at all its ancestors, for the hierarchical metrics.
    assigned : Predictions, optional
        Labels selected by tuned thresholds, for metrics such as `micro-F1@decision`.

    Returns
    -------
    dict of str to float
        Values by metric name; nan for a frequency group without labels, or without documents that count.

    Raises
    ------
    XmtcError
        If a metric is unknown, an argument that it needs is missing, or Y does not match the predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from xmtc import evaluate
    >>> from xmtc.core.predictions import Predictions
    >>> predictions = Predictions(np.array([[2, 0], [1, 2]]), np.array([[0.9, 0.4], [0.8, 0.3]]))
    >>> evaluate(predictions, np.array([[0, 0, 1], [1, 0, 1]]), ["P@1", "P@2", "micro-F1@0.5"])
    {'P@1': 0.5, 'P@2': 0.5, 'micro-F1@0.5': 0.4}
    """
    results = to_ranked_results(predictions, Y, train_frequencies, propensity, n_train, lineage, assigned)
    return {metric.name: metric.compute(results) for metric in parse_metrics(metrics)}


def evaluate_per_document(
    predictions: Predictions,
    Y: Indicators,
    metrics: str | Iterable[str] = RANKING_METRICS,
    train_frequencies: np.ndarray | None = None,
    propensity: Propensity = Propensity(),
    n_train: int | None = None,
) -> dict[str, np.ndarray]:
    """Return the values of each metric per document, shape (n_docs,); their mean is the value of `evaluate`.

    The parameters are those of `evaluate`. Raise XmtcError for a metric that is not a mean over documents.
    """
    results = to_ranked_results(predictions, Y, train_frequencies, propensity, n_train)
    return {metric.name: metric.compute_per_document(results) for metric in parse_metrics(metrics)}


def compute_overlap(one: Predictions, other: Predictions, k: int) -> float:
    """Return the fraction of the k best labels that two predictions share, as a mean over documents (You et al.,
    AttentionXML, first version, Table 4). As in P@k, a missing prediction counts as not shared."""
    if one.n_docs != other.n_docs or one.n_docs == 0:
        raise XmtcError(
            f"Overlap needs two predictions for the same documents; got {one.n_docs} and {other.n_docs} documents."
        )
    ours, theirs = one.labels[:, :k], other.labels[:, :k]
    n_shared = sum(np.count_nonzero((ours == label[:, None]) & (ours != NO_LABEL)) for label in theirs.T)
    return n_shared / (one.n_docs * k)

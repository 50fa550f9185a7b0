"""Values of metrics by their names, over a test set or document by document."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.evaluation.ranked_results import Indicators, to_ranked_results
from xmtc.evaluation.registry import RANKING_METRICS, parse_metrics
from xmtc.labels.propensity import Propensity
from xmtc.text.string_index import StringIndex


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


def compute_overlap(one: Predictions, other: Predictions, k: int) -> float:
    """The share of the best k labels of one that are among the best k of the other, as a mean over documents (You et
    al., AttentionXML, first version, Table 4). As in P@k, a missing prediction is one that is not shared."""
    if one.n_docs != other.n_docs or one.n_docs == 0:
        raise XmtcError(f"Overlap needs answers to the same documents; got {one.n_docs} and {other.n_docs} of them.")
    ours, theirs = one.labels[:, :k], other.labels[:, :k]
    shared = sum(np.count_nonzero((ours == label[:, None]) & (ours != NO_LABEL)) for label in theirs.T)
    return shared / (one.n_docs * k)


def renumber_labels(predictions: Predictions, labels: StringIndex, wanted: StringIndex) -> Predictions:
    """Predictions with the numbers that other labels have for the same names; NO_LABEL for a name they do not have."""
    numbers = np.append(
        wanted.find_packed(labels.text, labels.ends), NO_LABEL
    )  # the last for NO_LABEL itself, which is -1
    return Predictions.from_valid_arrays(numbers[predictions.labels].astype(np.int32), predictions.scores)

"""Hierarchical metrics: hP, hR and hF1. Kiritchenko, Matwin, Nock, Famili: Learning and Evaluation in the Presence of
Class Hierarchies (2006); Silla, Freitas: A Survey of Hierarchical Classification (2011).

Predicted and true labels of a document are both extended by their ancestors, and the two sets are compared. Counts are
summed over all documents before the division, as in the paper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL
from xmtc.errors import XmtcError
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric


@register_metric("hP", parameter=K_PARAMETER, is_hierarchical=True)
def hierarchical_precision(results: RankedResults, k: int) -> float:
    """Precision of the first k predictions and their ancestors."""
    counts = count_extended_labels(results, k)
    return counts.shared / max(counts.predicted, 1)


@register_metric("hR", parameter=K_PARAMETER, is_hierarchical=True)
def hierarchical_recall(results: RankedResults, k: int) -> float:
    """Recall of the true labels and their ancestors by the first k predictions and their ancestors."""
    counts = count_extended_labels(results, k)
    return counts.shared / max(counts.true, 1)


@register_metric("hF1", parameter=K_PARAMETER, is_hierarchical=True)
def hierarchical_f1(results: RankedResults, k: int) -> float:
    """Harmonic mean of hP@k and hR@k."""
    counts = count_extended_labels(results, k)
    return 2 * counts.shared / max(counts.predicted + counts.true, 1)


class HierarchicalCounts(NamedTuple):
    """Sizes of the extended label sets, summed over the documents."""

    shared: int
    predicted: int
    true: int


def count_extended_labels(results: RankedResults, k: int) -> HierarchicalCounts:
    if results.lineage is None:
        raise XmtcError(
            "hP, hR and hF1 need a label hierarchy, and the model has none; attach a vocabulary with "
            "`xmtc vocab attach MODEL VOCAB`."
        )
    predicted = add_ancestors(to_prediction_matrix(results, k), results.lineage)
    true = add_ancestors(results.Y, results.lineage)
    return HierarchicalCounts(predicted.multiply(true).nnz, predicted.nnz, true.nnz)


def to_prediction_matrix(results: RankedResults, k: int) -> csr_array:
    """Return ones at the first k predictions, shape (n_docs, n_columns)."""
    labels = results.predictions.labels[:, :k]
    is_predicted = labels != NO_LABEL
    ends = np.concatenate([[0], np.cumsum(is_predicted.sum(axis=1))])
    shape = results.n_docs, results.Y.shape[1]
    return csr_array((np.ones(ends[-1], np.float32), labels[is_predicted], ends), shape=shape)


def add_ancestors(labels: csr_array, lineage: csr_array) -> csr_array:
    """Return a matrix, shape (n_docs, n_nodes), that is not zero at the labels of each document and their ancestors."""
    return csr_array(labels @ lineage)

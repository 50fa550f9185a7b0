"""Measures in which a near miss counts partly: hP, hR and hF1. Kiritchenko, Matwin, Nock, Famili: Learning and
Evaluation in the Presence of Class Hierarchies (2006); Silla, Freitas: A Survey of Hierarchical Classification (2011).

What is predicted and what is true are both extended by everything that stands above them in the hierarchy, and the two
sets of each document are compared. The sums run over all documents before they are divided, as in the paper."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL
from xmtc.errors import XmtcError
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import K_PARAMETER, register_metric


@register_metric("hP", parameter=K_PARAMETER, is_hierarchical=True)
def hierarchical_precision(judged: RankedResults, k: int) -> float:
    """Of the first k predictions and all above them, the share that is right or above a right one."""
    counts = count_extended_labels(judged, k)
    return counts.shared / max(counts.predicted, 1)


@register_metric("hR", parameter=K_PARAMETER, is_hierarchical=True)
def hierarchical_recall(judged: RankedResults, k: int) -> float:
    """Of the documents' labels and all above them, the share that is among the first k predictions or above them."""
    counts = count_extended_labels(judged, k)
    return counts.shared / max(counts.true, 1)


@register_metric("hF1", parameter=K_PARAMETER, is_hierarchical=True)
def hierarchical_f1(judged: RankedResults, k: int) -> float:
    """The harmonic mean of hP@k and hR@k."""
    counts = count_extended_labels(judged, k)
    return 2 * counts.shared / max(counts.predicted + counts.true, 1)


class HierarchicalCounts(NamedTuple):
    """Sizes of extended sets, summed over the documents."""

    shared: int
    predicted: int
    true: int


def count_extended_labels(judged: RankedResults, k: int) -> HierarchicalCounts:
    if judged.lineage is None:
        raise XmtcError(
            "hP, hR and hF1 need to know what stands above a label; attach a vocabulary to the model: "
            "xmtc vocab attach MODEL VOCAB."
        )
    predicted = add_ancestors(to_prediction_matrix(judged, k), judged.lineage)
    true = add_ancestors(judged.Y, judged.lineage)
    return HierarchicalCounts(predicted.multiply(true).nnz, predicted.nnz, true.nnz)


def to_prediction_matrix(judged: RankedResults, k: int) -> csr_array:
    """(n_docs, n_columns) ones at the first k predictions."""
    labels = judged.predictions.labels[:, :k]
    named = labels != NO_LABEL
    ends = np.concatenate([[0], np.cumsum(named.sum(axis=1))])
    return csr_array((np.ones(ends[-1], np.float32), labels[named], ends), shape=(judged.n_docs, judged.Y.shape[1]))


def add_ancestors(labels: csr_array, lineage: csr_array) -> csr_array:
    """(n_docs, n_nodes), not zero at the labels of each document and all above them."""
    return csr_array(labels @ lineage)

"""Predictions beside the truth: what every measure is computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
from scipy.sparse import csr_array, issparse, sparray, spmatrix

from xmtc.core.array_validation import NUMERIC_KINDS, as_label_matrix
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.labels.propensity import Propensity

T = TypeVar("T")
Indicators: TypeAlias = np.ndarray | sparray | spmatrix  # (n_docs, n_labels), not zero at the labels of a document


@dataclass(frozen=True, eq=False)
class RankedResults:
    """Predictions beside the true labels, and what several measures need of them.

    `judge` makes one from any matrix of true labels."""

    predictions: Predictions
    Y: csr_array  # (n_docs, n_columns), column numbers sorted, no stored zeros
    inverse_propensities: np.ndarray | None = None  # (n_columns,) float64, for the propensity-scored measures
    lineage: csr_array | None = None  # (n_columns, n_nodes) ones at each label and all above it, for hierarchical ones
    assigned: Predictions | None = None  # those that the model has decided to give, for measures at its decision

    _cache: dict[Callable[[RankedResults], Any], Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def n_docs(self) -> int:
        return self.predictions.n_docs

    @cached_property
    def n_labels(self) -> int:
        """One more than the largest label number among true and predicted labels."""
        return max(self.Y.shape[1], int(self.predictions.labels.max(initial=0)) + 1)

    @cached_property
    def hits(self) -> np.ndarray:
        """(n_docs, k) bool: which predictions are right."""
        labels = self.predictions.labels

        # A (document, label) pair becomes one number; the true ones are sorted, so that predictions can be looked up.
        true_pairs = np.append(self.true_rows * self.n_labels + self.Y.indices, -1)
        pairs = np.arange(self.n_docs)[:, None] * self.n_labels + labels

        found = true_pairs[np.searchsorted(true_pairs[:-1], pairs)] == pairs
        return found & (labels != NO_LABEL)

    @cached_property
    def true_rows(self) -> np.ndarray:
        """(nnz,) int64: the document of every true label, in the order of `Y.indices`."""
        return np.repeat(np.arange(self.Y.shape[0]), self.n_true)

    @cached_property
    def n_true(self) -> np.ndarray:
        """(n_docs,) how many true labels each document has."""
        return np.diff(self.Y.indptr)

    @cached_property
    def frequencies(self) -> np.ndarray:
        """(n_labels,) how many test documents have each label."""
        return np.bincount(self.Y.indices, minlength=self.n_labels)

    def apply_threshold(self, threshold: float) -> RankedResults:
        """Only the predictions that score at least the threshold."""
        found = RankedResults(self.predictions.apply_threshold(threshold), self.Y)
        vars(found)["hits"] = self.hits & (found.predictions.labels != NO_LABEL)  # which need not be looked up again
        return found

    def compute_once(self, compute: Callable[[RankedResults], T]) -> T:
        """`compute(self)`, computed at the first call and kept: for what several measures share."""
        if compute not in self._cache:
            self._cache[compute] = compute(self)
        return self._cache[compute]


def to_ranked_results(
    predictions: Predictions,
    Y: Indicators,
    train_frequencies: np.ndarray | None = None,
    propensity: Propensity = Propensity(),
    n_train: int | None = None,
    lineage: csr_array | None = None,
    assigned: Predictions | None = None,
) -> RankedResults:
    """Predictions beside the true labels, and the labels' propensities where the counts of the training set are known.

    Y may be dense, unsorted, and hold repeated entries or zeros; it is left as it is. The parameters are those of
    `evaluate`."""
    if not isinstance(predictions, Predictions):
        found = type(predictions).__name__
        raise XmtcError(f"Found a {found} where Predictions were expected; `rank` gives them: labels and scores.")
    true = as_true_labels(Y)
    if predictions.n_docs != true.shape[0] or true.shape[0] == 0:
        raise XmtcError(f"Metrics need predictions for every document; got {predictions.n_docs} for {true.shape[0]}.")
    if predictions.labels.size and predictions.labels.max() >= true.shape[1]:
        raise XmtcError(
            f"The predictions name label {predictions.labels.max()}, but Y has {true.shape[1]} labels; give a column "
            "of Y for each label of the model."
        )
    if lineage is not None and lineage.shape[0] != true.shape[1]:
        raise XmtcError(f"lineage has {lineage.shape[0]} rows for {true.shape[1]} labels; give one for each.")
    if train_frequencies is None or n_train is None:
        return RankedResults(predictions, true, lineage=lineage, assigned=assigned)

    unseen = np.zeros(max(true.shape[1] - len(train_frequencies), 1))
    frequencies = np.append(train_frequencies, unseen)
    return RankedResults(predictions, true, propensity.inverse(frequencies, n_train), lineage, assigned)


def as_true_labels(Y: Indicators) -> csr_array:
    """The matrix of true labels, as compiled code takes it."""
    try:
        matrix = Y if issparse(Y) else np.asarray(Y)
    except ValueError:  # lists of different lengths
        matrix = np.array(None)
    if matrix.ndim != 2 or matrix.dtype.kind not in NUMERIC_KINDS:
        raise XmtcError(
            f"Y is a {type(Y).__name__}, expected a matrix of zeros and ones, with a row per document; scikit-learn's "
            "MultiLabelBinarizer(classes=classifier.classes_) makes one of lists of labels."
        )
    return as_label_matrix(matrix)

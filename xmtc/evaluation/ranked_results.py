"""Predictions together with the true labels: the input of every metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
from scipy.sparse import csr_array, issparse, sparray, spmatrix

from xmtc.core.array_validation import NUMERIC_KINDS, as_label_matrix
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.labels.propensity import Propensity

T = TypeVar("T")
Indicators: TypeAlias = np.ndarray | sparray | spmatrix  # (n_docs, n_labels), non-zero at the labels of a document


@dataclass(frozen=True, eq=False)
class RankedResults:
    """Predictions, true labels and intermediate results that several metrics share.

    `to_ranked_results` makes one from any matrix of true labels.
    """

    predictions: Predictions
    Y: csr_array  # (n_docs, n_columns), column numbers sorted, no stored zeros
    inverse_propensities: np.ndarray | None = None  # (n_columns,) float64, for the propensity-scored metrics
    lineage: csr_array | None = None  # (n_columns, n_nodes) ones at each label and its ancestors
    assigned: Predictions | None = None  # labels selected by tuned thresholds, for metrics at @decision
    train_frequencies: np.ndarray | None = None  # (n_columns,) training documents, for the metrics of rare labels

    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def n_docs(self) -> int:
        return self.predictions.n_docs

    @cached_property
    def n_labels(self) -> int:
        """One more than the largest label number of true and predicted labels."""
        return max(self.Y.shape[1], int(self.predictions.labels.max(initial=0)) + 1)

    @cached_property
    def hits(self) -> np.ndarray:
        """Correct predictions, bool of shape (n_docs, k)."""
        labels = self.predictions.labels

        # Each (document, label) pair becomes one number. The true pairs are sorted, so predictions can be looked up.
        true_pairs = np.append(self.true_rows * self.n_labels + self.Y.indices, -1)
        pairs = np.arange(self.n_docs)[:, None] * self.n_labels + labels

        is_true = true_pairs[np.searchsorted(true_pairs[:-1], pairs)] == pairs
        return is_true & (labels != NO_LABEL)

    @cached_property
    def true_rows(self) -> np.ndarray:
        """Document of each true label, int64 of shape (nnz,), in the order of `Y.indices`."""
        return np.repeat(np.arange(self.Y.shape[0]), self.n_true)

    @cached_property
    def n_true(self) -> np.ndarray:
        """Number of true labels of each document, shape (n_docs,)."""
        return np.diff(self.Y.indptr)

    @cached_property
    def frequencies(self) -> np.ndarray:
        """Number of test documents with each label, shape (n_labels,)."""
        return np.bincount(self.Y.indices, minlength=self.n_labels)

    def apply_threshold(self, threshold: float) -> RankedResults:
        """Return the results with only the predictions that score at least the threshold."""
        results = RankedResults(self.predictions.apply_threshold(threshold), self.Y)
        vars(results)["hits"] = self.hits & (results.predictions.labels != NO_LABEL)  # fills the cached property
        return results

    def keep_best(self, k: int) -> RankedResults:
        """Return the results with at most k predictions per document; for the same k the same object."""
        if self.predictions.k <= k:
            return self
        key = ("keep_best", k)
        if key not in self._cache:
            self._cache[key] = replace(self, predictions=self.predictions.keep_best(k))
        return self._cache[key]

    def compute_once(self, compute: Callable[[RankedResults], T]) -> T:
        """Return `compute(self)`, computed at the first call and cached for the metrics that share it."""
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
    """Validate predictions and true labels; compute propensities if the counts of the training set are given.

    Y may be dense, unsorted, and hold repeated entries or zeros; it is not changed. The parameters are those of
    `evaluate`.
    """
    if not isinstance(predictions, Predictions):
        raise XmtcError(
            f"predictions is a {type(predictions).__name__}, expected Predictions (labels and scores), as returned by "
            "Classifier.rank."
        )
    true = as_true_labels(Y)
    if predictions.n_docs != true.shape[0] or true.shape[0] == 0:
        raise XmtcError(f"Metrics need predictions for every document; got {predictions.n_docs} for {true.shape[0]}.")
    if predictions.labels.size and predictions.labels.max() >= true.shape[1]:
        raise XmtcError(
            f"The predictions contain label {predictions.labels.max()}, but Y has {true.shape[1]} columns; pass a Y "
            "with a column for each label of the model."
        )
    if lineage is not None and lineage.shape[0] != true.shape[1]:
        raise XmtcError(f"lineage has {lineage.shape[0]} rows for {true.shape[1]} labels; expected one row per label.")
    if train_frequencies is None:
        return RankedResults(predictions, true, lineage=lineage, assigned=assigned)

    unseen = np.zeros(max(true.shape[1] - len(train_frequencies), 1))
    frequencies = np.append(train_frequencies, unseen)
    inverse = None if n_train is None else propensity.inverse(frequencies, n_train)
    return RankedResults(predictions, true, inverse, lineage, assigned, frequencies)


def as_true_labels(Y: Indicators) -> csr_array:
    """Return the matrix of true labels as a validated csr_array."""
    try:
        matrix = Y if issparse(Y) else np.asarray(Y)
    except ValueError:  # lists of different lengths
        matrix = np.array(None)
    if matrix.ndim != 2 or matrix.dtype.kind not in NUMERIC_KINDS:
        raise XmtcError(
            f"Y is a {type(Y).__name__}, expected a matrix of zeros and ones with a row per document; convert lists of "
            "labels with scikit-learn's MultiLabelBinarizer(classes=classifier.classes_)."
        )
    return as_label_matrix(matrix)

"""Solver of the linear methods: L2-regularised squared hinge and logistic loss by dual coordinate descent.

Hsieh et al. 2008; Yu, Huang, Lin 2011 (both in LIBLINEAR). Differences (docs/explanation/linear-engine.md):

- All labels of a tree node share their documents, so the features of a document are read once for a block of labels:
  W has shape (n_features, n_labels), and the inner loop runs along the labels.
- Columns that are empty in the node are dropped, so that the weights stay in the cache.
- The bias is not a dual feature, which would couple all documents and converge last. It is constant during a pass and
  updated by a Newton step after it.
- Dense and unscaled features are solved in the primal (`newton.py`): coordinate descent converges slowly with them.
- Documents are visited in shuffled runs of neighbours, so that memory access is nearly sequential. The caller shuffles
  the documents once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.events import Convergence, merge_convergence
from xmtc.core.numba_support import kernel
from xmtc.core.run import Run
from xmtc.core.sparse import CompactMatrix, as_compact, compact
from xmtc.errors import XmtcError
from xmtc.linear.coordinate_descent import (
    compute_squared_norms,
    descend_block,
    descend_pair,
    initialise_bias,
    shrink_weights,
    shuffle,
)
from xmtc.linear.newton import NewtonProblem, add_bias_column, solve_by_newton
from xmtc.linear.node_data import NodeDocuments, WeightRows
from xmtc.linear.simd import LANES

MAX_FINAL_CHANGE = 0.25  # maximum change of α in the last pass as a fraction of the first, for trained classifiers
MAX_BLOCK_LABELS = 128  # maximum labels of a block
MIN_PASSES = 6  # passes over nodes with much data if max_passes is 20; more do not improve accuracy
MIN_PAIR_PASSES = 4  # the same for two labels, such as the inner nodes of binary trees
CHEAP_NODE_VISITS = 20_000_000  # visited weights (some hundredths of a second) up to which a node gets all passes
VALUE_READ_COST = 3  # labels whose weights can be visited in the time of reading one value of a document
RUN_DOCUMENTS, MAX_RUN_DOCUMENTS = 8, 256  # consecutive documents of a run, which the processor prefetches
MIN_RUNS = 256  # runs of RUN_DOCUMENTS up to this number, then longer runs
MAX_SCALED_SQUARE = 1e36  # maximum C ‖x‖² for which a step can be computed in float32
MAX_SPARSE_DENSITY = 0.1  # share of non-zero features above which features are dense
MAX_SPARSE_SQUARE = 4.0  # mean ‖x‖² above which features are unscaled; tf-idf vectors have length 1


@dataclass(frozen=True)
class Solver:
    """Solver of min λ‖w‖₁ + ½‖w‖² + ½b² + C Σ v loss(y (w·x + b)) for each label; v is the weight of the document.

    With a penalty λ > 0, dual coordinate descent accumulates the weights before the proximal step, and margins use the
    soft-thresholded weights (Yen et al. 2016). With more than one proximal step the objective is λ‖w‖₁ + loss: each
    step starts from the weights of the step before it, and ½‖w − w_before‖² replaces ½‖w‖² (Rockafellar 1976).
    """

    loss: str = "squared_hinge"  # max(0, 1 − m)², or "logistic": log(1 + exp(−m))
    C: float = 1.0
    eps: float = 0.01  # stop when a pass changes α by at most this fraction of the change of the first pass
    max_passes: int = 20  # of coordinate descent, or Newton steps
    seed: int = 0
    cheap_visits: int = CHEAP_NODE_VISITS
    penalty: float = 0.0  # λ
    steps: int = 1  # proximal steps
    is_primal: bool = False  # True for Newton's method instead of dual coordinate descent, for dense features
    feature_length: float = 1.0  # root mean square of ‖x‖ of unscaled features, whose weights are smaller by as much

    def for_features(self, X: csr_array) -> Solver:
        """Return a solver that also converges if the features are dense or unscaled. The primal solver has no L1
        penalty."""
        n_cells = max(X.shape[0] * X.shape[1], 1)
        mean_square = float(compute_squared_norms(X.indptr, X.data).mean(dtype=np.float64))
        is_unscaled = mean_square > MAX_SPARSE_SQUARE
        return replace(
            self,
            is_primal=(is_unscaled or X.nnz > MAX_SPARSE_DENSITY * n_cells) and not self.penalty,
            feature_length=mean_square**0.5 if is_unscaled else 1.0,
        )

    def fit(
        self,
        X: csr_array,
        rows: np.ndarray,
        positives: csr_array,
        weights: np.ndarray | None = None,
        factors: np.ndarray | None = None,
    ) -> LinearWeights:
        """Train a classifier for every column of `positives` on the documents `rows` of X.

        Parameters
        ----------
        X
            All documents, shape (n_docs, n_features).
        rows
            Documents to train on.
        positives
            Ones at the labels of each document, shape (len(rows), n_labels).
        weights
            Positive document weights v, shape (n_docs,).
        factors
            Factors of the losses of the documents that have the label, shape (n_labels,).
        """
        has_all_rows = np.array_equal(rows, np.arange(X.shape[0]))
        documents, n_labels = as_compact(X) if has_all_rows else compact(X, rows), positives.shape[1]
        weights = select_row_weights(weights, rows)
        W, convergence = np.empty((len(documents.columns) + 1, n_labels), np.float32), Convergence()
        for begin in range(0, n_labels, MAX_BLOCK_LABELS):
            width = min(MAX_BLOCK_LABELS, n_labels - begin)
            padded = padded_width(width)
            signs = make_signs(positives, begin, padded)
            block_factors = None if factors is None else pad_with_ones(factors[begin : begin + width], padded)
            block, progress = self.solve_with_progress(documents, signs, weights, block_factors)
            W[:, begin : begin + width] = block[:, :width]
            convergence = merge_convergence([convergence, describe_progress(progress, width)])
        return LinearWeights(documents.columns, W, n_labels, convergence=convergence)

    def _solve_primal(
        self, documents: CompactMatrix, signs: np.ndarray, weights: np.ndarray | None, factors: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        costs = np.full(signs.shape, float(self.C))
        if weights is not None:
            costs *= weights[:, None]
        if factors is not None:
            costs *= np.where(signs > 0, factors, 1)
        shape = len(signs), len(documents.columns)
        X = csr_array((documents.data, documents.indices.astype(np.int64), documents.indptr), shape=shape)
        problem = NewtonProblem(add_bias_column(X), signs.astype(np.float64), costs, self.loss == "logistic")
        W, progress = solve_by_newton(problem, self.eps, self.max_passes)
        return W.astype(np.float32), progress

    def check_feature_scale(self, X: csr_array, weights: np.ndarray | None = None) -> None:
        """Raise XmtcError if C ‖x‖² may be too large for float32."""
        largest = max(float(X.data.max(initial=0)), -float(X.data.min(initial=0)))
        longest = int(np.diff(X.indptr).max(initial=0))
        heaviest = 1.0 if weights is None else float(weights.max(initial=0))
        if self.C * heaviest * longest * largest**2 > MAX_SCALED_SQUARE:
            factors = f"C={self.C:g}" + ("" if weights is None else f" and weights of up to {heaviest:g}")
            raise XmtcError(
                f"X has values of up to {largest:g}, which is too large for {factors}; scale X (for example with "
                "unit_length=true) or lower C."
            )

    def solve(
        self,
        documents: CompactMatrix,
        signs: np.ndarray,
        weights: np.ndarray | None = None,
        factors: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the weights of one block of labels, shape (n_features + 1, n_labels); the last row is the biases."""
        return self.solve_with_progress(documents, signs, weights, factors)[0]

    def solve_with_progress(
        self, documents: CompactMatrix, signs: np.ndarray, weights: np.ndarray | None, factors: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the result of `solve` and that of `write_progress`."""
        if self.is_primal:
            return self._solve_primal(documents, signs, weights, factors)
        no_singletons = np.zeros(len(signs), np.float32)
        squares = compute_squared_norms(documents.indptr, documents.data)
        arrays = (*documents[:3], no_singletons, squares, len(documents.columns), 0)
        return self._descend(arrays, signs, weights, factors)

    def solve_rows(
        self, X: csr_array, rows: np.ndarray, signs: np.ndarray, n_labels: int, weights: np.ndarray | None = None
    ) -> LinearWeights:
        """Return the weights of one block of labels over the documents `rows` of X."""
        documents = compact(X, rows)
        W, progress = self.solve_with_progress(documents, signs[:, :n_labels], select_row_weights(weights, rows))
        return LinearWeights(documents.columns, W, n_labels, convergence=describe_progress(progress, n_labels))

    def solve_node(
        self, documents: NodeDocuments, signs: np.ndarray, n_labels: int, weights: np.ndarray | None = None
    ) -> LinearWeights:
        """Return the weights of one block of labels over the documents of a node."""
        W, progress = self._descend(documents[:7], signs, weights)
        convergence = describe_progress(progress, n_labels)
        return LinearWeights(documents.columns, W, n_labels, documents.weight_rows, convergence)

    def _descend(
        self, documents: tuple, signs: np.ndarray, weights: np.ndarray | None, factors: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights with the biases as the last row, and the result of `write_progress`. `documents` are the
        fields of NodeDocuments up to n_singletons, in the order of the kernels' arguments."""
        n_rows, n_labels = signs.shape
        bias, progress = np.empty(n_labels, np.float32), np.zeros(2, np.float32)
        weights = np.ones(n_rows, np.float32) if weights is None else weights
        initialise_bias(signs, weights, bias)
        loss = self.loss == "logistic", np.float32(self.C), weights
        penalty = np.float32(self.penalty) if self.penalty else None
        limits = np.float32(self.eps), self.pass_limit(len(documents[2]), n_labels)
        length = choose_run_length(n_rows, n_labels)
        order = length, np.arange(-(-n_rows // length)), seed_state(self.seed)
        if n_labels == 2 and factors is None and penalty is None:
            W = descend_pair(*documents, signs, *loss, *limits, *order, bias, progress)
        else:
            W = None
            for _ in range(self.steps):
                W = descend_block(*documents, signs, *loss, factors, penalty, W, *limits, *order, bias, progress)
                shrink_weights(W, penalty)
        W[-1] = bias
        return W, progress

    def pass_limit(self, n_values: int, n_labels: int) -> int:
        """Return the maximum number of passes: max_passes if they are cheap, fewer for nodes with much data."""
        n_cheap_passes = self.cheap_visits // (n_values * (n_labels + VALUE_READ_COST) + 1)
        min_passes = MIN_PAIR_PASSES if n_labels == 2 else MIN_PASSES
        return min(self.max_passes, max(min_passes, min_passes * self.max_passes // 20, n_cheap_passes))


def describe_progress(progress: np.ndarray, n_labels: int) -> Convergence:
    """Return the convergence of a block of labels from the result of `write_progress`."""
    return Convergence(n_labels, n_labels if progress[1] > MAX_FINAL_CHANGE else 0, int(progress[0]))


def report_convergence(parts: Iterable[Convergence], run: Run) -> None:
    """Notify the callbacks of the passes of a training."""
    convergence = merge_convergence(parts)
    if convergence.n_classifiers:  # 0 if all pieces come from a checkpoint
        run.notify(convergence)


@dataclass(frozen=True)
class LinearWeights:
    """Weights of several labels over the features that occur in their documents; the last row is the biases."""

    features: np.ndarray  # (n,) int32, ascending
    W: np.ndarray  # (n + 1, n_labels) float32; columns beyond n_labels are padding
    n_labels: int
    rows: WeightRows | None = None  # row of W of each feature; by default in order
    convergence: Convergence = field(default_factory=Convergence)


def padded_width(n_labels: int) -> int:
    """Return the labels of a block padded to whole vector registers; a remainder would cost three times as much."""
    return 2 if n_labels <= 2 else -(-n_labels // LANES) * LANES


def make_signs(positives: csr_array, begin: int, width: int) -> np.ndarray:
    """Return y of `width` labels from `begin`: +1 where a row has the label, −1 elsewhere."""
    signs = np.full((positives.shape[0], width), -1, np.float32)
    mark_positives(
        positives.indptr.astype(np.int64, copy=False), positives.indices.astype(np.int64, copy=False), begin, signs
    )
    return signs


def select_row_weights(weights: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Return the weights of some documents. Kernels have one type per argument, so that they are compiled once: without
    weights, each document has weight 1."""
    return np.ones(len(rows), np.float32) if weights is None else weights[rows]


def pad_with_ones(factors: np.ndarray, width: int) -> np.ndarray:
    return np.pad(factors.astype(np.float32), (0, width - len(factors)), constant_values=1)


@kernel
def mark_positives(indptr, indices, begin, signs):
    n_rows, width = signs.shape
    for row in range(n_rows):
        for i in range(indptr[row], indptr[row + 1]):
            if begin <= indices[i] < begin + width:
                signs[row, indices[i] - begin] = 1


def choose_run_length(n_rows: int, n_labels: int) -> int:
    """Return the consecutive documents of a run. Long runs cost accuracy; they save time only with many documents and
    two labels."""
    return min(max(RUN_DOCUMENTS, n_rows // MIN_RUNS), MAX_RUN_DOCUMENTS) if n_labels == 2 else RUN_DOCUMENTS


def seed_state(seed: int) -> np.uint64:
    """Return the initial state of a xorshift generator, which must not be 0."""
    return np.uint64(2 * seed + 88172645463325253)


def make_random_order(n: int, seed: int) -> np.ndarray:
    order = np.arange(n)
    shuffle(order, seed_state(seed))
    return order

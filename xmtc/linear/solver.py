"""One solver for the linear methods: L2-regularised squared-hinge and logistic loss by dual coordinate descent (Hsieh
et al. 2008; Yu, Huang, Lin 2011; both in LIBLINEAR), many labels that share their documents side by side.

What makes it fast (docs/results/linear-engine.md has the measurements):
- All labels of a tree node see the same documents, so a document's features are read once and meet a whole block of
  labels: weights lie features × labels, and the inner loop runs along the labels.
- Columns that are empty in the node are dropped first, so that the weights stay in the cache.
- The bias is no dual feature. There it would tie all documents together and be the last thing to settle; here it is
  held while a pass goes over the documents, and then set by a Newton step of its own.
- Documents are visited in shuffled runs of neighbours, so that reading them is nearly sequential. The caller shuffles
  the documents themselves once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel
from xmtc.core.sparse import CompactMatrix, as_compact, compact
from xmtc.errors import XmtcError
from xmtc.linear.coordinate_descent import (
    descend_block,
    descend_pair,
    initialise_bias,
    shrink_weights,
    shuffle,
    write_squared_norms,
)
from xmtc.linear.node_data import NodeDocuments, WeightRows

MAX_BLOCK_LABELS = 128  # labels solved side by side at most
LANES = 8  # a block is padded to a whole number of vector registers: what is left over costs three times as much
MIN_PASSES = 6  # passes for nodes with much data, where 20 are allowed: more gain nothing there
MIN_PAIR_PASSES = 4  # where they have two labels, as the inner nodes of binary trees do
CHEAP_NODE_VISITS = (
    20_000_000  # weights visited in all passes over a node, some hundredths of a second, below which it has little
)
VALUE_READ_COST = 3  # labels whose weights are visited while a value of a document is read
RUN_DOCUMENTS, MAX_RUN_DOCUMENTS = 8, 256  # documents visited in a row, which the processor fetches ahead
MIN_RUNS = 256  # that are shuffled, at least, before they become longer
MAX_SCALED_SQUARE = 1e36  # a document's squared length times its C, so that steps can be computed in float32


@dataclass(frozen=True)
class Solver:
    """min λ‖w‖₁ + ½‖w‖² + ½b² + C Σ v loss(y (w·x + b)) for each label, where v is the document's weight, or 1; λ is 0
    if not given. Its defaults are those of the linear methods.

    With a penalty λ, what dual coordinate descent adds up are the weights before their proximal step: margins are those
    of `soft` weights (Yen et al. 2016). More than one proximal step minimises λ‖w‖₁ + loss instead: each begins where
    the one before it ended, and ½‖w − w_before‖² takes the place of ½‖w‖², which vanishes in the end (Rockafellar
    1976)."""

    loss: str = "squared_hinge"  # max(0, 1 − m)², or "logistic": log(1 + exp(−m))
    C: float = 1.0
    eps: float = 0.01  # stop when a pass moves the dual variables by no more than this part of what the first did
    max_passes: int = 20
    seed: int = 0
    cheap_visits: int = CHEAP_NODE_VISITS
    penalty: float = 0.0  # λ
    steps: int = 1  # proximal ones

    def fit(
        self,
        X: csr_array,
        rows: np.ndarray,
        positives: csr_array,
        weights: np.ndarray | None = None,
        factors: np.ndarray | None = None,
    ) -> LinearWeights:
        """Weights for every column of `positives` ((len(rows), n_labels), ones) against the documents `rows` of X,
        whose own weights are positive, where they have any. `factors` (n_labels,) multiply the losses of each label's
        own documents."""
        is_all = np.array_equal(rows, np.arange(X.shape[0]))
        documents, n_labels = as_compact(X) if is_all else compact(X, rows), positives.shape[1]
        weights = None if weights is None else weights[rows]
        W = np.empty((len(documents.columns) + 1, n_labels), np.float32)
        for begin in range(0, n_labels, MAX_BLOCK_LABELS):
            width = min(MAX_BLOCK_LABELS, n_labels - begin)
            padded = padded_width(width)
            signs = make_signs(positives, begin, padded)
            mine = None if factors is None else pad_with_ones(factors[begin : begin + width], padded)
            W[:, begin : begin + width] = self.solve(documents, signs, weights, mine)[:, :width]
        return LinearWeights(documents.columns, W, n_labels)

    def check_feature_scale(self, X: csr_array, weights: np.ndarray | None = None) -> None:
        """Refuse features that are too large beside C."""
        largest = max(float(X.data.max(initial=0)), -float(X.data.min(initial=0)))
        longest = int(np.diff(X.indptr).max(initial=0))
        heaviest = 1.0 if weights is None else float(weights.max(initial=0))
        if self.C * heaviest * longest * largest**2 > MAX_SCALED_SQUARE:
            beside = f"C={self.C:g}" + ("" if weights is None else f" and weights of up to {heaviest:g}")
            raise XmtcError(
                f"X has values of up to {largest:g}, too large beside {beside}; scale them (unit_length=true does), or "
                "lower C."
            )

    def solve(
        self,
        documents: CompactMatrix,
        signs: np.ndarray,
        weights: np.ndarray | None = None,
        factors: np.ndarray | None = None,
    ) -> np.ndarray:
        """Weights (n_features + 1, n_labels) of one block of labels, the last row the biases."""
        nothing, n_features = np.zeros(len(signs), np.float32), len(documents.columns)
        return self._descend(
            (*documents[:3], nothing, compute_squared_norms(documents), n_features, 0), signs, weights, factors
        )

    def solve_node(
        self, documents: NodeDocuments, signs: np.ndarray, n_labels: int, weights: np.ndarray | None = None
    ) -> LinearWeights:
        """Of one block of labels over a node's documents."""
        W = self._descend(documents[:7], signs, weights)
        return LinearWeights(documents.columns, W, n_labels, documents.weight_rows)

    def _descend(
        self, documents: tuple, signs: np.ndarray, weights: np.ndarray | None, factors: np.ndarray | None = None
    ) -> np.ndarray:
        """Weights, the last row the biases; of documents as the kernels take them (`Documents` up to n_alone)."""
        n_rows, n_labels = signs.shape
        bias = np.empty(n_labels, np.float32)
        initialise_bias(signs, weights, bias)
        loss = self.loss == "logistic", np.float32(self.C), weights
        sparse = factors, np.float32(self.penalty) if self.penalty else None
        limits = np.float32(self.eps), self.pass_limit(len(documents[2]), n_labels)
        length = choose_run_length(n_rows, n_labels)
        order = length, np.arange(-(-n_rows // length)), seed_state(self.seed)
        if n_labels == 2 and sparse[0] is sparse[1] is None:
            W = descend_pair(*documents, signs, *loss, *limits, *order, bias)
        else:
            W = None
            for _ in range(self.steps):
                W = descend_block(*documents, signs, *loss, *sparse, W, *limits, *order, bias)
                shrink_weights(W, sparse[1])
        W[-1] = bias
        return W

    def pass_limit(self, n_values: int, n_labels: int) -> int:
        """How many passes at most: all that are allowed where they cost little, fewer where there is much data."""
        affordable = self.cheap_visits // (n_values * (n_labels + VALUE_READ_COST) + 1)
        enough = MIN_PAIR_PASSES if n_labels == 2 else MIN_PASSES
        return min(self.max_passes, max(enough, enough * self.max_passes // 20, affordable))


@dataclass(frozen=True)
class LinearWeights:
    """Weights of several labels over the features that occur in their documents; the last row is the bias."""

    features: np.ndarray  # (n,) int32, ascending
    W: np.ndarray  # (n + 1, n_labels) float32, or with further columns that mean nothing
    n_labels: int
    rows: WeightRows | None = None  # where the features' weights are; by default, one after the other


def padded_width(n_labels: int) -> int:
    return 2 if n_labels <= 2 else -(-n_labels // LANES) * LANES


def make_signs(positives: csr_array, begin: int, width: int) -> np.ndarray:
    """+1 where a row has the label, −1 elsewhere, for `width` labels from `begin` on."""
    signs = np.full((positives.shape[0], width), -1, np.float32)
    mark_positives(
        positives.indptr.astype(np.int64, copy=False), positives.indices.astype(np.int64, copy=False), begin, signs
    )
    return signs


def compute_squared_norms(documents: CompactMatrix) -> np.ndarray:
    squares = np.empty(len(documents.indptr) - 1, np.float32)
    write_squared_norms(documents.indptr, documents.data, squares)
    return squares


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
    """How many documents are visited in a row: few where all of them are in the cache anyway, and where more labels
    than two take most of the time: there long runs save little, and cost accuracy."""
    return min(max(RUN_DOCUMENTS, n_rows // MIN_RUNS), MAX_RUN_DOCUMENTS) if n_labels == 2 else RUN_DOCUMENTS


def seed_state(seed: int) -> np.uint64:
    """The state of a xorshift generator, which must not be 0."""
    return np.uint64(2 * seed + 88172645463325253)


def make_random_order(n: int, seed: int) -> np.ndarray:
    order = np.arange(n)
    shuffle(order, seed_state(seed))
    return order

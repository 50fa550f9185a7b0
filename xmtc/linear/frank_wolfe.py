"""Multiclass max-margin loss over all labels with an L1 penalty, by fully corrective block-coordinate Frank–Wolfe in
the dual (PD-Sparse, Yen et al. 2016).

Documents are visited one by one. Each has an active set of few labels: its own (positive) labels and the negative ones
that violate its margin. W (features × labels) holds the weights before the proximal step, Σ α x. A visit searches the
negative label with the largest violation, in weights of up to SEARCH_BATCH_DOCUMENTS visits ago so that threads can
search in parallel, and then solves the subproblem of the active set with the current weights. The same seed gives the
same weights for any number of threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.sparse import CompactMatrix
from xmtc.linear.coordinate_descent import compute_squared_norms, next_random_state, shrink_weight, soft_threshold
from xmtc.linear.search import insert_ranked
from xmtc.linear.solver import make_random_order, seed_state

SEARCH_BATCH_DOCUMENTS = 128  # documents searched before the first of them is updated
SEARCH_CHUNK_DOCUMENTS = 32  # documents that a thread searches at a time
PASS_PARTS = 4  # parts of a pass; early stopping is checked after each
MIN_NEGATIVE_SLOTS = 32  # minimum capacity for negative labels per document
NEGATIVE_SLOT_SEARCHES = 4  # capacity for negative labels in searches, if that is more
BISECTION_STEPS = 40  # steps of a bisection for a simplex threshold


@dataclass
class DualVariables:
    """Active labels of each document, its positive labels first, and their dual variables α."""

    offsets: np.ndarray  # (n_docs + 1,) start of each document's slots
    n_own: np.ndarray  # (n_docs,) positive labels
    counts: np.ndarray  # (n_docs,) active labels
    labels: np.ndarray  # (n_slots,) int32
    alphas: np.ndarray  # (n_slots,) float32, at least 0

    @classmethod
    def from_labels(cls, Y: csr_array, select: int) -> DualVariables:
        n_own = np.diff(Y.indptr).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(n_own + max(MIN_NEGATIVE_SLOTS, NEGATIVE_SLOT_SEARCHES * select))])
        labels = np.zeros(offsets[-1], np.int32)
        labels[np.repeat(offsets[:-1] - Y.indptr[:-1], n_own) + np.arange(Y.nnz)] = Y.indices
        return cls(offsets, n_own, n_own.copy(), labels, np.zeros(offsets[-1], np.float32))

    def copy(self) -> DualVariables:
        return DualVariables(self.offsets, self.n_own, self.counts.copy(), self.labels.copy(), self.alphas.copy())


@dataclass(frozen=True)
class FrankWolfeSolver:
    """Solver of min λ‖W‖₁ + ½‖W‖² + C Σ max(0, 1 + max over negatives w·x − min over positives w·x)."""

    penalty: float = 0.1  # λ
    C: float = 1.0
    select: int = 1  # negative labels that a search may add
    draws: int = 10  # features of a document that a search samples, with probabilities proportional to |x|
    seed: int = 0

    def train_part(self, X: CompactMatrix, duals: DualVariables, W: np.ndarray, number: int, n_threads: int) -> None:
        """Visit the next of PASS_PARTS parts of the documents; each pass has its own random order."""
        order = self.make_document_order(len(duals.n_own), number // PASS_PARTS)
        order = np.array_split(order, PASS_PARTS)[number % PASS_PARTS]
        negatives = np.empty((len(duals.n_own), self.select), np.int32)
        seed = np.uint64(seed_state(self.seed) + np.uint64(number))
        penalty, squares = np.float32(self.penalty), compute_squared_norms(X.indptr, X.data)
        active = duals.offsets, duals.counts, duals.labels
        with ThreadPoolExecutor(n_threads) as pool:
            for begin in range(0, len(order), SEARCH_BATCH_DOCUMENTS):
                rows = order[begin : begin + SEARCH_BATCH_DOCUMENTS]
                search_in_threads(pool, X, rows, W, (penalty, self.draws, seed), active, negatives)
                self._update_documents(X, squares, rows, negatives, duals, W, penalty)

    def make_document_order(self, n_docs: int, number: int) -> np.ndarray:
        return make_random_order(n_docs, 7919 * (number + 1) + self.seed)

    def _update_documents(
        self,
        X: CompactMatrix,
        squares: np.ndarray,
        rows: np.ndarray,
        negatives: np.ndarray,
        duals: DualVariables,
        W: np.ndarray,
        penalty: np.float32 | None,
    ) -> None:
        workspace = np.empty((3, np.diff(duals.offsets).max()), np.float32)
        state = duals.offsets, duals.n_own, duals.counts, duals.labels, duals.alphas
        update_documents(*X[:3], squares, rows, negatives, np.float32(self.C), penalty, *state, W, *workspace)

    def polish(self, X: CompactMatrix, duals: DualVariables, W: np.ndarray, number: int) -> None:
        """Run a pass without penalty and search, in which only non-zero weights change."""
        no_negatives = np.empty((len(duals.n_own), 0), np.int32)
        order, squares = self.make_document_order(len(duals.n_own), number), compute_squared_norms(X.indptr, X.data)
        self._update_documents(X, squares, order, no_negatives, duals, W, None)


def recompute_weights(X: CompactMatrix, duals: DualVariables, W: np.ndarray) -> None:
    """Recompute the weights before the proximal step from the dual variables."""
    W[:] = 0
    accumulate_weights(*X[:3], duals.offsets, duals.n_own, duals.counts, duals.labels, duals.alphas, W)


def predict_top_labels(X: CompactMatrix, W: np.ndarray, penalty: float, n_threads: int) -> np.ndarray:
    """Return the best label of each document, shape (n_docs,)."""
    n_docs = len(X.indptr) - 1
    labels = np.empty((n_docs, 1), np.int32)
    no_labels = np.zeros(n_docs + 1, np.int64), np.zeros(n_docs, np.int64), np.empty(0, np.int32)
    exact = np.float32(penalty), np.iinfo(np.int64).max, np.uint64(1)  # all features are used, so the seed is not
    with ThreadPoolExecutor(n_threads) as pool:
        search_in_threads(pool, X, np.arange(n_docs), W, exact, no_labels, labels)
    return labels[:, 0]


def search_in_threads(
    pool: ThreadPoolExecutor,
    X: CompactMatrix,
    rows: np.ndarray,
    W: np.ndarray,
    settings: tuple[np.float32, int, np.uint64],
    active: tuple[np.ndarray, np.ndarray, np.ndarray],
    labels: np.ndarray,
) -> None:
    """Write the best labels of the documents `rows`, other than their active ones, to `labels` (n_docs, n_best).

    `settings` are penalty, draws and seed; `active` are the offsets, counts and labels of DualVariables.
    """

    def search_chunk(chunk: np.ndarray) -> None:
        n_labels, n_best = W.shape[1], labels.shape[1]
        workspace = np.empty(n_labels, np.float32), np.empty(n_labels, np.bool_)
        best = np.empty(n_best, np.float32), np.empty(n_best, np.int64)
        search_labels(*X[:3], chunk, W, *settings, *active, *workspace, *best, labels)

    chunks = (rows[i : i + SEARCH_CHUNK_DOCUMENTS] for i in range(0, len(rows), SEARCH_CHUNK_DOCUMENTS))
    list(pool.map(search_chunk, chunks))


@kernel
def make_document_state(seed, row):
    """Return a random state that depends on the document alone, not on the thread that searches it."""
    state = next_random_state(seed ^ (np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1))
    return next_random_state(next_random_state(state))


@fast_kernel
def add_feature_margins(weights, value, penalty, margins):
    for label in range(len(margins)):
        margins[label] += value * soft_threshold(weights[label], penalty)


@kernel
def estimate_margins(indices, data, W, penalty, draws, state, margins):
    """Write the margins of all labels; if there are more than `draws` features, estimate them from a sample with
    probabilities proportional to |x|."""
    for label in range(len(margins)):
        margins[label] = 0
    if len(indices) <= draws:
        for i in range(len(indices)):
            add_feature_margins(W[indices[i]], data[i], penalty, margins)
        return state
    total = np.float32(0)
    for i in range(len(indices)):
        total += abs(data[i])
    for _ in range(draws):
        state = next_random_state(state)
        left = np.float32(np.float64(state >> np.uint64(11)) / np.float64(2**53)) * total
        at = np.int64(0)
        while at < len(indices) - 1 and left >= abs(data[at]):
            left -= abs(data[at])
            at += 1
        value = total / np.float32(draws) * (np.float32(1) if data[at] > 0 else np.float32(-1))
        add_feature_margins(W[indices[at]], value, penalty, margins)
    return state


@kernel
def search_labels(
    indptr, indices, data, rows, W, penalty, draws, seed, offsets, counts, active, margins, is_active, best, turns,
    labels,
):  # fmt: skip
    """Write the inactive labels with the largest margins of each document to `labels`; −1 where the margin is not
    violated. The scan starts at a random label, so that ties are not always won by the same labels."""
    n_labels = W.shape[1]
    for label in range(n_labels):
        is_active[label] = False
    for row in rows:
        begin, end = indptr[row], indptr[row + 1]
        state = estimate_margins(
            indices[begin:end], data[begin:end], W, penalty, draws, make_document_state(seed, row), margins
        )
        for at in range(offsets[row], offsets[row] + counts[row]):
            is_active[active[at]] = True
        first, n_found = np.int64(next_random_state(state) % np.uint64(n_labels)), np.int64(0)
        for turn in range(n_labels):
            label = first + turn - (n_labels if first + turn >= n_labels else 0)
            if not is_active[label] and (n_found < len(best) or margins[label] > best[n_found - 1]):
                n_found = insert_ranked(margins[label], turn, best, turns, n_found)
        for at in range(len(best)):
            labels[row, at] = (first + turns[at]) % n_labels if at < n_found and best[at] > -1 else -1
        for at in range(offsets[row], offsets[row] + counts[row]):
            is_active[active[at]] = False


@kernel
def find_simplex_threshold(values, begin, end, total):
    """Return the t with Σ max(value − t, 0) = total, by bisection (projection onto a simplex)."""
    high = values[begin]
    for at in range(begin, end):
        high = max(high, values[at])
    low = high - total
    for _ in range(BISECTION_STEPS):
        middle, projected = (low + high) / 2, np.float32(0)
        for at in range(begin, end):
            projected += max(values[at] - middle, np.float32(0))
        if projected > total:
            low = middle
        else:
            high = middle
    return high


@kernel
def find_balance_threshold(values, n_own, n):
    """Return the t with Σ max(value − t, 0) over positive labels = Σ max(value + t, 0) over negative ones."""
    low = high = values[0]
    for at in range(n):
        bound = values[at] if at < n_own else -values[at]
        low, high = min(low, bound), max(high, bound)
    for _ in range(BISECTION_STEPS):
        middle, surplus = (low + high) / 2, np.float32(0)
        for at in range(n_own):
            surplus += max(values[at] - middle, np.float32(0))
        for at in range(n_own, n):
            surplus -= max(values[at] + middle, np.float32(0))
        if surplus > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@kernel
def project_duals(values, n_own, n, C):
    """Replace the values by the nearest point with all values >= 0 and equal sums, at most C, of the first n_own
    (positive) and the other (negative) ones."""
    own = find_balance_threshold(values, n_own, n)
    total = np.float32(0)
    for at in range(n_own):
        total += max(values[at] - own, np.float32(0))
    other = -own
    if total > C:
        own, other = find_simplex_threshold(values, 0, n_own, C), find_simplex_threshold(values, n_own, n, C)
    for at in range(n):
        values[at] = max(values[at] - (own if at < n_own else other), np.float32(0))


@kernel
def update_documents(
    indptr, indices, data, squares, rows, negatives, C, penalty, offsets, n_own, counts, labels, alphas, W,
    margins, values, steps,
):  # fmt: skip
    """Add the new negative labels to each document's active set, solve its subproblem and update the weights. Negative
    labels whose α becomes 0 leave the active set. A penalty of None keeps zero weights at zero (polishing)."""
    for row in rows:
        begin, own, n = offsets[row], n_own[row], counts[row]
        for at in range(negatives.shape[1]):
            if negatives[row, at] >= 0 and begin + n < offsets[row + 1]:
                labels[begin + n], alphas[begin + n] = negatives[row, at], 0
                n += 1
        if own == 0 or n == own or squares[row] == 0:
            continue
        for at in range(n):
            margins[at] = 0
        for i in range(indptr[row], indptr[row + 1]):
            weights = W[indices[i]]
            for at in range(n):
                margins[at] += data[i] * shrink_weight(weights[labels[begin + at]], penalty)
        for at in range(n):
            pull = -margins[at] if at < own else 1 + margins[at]
            values[at] = alphas[begin + at] + pull / squares[row]
        project_duals(values, own, n, C)
        for at in range(n):
            step = values[at] - alphas[begin + at]
            steps[at] = step if at < own else -step
        for i in range(indptr[row], indptr[row + 1]):
            weights = W[indices[i]]
            for at in range(n):
                if penalty is not None or weights[labels[begin + at]] != 0:
                    weights[labels[begin + at]] += data[i] * steps[at]
        n_left = own
        for at in range(n):
            if at < own:
                alphas[begin + at] = values[at]
            elif values[at] > 0:
                labels[begin + n_left], alphas[begin + n_left] = labels[begin + at], values[at]
                n_left += 1
        counts[row] = n_left


@kernel
def accumulate_weights(indptr, indices, data, offsets, n_own, counts, labels, alphas, W):
    for row in range(len(n_own)):
        for i in range(indptr[row], indptr[row + 1]):
            weights = W[indices[i]]
            for at in range(counts[row]):
                slot = offsets[row] + at
                weights[labels[slot]] += data[i] * (alphas[slot] if at < n_own[row] else -alphas[slot])


@kernel
def threshold_weights(W, penalty, is_shrunk):
    """Set the weights with an absolute value up to the penalty to zero; apply the proximal step to the others if
    `is_shrunk`."""
    for row in range(len(W)):
        for label in range(W.shape[1]):
            if is_shrunk or abs(W[row, label]) <= penalty:
                W[row, label] = soft_threshold(W[row, label], penalty)

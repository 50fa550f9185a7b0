"""The max-margin loss over all labels at once, with an L1 penalty, by block-coordinate Frank–Wolfe in the dual (Yen et
al. 2016): documents are visited one by one, and each keeps a few labels, its own and those that come too near them.

Weights lie features × labels; what is stored are the weights before their proximal step, the sums of documents times
dual variables. A visit searches for the labels that violate the margin most, in weights of up to BATCH visits ago so
that threads can search side by side, and then solves the problem of the document's own few labels with the weights of
now. Same seed, same weights, with any number of threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.sparse import CompactMatrix
from xmtc.linear.coordinate_descent import next_random_state, soft_threshold, write_squared_norms
from xmtc.linear.search import insert_ranked
from xmtc.linear.solver import make_random_order, seed_state

SEARCH_BATCH_DOCUMENTS = 128  # documents that are searched before the first of them is visited
SEARCH_CHUNK_DOCUMENTS = 32  # documents that a thread searches at a time
PASS_PARTS = 4  # of a pass, after each of which a training can be judged
MIN_NEGATIVE_SLOTS, NEGATIVE_SLOT_SEARCHES = (
    32,
    4,
)  # labels of others that a document can keep, or four searches' worth if that is more
BISECTION_STEPS = 40  # of the interval in which the level of a simplex is searched


@dataclass
class DualVariables:
    """The labels that each document keeps, its own first, and their dual variables: what training is about."""

    offsets: np.ndarray  # (n_docs + 1,) where a document's places begin
    n_own: np.ndarray  # (n_docs,)
    counts: np.ndarray  # (n_docs,) labels kept
    labels: np.ndarray  # (n_places,) int32
    alphas: np.ndarray  # (n_places,) float32, all of them at least 0

    @classmethod
    def from_labels(cls, Y: csr_array, select: int) -> DualVariables:
        n_own = np.diff(Y.indptr).astype(np.int64)
        begins = np.concatenate([[0], np.cumsum(n_own + max(MIN_NEGATIVE_SLOTS, NEGATIVE_SLOT_SEARCHES * select))])
        labels = np.zeros(begins[-1], np.int32)
        labels[np.repeat(begins[:-1] - Y.indptr[:-1], n_own) + np.arange(Y.nnz)] = Y.indices
        return cls(begins, n_own, n_own.copy(), labels, np.zeros(begins[-1], np.float32))

    def copy(self) -> DualVariables:
        return DualVariables(self.offsets, self.n_own, self.counts.copy(), self.labels.copy(), self.alphas.copy())


@dataclass(frozen=True)
class FrankWolfeSolver:
    """min λ‖W‖₁ + ½‖W‖² + C Σ max(0, 1 + max over others w·x − min over own w·x) over all documents."""

    penalty: float = 0.1  # λ
    C: float = 1.0
    select: int = 1  # labels that a search may add
    draws: int = 10  # features of a document, drawn by size, that a search looks at
    seed: int = 0

    def train_part(self, X: CompactMatrix, duals: DualVariables, W: np.ndarray, number: int, n_threads: int) -> None:
        """Visit the next part of the documents, which every pass takes in an order of its own."""
        order = self.make_document_order(len(duals.n_own), number // PASS_PARTS)
        order = np.array_split(order, PASS_PARTS)[number % PASS_PARTS]
        found = np.empty((len(duals.n_own), self.select), np.int32)
        seed = np.uint64(seed_state(self.seed) + np.uint64(number))
        penalty, kept, squares = (
            np.float32(self.penalty),
            (duals.offsets, duals.counts, duals.labels),
            compute_squared_norms(X),
        )

        def search(rows: np.ndarray) -> None:
            room = np.empty(W.shape[1], np.float32), np.empty(W.shape[1], np.bool_)
            best = np.empty(self.select, np.float32), np.empty(self.select, np.int64)
            search_labels(*X[:3], rows, W, penalty, self.draws, seed, *kept, *room, *best, found)

        with ThreadPoolExecutor(n_threads) as pool:
            for begin in range(0, len(order), SEARCH_BATCH_DOCUMENTS):
                rows = order[begin : begin + SEARCH_BATCH_DOCUMENTS]
                list(
                    pool.map(
                        search,
                        (rows[i : i + SEARCH_CHUNK_DOCUMENTS] for i in range(0, len(rows), SEARCH_CHUNK_DOCUMENTS)),
                    )
                )
                self._update_documents(X, squares, rows, found, duals, W, penalty)

    def make_document_order(self, n_docs: int, number: int) -> np.ndarray:
        return make_random_order(n_docs, 7919 * (number + 1) + self.seed)

    def _update_documents(
        self,
        X: CompactMatrix,
        squares: np.ndarray,
        rows: np.ndarray,
        found: np.ndarray,
        duals: DualVariables,
        W: np.ndarray,
        penalty: np.float32 | None,
    ) -> None:
        room = np.empty((3, np.diff(duals.offsets).max()), np.float32)
        state = duals.offsets, duals.n_own, duals.counts, duals.labels, duals.alphas
        update_documents(*X[:3], squares, rows, found, np.float32(self.C), penalty, *state, W, *room)

    def polish(self, X: CompactMatrix, duals: DualVariables, W: np.ndarray, number: int) -> None:
        """A pass without penalty and without search, in which only weights that are not zero move."""
        nothing = np.empty((len(duals.n_own), 0), np.int32)
        self._update_documents(
            X, compute_squared_norms(X), self.make_document_order(len(duals.n_own), number), nothing, duals, W, None
        )


def recompute_weights(X: CompactMatrix, duals: DualVariables, W: np.ndarray) -> None:
    """Add up the weights anew, before their proximal step."""
    W[:] = 0
    accumulate_weights(*X[:3], duals.offsets, duals.n_own, duals.counts, duals.labels, duals.alphas, W)


def compute_squared_norms(X: CompactMatrix) -> np.ndarray:
    squares = np.empty(len(X.indptr) - 1, np.float32)
    write_squared_norms(X.indptr, X.data, squares)
    return squares


def predict_top_labels(X: CompactMatrix, W: np.ndarray, penalty: float, n_threads: int) -> np.ndarray:
    """(n_docs,) the best label of each document."""
    n_docs = len(X.indptr) - 1
    found = np.empty((n_docs, 1), np.int32)
    kept = np.zeros(n_docs + 1, np.int64), np.zeros(n_docs, np.int64), np.empty(0, np.int32)

    def search(rows: np.ndarray) -> None:
        room = np.empty(W.shape[1], np.float32), np.empty(W.shape[1], np.bool_)
        best = np.empty(1, np.float32), np.empty(1, np.int64)
        exact = np.float32(penalty), np.iinfo(np.int64).max, np.uint64(1)
        search_labels(*X[:3], rows, W, *exact, *kept, *room, *best, found)

    with ThreadPoolExecutor(n_threads) as pool:
        list(
            pool.map(
                search,
                (
                    np.arange(i, min(i + SEARCH_CHUNK_DOCUMENTS, n_docs))
                    for i in range(0, n_docs, SEARCH_CHUNK_DOCUMENTS)
                ),
            )
        )
    return found[:, 0]


@kernel
def make_document_state(seed, row):
    """Random numbers of a document's own, so that it does not matter who searches for it."""
    state = next_random_state(seed ^ (np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1))
    return next_random_state(next_random_state(state))


@fast_kernel
def add_feature_margins(weights, value, penalty, margins):
    for label in range(len(margins)):
        margins[label] += value * soft_threshold(weights[label], penalty)


@kernel
def estimate_margins(indices, data, W, penalty, draws, state, margins):
    """All labels' margins; from `draws` features, drawn with probabilities as their sizes, where there are more."""
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
    indptr, indices, data, rows, W, penalty, draws, seed, begins, counts, kept, margins, is_kept, best, which, found
):
    """For each of these documents the labels of the largest margins that it does not keep, or −1. The labels are looked
    at from a random one on, so that of equal ones not always the same are found."""
    n_labels = W.shape[1]
    for label in range(n_labels):
        is_kept[label] = False
    for row in rows:
        begin, end = indptr[row], indptr[row + 1]
        state = estimate_margins(
            indices[begin:end], data[begin:end], W, penalty, draws, make_document_state(seed, row), margins
        )
        for at in range(begins[row], begins[row] + counts[row]):
            is_kept[kept[at]] = True
        first, n_found = np.int64(next_random_state(state) % np.uint64(n_labels)), np.int64(0)
        for turn in range(n_labels):
            label = first + turn - (n_labels if first + turn >= n_labels else 0)
            if not is_kept[label] and (n_found < len(best) or margins[label] > best[n_found - 1]):
                n_found = insert_ranked(margins[label], turn, best, which, n_found)
        for at in range(len(best)):
            found[row, at] = (first + which[at]) % n_labels if at < n_found and best[at] > -1 else -1
        for at in range(begins[row], begins[row] + counts[row]):
            is_kept[kept[at]] = False


@kernel
def find_simplex_threshold(values, begin, end, total):
    """What to take from the values so that what is left of them, where positive, sums up to the total."""
    high = values[begin]
    for at in range(begin, end):
        high = max(high, values[at])
    low = high - total
    for _ in range(BISECTION_STEPS):
        middle, left = (low + high) / 2, np.float32(0)
        for at in range(begin, end):
            left += max(values[at] - middle, np.float32(0))
        if left > total:
            low = middle
        else:
            high = middle
    return high


@kernel
def find_balance_threshold(values, n_own, n):
    """The level to take from a document's own values, and to add to the others', so that both sums are equal."""
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
    """The nearest point to the values at which all are at least 0 and the first n_own sum up to as much as the others,
    C at most; written over them."""
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
def shrink_weight(weight, penalty):
    """With None for a penalty, weights are polished, and have no proximal step."""
    if penalty is None:
        return weight
    return soft_threshold(weight, penalty)


@kernel
def update_documents(
    indptr, indices, data, squares, rows, found, C, penalty, begins, n_own, counts, labels, alphas, W,
    margins, values, steps,
):  # fmt: skip
    """Solve the problem of each document's own labels and those it keeps, found ones included, and move the weights.
    Labels that end with a dual variable of 0 are kept no longer."""
    for row in rows:
        begin, own, n = begins[row], n_own[row], counts[row]
        for at in range(found.shape[1]):
            if found[row, at] >= 0 and begin + n < begins[row + 1]:
                labels[begin + n], alphas[begin + n] = found[row, at], 0
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
def accumulate_weights(indptr, indices, data, begins, n_own, counts, labels, alphas, W):
    for row in range(len(n_own)):
        for i in range(indptr[row], indptr[row + 1]):
            weights = W[indices[i]]
            for at in range(counts[row]):
                place = begins[row] + at
                weights[labels[place]] += data[i] * (alphas[place] if at < n_own[row] else -alphas[place])


@kernel
def threshold_weights(W, penalty, is_shrunk):
    """Leave what the proximal step does not make zero: as the step leaves it, or as it was."""
    for row in range(len(W)):
        for label in range(W.shape[1]):
            if is_shrunk or abs(W[row, label]) <= penalty:
                W[row, label] = soft_threshold(W[row, label], penalty)

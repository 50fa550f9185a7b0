"""The solver against LIBLINEAR and against plain twins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array
from sklearn.svm import LinearSVC

from xmtc.linear.solver import SquaredHinge, compact, shuffle, signs_of, solve


def sparse(n_rows: int, n_columns: int, seed: int) -> csr_array:
    rng = np.random.default_rng(seed)
    return random_array((n_rows, n_columns), density=0.2, format="csr", dtype=np.float32, rng=rng)


def test_compact_keeps_the_rows_and_drops_the_empty_columns():
    X, rows = sparse(30, 100, seed=0), np.array([3, 4, 17])
    indptr, indices, data, features = compact(X.indptr, X.indices, X.data, 100, rows)
    dense = csr_array((data, indices, indptr), shape=(3, len(features))).toarray()
    np.testing.assert_array_equal(features, np.flatnonzero(X[rows].sum(axis=0)))
    np.testing.assert_array_equal(dense, X[rows].toarray()[:, features])


def test_signs():
    positives = csr_array(np.array([[1, 0, 0], [0, 1, 1]], np.float32))
    np.testing.assert_array_equal(signs_of(positives.indptr, positives.indices, 2, 1, 3), [[-1, -1], [1, 1]])


def test_shuffle_permutes_and_goes_on():
    order = np.arange(50)
    state = shuffle(order, np.uint64(7))
    assert sorted(order) == list(range(50))
    assert (order != np.arange(50)).any()
    again = np.arange(50)
    shuffle(again, np.uint64(state))
    assert (again != order).any()


@pytest.mark.parametrize("n_labels", [1, 3, 70])
@pytest.mark.parametrize("C", [0.3, 1.0])
def test_weights_are_liblinears(n_labels, C):
    X = sparse(80, 40, seed=1)
    rng = np.random.default_rng(2)
    Y = csr_array((rng.random((80, n_labels)) < 0.3).astype(np.float32))
    weights = SquaredHinge(C=C, eps=1e-4, max_passes=2000).fit(X, np.arange(80), Y)
    for label in (0, n_labels - 1):
        reference = LinearSVC(C=C, tol=1e-6, max_iter=100000, random_state=0).fit(X, Y[:, [label]].toarray().ravel())
        np.testing.assert_allclose(weights.W[:-1, label], reference.coef_[0][weights.features], atol=2e-3)
        np.testing.assert_allclose(weights.W[-1, label], reference.intercept_[0], atol=2e-3)


def test_solve_is_its_numpy_twin():
    X = sparse(40, 20, seed=3)
    rng = np.random.default_rng(4)
    signs = np.where(rng.random((40, 5)) < 0.4, 1, -1).astype(np.float32)
    for passes in (1, 3):
        compiled = solve(X.indptr, X.indices, X.data, 20, signs, 1.0, 0.0, passes, 9)
        np.testing.assert_allclose(compiled, solve_plainly(X.toarray(), signs, 1.0, passes, 9), atol=1e-4)


def solve_plainly(X, signs, C, passes, seed):
    """Dual coordinate descent, one label and one document at a time."""
    X = np.hstack([X, np.ones((len(X), 1))])
    W, alpha = np.zeros((X.shape[1], signs.shape[1])), np.zeros(signs.shape)
    order, state = np.arange(len(X)), np.uint64(2 * seed + 88172645463325253)
    for _ in range(passes):
        state = np.uint64(shuffle(order, state))
        for i in order:
            for label in range(signs.shape[1]):
                gradient = signs[i, label] * (X[i] @ W[:, label]) - 1 + alpha[i, label] / (2 * C)
                new = max(alpha[i, label] - gradient / (X[i] @ X[i] + 1 / (2 * C)), 0)
                W[:, label] += (new - alpha[i, label]) * signs[i, label] * X[i]
                alpha[i, label] = new
    return W


def test_it_stops_when_it_is_done():
    X = csr_array(np.eye(4, dtype=np.float32))
    signs = np.ones((4, 1), np.float32)
    many = solve(X.indptr, X.indices, X.data, 4, signs, 1.0, 1e-3, 10_000, 0)
    np.testing.assert_array_equal(many, solve(X.indptr, X.indices, X.data, 4, signs, 1.0, 1e-3, 20_000, 0))

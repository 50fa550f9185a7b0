"""The solver compared with LIBLINEAR, scikit-learn and plain NumPy implementations."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array, hstack, random_array
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from xmtc.core.memory import concatenate_and_free
from xmtc.core.sparse import CompactMatrix, as_compact, compact, shell_sort, take_rows
from xmtc.linear.coordinate_descent import compute_alpha, shuffle
from xmtc.linear.search import RING_MASK, compute_margins
from xmtc.linear.solver import (
    MAX_RUN_DOCUMENTS,
    MIN_RUNS,
    RUN_DOCUMENTS,
    Solver,
    choose_run_length,
    make_random_order,
    make_signs,
    seed_state,
)
from xmtc.linear.tree import EMPTY_FEATURE_CODE


def sparse(n_rows: int, n_columns: int, seed: int) -> csr_array:
    rng = np.random.default_rng(seed)
    return random_array((n_rows, n_columns), density=0.2, format="csr", dtype=np.float32, rng=rng)


def labels_for(n_rows: int, n_labels: int, seed: int) -> csr_array:
    return csr_array((np.random.default_rng(seed).random((n_rows, n_labels)) < 0.3).astype(np.float32))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_compact_keeps_rows_and_drops_empty_columns(dtype):
    X, rows = sparse(30, 100, seed=0), np.array([17, 3, 4], dtype)
    indptr, indices, data, features = compact(X, rows)
    dense = csr_array((data, indices.astype(np.int32), indptr), shape=(3, len(features))).toarray()
    np.testing.assert_array_equal(features, np.flatnonzero(X[rows].sum(axis=0)))
    np.testing.assert_array_equal(dense, X[rows].toarray()[:, features])


def test_as_compact_does_not_copy():
    X = sparse(30, 100, seed=0)
    indptr, indices, data, features = as_compact(X)
    assert np.shares_memory(indices, X.indices)
    assert np.shares_memory(data, X.data)
    again = csr_array((data, indices.astype(np.int32), indptr), shape=(30, len(features)))
    np.testing.assert_array_equal(again.toarray(), X.toarray())


@pytest.mark.parametrize("n", [0, 1, 3000])
def test_take_rows_equals_scipy(n):
    X, rows = sparse(50, 20, seed=3), np.random.default_rng(n).integers(50, size=n)
    np.testing.assert_array_equal(take_rows(X, rows).toarray(), X[rows].toarray())


@pytest.mark.parametrize("n", [0, 1, 2, 13, 500])
def test_shell_sort_equals_numpy(n):
    keys = np.random.default_rng(n).integers(-50, 50, n + 6)
    expected = np.concatenate([keys[:3], np.sort(keys[3:-3]), keys[-3:]])
    shell_sort(keys, 3, n + 3)
    np.testing.assert_array_equal(keys, expected)


def test_parts_are_freed_by_concatenation():
    parts = [np.arange(2 * n).reshape(n, 2) for n in (3, 0, 40, 1)]
    expected = np.concatenate(parts)
    assert np.array_equal(concatenate_and_free(parts), expected)
    assert parts == []


def test_signs():
    positives = csr_array(np.array([[1, 0, 0], [0, 1, 1]], np.float32))
    signs = make_signs(positives, 1, 3)
    np.testing.assert_array_equal(signs, [[-1, -1, -1], [1, 1, -1]])


def test_shuffle_permutes_and_advances_the_state():
    order = np.arange(50)
    state = shuffle(order, np.uint64(seed_state(7)))
    assert sorted(order) == list(range(50))
    assert (order != np.arange(50)).any()
    again = np.arange(50)
    shuffle(again, np.uint64(state))
    assert (again != order).any()
    assert make_random_order(50, 7).tolist() == order.tolist()


@pytest.mark.parametrize("n_labels", [1, 2, 3, 130])
@pytest.mark.parametrize("C", [0.3, 1.0])
def test_squared_hinge_weights_equal_liblinear(n_labels, C):
    X, Y = sparse(80, 40, seed=1), labels_for(80, n_labels, seed=2)
    weights = Solver(C=C, eps=1e-5, max_passes=5000).fit(X, np.arange(80), Y)
    for label in (0, n_labels - 1):
        reference = LinearSVC(C=C, tol=1e-6, max_iter=100000, random_state=0).fit(X, Y[:, [label]].toarray().ravel())
        np.testing.assert_allclose(weights.W[:-1, label], reference.coef_[0][weights.features], atol=2e-3)
        np.testing.assert_allclose(weights.W[-1, label], reference.intercept_[0], atol=2e-3)


@pytest.mark.parametrize("n_labels", [2, 5])
@pytest.mark.parametrize("C", [1.0, 10.0])
def test_logistic_weights_equal_scikit_learn(n_labels, C):
    X, Y = sparse(80, 40, seed=3), labels_for(80, n_labels, seed=4)
    weights = Solver("logistic", C, eps=1e-6, max_passes=5000).fit(X, np.arange(80), Y)
    with_constant = hstack([X, np.ones((80, 1))], format="csr")  # its weight is the bias, regularised like the others
    for label in range(n_labels):
        reference = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10000)
        expected = reference.fit(with_constant, Y[:, [label]].toarray().ravel()).coef_[0]
        np.testing.assert_allclose(weights.W[:-1, label], expected[weights.features], atol=2e-2)
        np.testing.assert_allclose(weights.W[-1, label], expected[-1], atol=2e-2)


def test_run_length_grows_with_the_documents():
    sizes = 0, 1, MIN_RUNS * RUN_DOCUMENTS, 2 * MIN_RUNS * RUN_DOCUMENTS, 10**9
    assert [choose_run_length(n, 2) for n in sizes] == [
        RUN_DOCUMENTS,
        RUN_DOCUMENTS,
        RUN_DOCUMENTS,
        2 * RUN_DOCUMENTS,
        MAX_RUN_DOCUMENTS,
    ]
    assert {choose_run_length(n, 8) for n in sizes} == {RUN_DOCUMENTS}


@pytest.mark.parametrize("n_labels", [5, 2])
def test_long_runs_visit_every_document_once(n_labels):
    """With two labels, documents are visited in runs of eleven, as in the plain implementation."""
    n = 11 * 256 + 70
    X, rng = sparse(n, 20, seed=5), np.random.default_rng(6)
    signs = np.where(rng.random((n, n_labels)) < 0.4, 1, -1).astype(np.float32)
    assert choose_run_length(n, n_labels) == (11 if n_labels == 2 else RUN_DOCUMENTS)
    result = Solver(C=0.7, eps=0, max_passes=2, seed=9).solve(as_compact(X), signs)
    np.testing.assert_allclose(result, solve_by_reference(X.toarray(), signs, False, 0.7, 2, seed=9), atol=1e-4)


@pytest.mark.parametrize("is_logistic", [False, True])
@pytest.mark.parametrize("n_labels", [5, 2, 61])
def test_solve_equals_numpy(n_labels, is_logistic):
    X = sparse(43, 20, seed=5)
    rng = np.random.default_rng(6)
    signs = np.where(rng.random((43, n_labels)) < 0.4, 1, -1).astype(np.float32)
    documents = CompactMatrix(
        X.indptr.astype(np.int64), X.indices.astype(np.uint32), X.data, np.arange(20, dtype=np.int32)
    )
    for passes in (1, 3):
        solver = Solver("logistic" if is_logistic else "squared_hinge", C=0.7, eps=0, max_passes=passes, seed=9)
        compiled = solver.solve(documents, signs)
        plain = solve_by_reference(X.toarray(), signs, is_logistic, 0.7, passes, seed=9)
        np.testing.assert_allclose(compiled, plain, atol=1e-4)


def solve_by_reference(X, signs, is_logistic, C, passes, seed, weights=None):
    """Return the weights, with the biases in the last row."""
    return descend_by_reference(X, signs, is_logistic, C, passes, seed, weights)[0]


def alphas_by_reference(X, signs, passes):
    return descend_by_reference(X, signs, False, 1.0, passes, seed=0)[1]


def descend_by_reference(X, signs, is_logistic, C, passes, seed, weights=None):
    """Run dual coordinate descent, one label and document at a time, with a Newton step of the bias after each pass."""
    n_rows, n_labels = signs.shape
    C = np.full(n_rows, C) if weights is None else C * weights.astype(float)  # C of each document
    W, alpha = np.zeros((X.shape[1], n_labels)), np.zeros(signs.shape)
    bias = np.average(signs, axis=0, weights=weights).astype(float)
    length = choose_run_length(n_rows, n_labels)
    runs, state = np.arange(-(-n_rows // length)), np.uint64(seed_state(seed))
    for _ in range(passes):
        state = np.uint64(shuffle(runs, state))
        for i in (i for run in runs for i in range(run * length, min((run + 1) * length, n_rows))):
            for label in range(n_labels):
                margin = signs[i, label] * (X[i] @ W[:, label] + bias[label])
                new = alpha_by_reference(alpha[i, label], margin, X[i] @ X[i], is_logistic, C[i])
                W[:, label] += (new - alpha[i, label]) * signs[i, label] * X[i]
                alpha[i, label] = new
        curvatures = alpha * (1 - alpha / C[:, None]) if is_logistic else 2 * C[:, None] * (alpha > 0)
        bias -= (bias - (alpha * signs).sum(axis=0)) / (1 + curvatures.sum(axis=0))
    return np.vstack([W, bias]), alpha


def alpha_by_reference(a, margin, square, is_logistic, C):
    if not is_logistic:
        return max(a - (margin - 1 + a / (2 * C)) / (square + 1 / (2 * C)), 0)
    p = 1 / (1 + np.exp(margin))
    return a + (C * p - a) / (1 + square * C * max(p * (1 - p), a / C * (1 - a / C)))


@pytest.mark.parametrize("is_logistic", [False, True])
def test_compute_alpha_converges_to_its_fixed_point(is_logistic):
    """With the rest of the margin fixed, repeated steps end where α equals the slope of the loss."""
    a, rest, square, C = np.float32(0), -0.4, np.float32(1.5), np.float32(2)
    for _ in range(200):
        a = np.float32(compute_alpha(a, np.float32(rest + a * square), square, is_logistic, C))
    margin = rest + a * square
    slope = C / (1 + np.exp(margin)) if is_logistic else 2 * C * max(0, 1 - margin)
    assert a == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("n_labels", [2, 4])
def test_stops_when_a_pass_changes_little(n_labels):
    """It stops after pass 3 with eps just above the relative change of pass 3, and after pass 4 with eps below it."""
    X, rng = sparse(60, 25, seed=1), np.random.default_rng(2)
    signs = np.where(rng.random((60, n_labels)) < 0.4, 1, -1).astype(np.float32)
    moved = changes_by_reference(X.toarray(), signs, passes=4)
    assert moved[3] < moved[2] < moved[1]
    for eps, passes in ((moved[2] * 1.01, 3), (moved[2] * 0.99, 4)):
        result = Solver(eps=eps, max_passes=20).solve(as_compact(X), signs)
        np.testing.assert_array_equal(result, Solver(eps=0, max_passes=passes).solve(as_compact(X), signs))


def changes_by_reference(X, signs, passes):
    """Return the change of α in each pass, relative to the first."""
    alphas = [np.zeros(signs.shape), *(alphas_by_reference(X, signs, n) for n in range(1, passes + 1))]
    distances = [np.linalg.norm(after - before) for before, after in pairwise(alphas)]
    return np.array(distances) / distances[0]


def test_stops_at_convergence():
    X, Y = sparse(40, 20, seed=7), labels_for(40, 4, seed=8)
    rows = np.arange(40)
    early, late = (Solver(eps=1e-3, max_passes=passes).fit(X, rows, Y).W for passes in (10_000, 20_000))
    np.testing.assert_array_equal(early, late)
    assert (early != Solver(eps=1e-3, max_passes=2).fit(X, rows, Y).W).any()


@pytest.mark.parametrize("n_features", [*range(10), 16, 17, 40])
def test_margins_equal_the_matrix_product(n_features):
    """Dense rows are added four at a time and the rest one by one; every third row has pairs. From 16 features on, some
    are prefetched while others are added; the last features are not in the chunk."""
    rng = np.random.default_rng(n_features)
    W = rng.integers(-9, 10, (34, 7)).astype(np.int16)
    W[::3, 2:] = 0  # two slots: (slot, weight) pairs are shorter than a dense row
    rows = [w if i % 3 else np.array([0, w[0], 1, w[1]], np.int16) for i, w in enumerate(W)]
    begins = np.cumsum([0, *map(len, rows)])
    table = np.column_stack([[*range(34), EMPTY_FEATURE_CODE], begins]).astype(
        np.uint32
    )  # one bucket: cells are probed in turn
    features, values = np.arange(n_features, dtype=np.int32), rng.random(n_features).astype(np.float32)
    bias, out = rng.random(7).astype(np.float32), np.empty(7, np.float32)
    compute_margins(
        features, values, table, 1, np.concatenate(rows), bias, np.float32(0.5),
        np.empty((RING_MASK + 1, 2), np.int64), out,
    )  # fmt: skip
    np.testing.assert_allclose(out, bias + 0.5 * values[:34] @ W[:n_features], rtol=1e-5, atol=1e-4)

"""Gathering of node documents, pruning of weights and SIMD loops, compared with plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from xmtc.core.numba_support import fast_kernel
from xmtc.core.sparse import as_compact, compact
from xmtc.linear.node_data import NodeDocuments, gather_documents, to_node_documents
from xmtc.linear.packing import prune_weights
from xmtc.linear.simd import LANES, MAX_TILE_VECTORS, accumulate_rows, scatter_to_rows
from xmtc.linear.solver import LinearWeights, Solver


def sparse(n_rows: int, n_columns: int, seed: int, density: float = 0.1) -> csr_array:
    rng = np.random.default_rng(seed)
    return random_array((n_rows, n_columns), density=density, format="csr", dtype=np.float32, rng=rng)


def compute_squares(X: csr_array) -> np.ndarray:
    return to_node_documents(X).squares


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [[17, 3, 4, 11], [5], []])
def test_singleton_columns_are_removed(rows, dtype):
    X, rows = sparse(30, 100, seed=0), np.array(rows, dtype)
    documents, dense = gather_documents(X, rows, compute_squares(X)), X[rows].toarray()
    counts = (dense != 0).sum(axis=0)
    shared = np.flatnonzero(counts > 1)
    np.testing.assert_array_equal(documents.columns, np.flatnonzero(counts))
    shape = len(rows), documents.n_shared
    shared_values = csr_array(
        (documents.data, documents.indices.astype(np.int32), documents.indptr), shape=shape
    ).toarray()
    np.testing.assert_array_equal(shared_values, dense[:, shared])
    np.testing.assert_allclose(documents.squares, (dense**2).sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(documents.singleton_squares, (dense[:, counts == 1] ** 2).sum(axis=1), rtol=1e-6)
    assert (documents.n_shared, documents.n_singletons) == (len(shared), (counts == 1).sum())
    check_weight_rows(documents, dense)


def check_weight_rows(documents: NodeDocuments, dense: np.ndarray) -> None:
    """Check that shared columns have their own W rows in order, and singletons the row of their document times x."""
    n_shared = 0
    for column, row, factor in zip(documents.columns, *documents.weight_rows, strict=True):
        owners = np.flatnonzero(dense[:, column])
        if len(owners) > 1:
            assert (row, factor) == (n_shared, 1)
            n_shared += 1
        else:
            assert (row, factor) == (documents.n_shared + owners[0], dense[owners[0], column])


def test_all_documents_are_not_copied():
    X = sparse(30, 100, seed=1)
    documents, expected = to_node_documents(X), as_compact(X)
    assert np.shares_memory(documents.data, X.data)
    assert all(np.array_equal(one, other) for one, other in zip(documents[:3], expected[:3], strict=True))
    np.testing.assert_allclose(documents.squares, (X.toarray() ** 2).sum(axis=1), rtol=1e-6)
    assert (documents.n_shared, documents.n_singletons, documents.singleton_squares.any()) == (100, 0, False)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("n_labels", [2, 16])
@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2, 40, dtype=np.float32)], ids=["plain", "weighted"])
def test_weights_equal_those_without_singleton_handling(loss, n_labels, weights):
    X, rows, rng = sparse(40, 300, seed=2), np.arange(5, 33), np.random.default_rng(3)
    signs = np.where(rng.random((len(rows), n_labels)) < 0.4, 1, -1).astype(np.float32)
    solver, doc_weights = Solver(loss, C=2.0, max_passes=7, eps=0), None if weights is None else weights[rows]
    documents = compact(X, rows)
    plain = LinearWeights(documents.columns, solver.solve(documents, signs, doc_weights), n_labels)
    gathered = gather_documents(X, rows, compute_squares(X))
    assert gathered.n_singletons > 50
    node_weights = solver.solve_node(gathered, signs, n_labels, doc_weights)
    one, other = (dense_rows(prune_weights(dense, 0.01), 300) for dense in (node_weights, plain))
    np.testing.assert_allclose(one, other, atol=1e-4)
    assert other.any()


def dense_rows(rows, n_features):
    """Return the pruned weights of each feature with the biases in the last row; weights near the minimum become 0."""
    dense = np.zeros((n_features + 1, len(rows.bias)))
    for feature, begin, end in zip(rows.features, [0, *rows.ends[:-1]], rows.ends, strict=True):
        dense[feature, rows.slots[begin:end]] = rows.weights[begin:end]
    dense[-1] = rows.bias
    return np.where(np.abs(dense) < 0.0102, 0, dense)


@pytest.mark.parametrize("n_slots", [1, 2, 8, 13, 24])
def test_small_weights_are_pruned(n_slots):
    rng = np.random.default_rng(n_slots)
    W = rng.normal(size=(51, n_slots + 3)).astype(np.float32) * (rng.random((51, n_slots + 3)) < 0.2)
    features = np.sort(rng.choice(1000, 50, replace=False)).astype(np.int32)
    pruned = prune_weights(LinearWeights(features, W, n_slots), 0.7)
    is_kept = np.abs(W[:-1, :n_slots]) >= np.float32(0.7)
    assert pruned.features.tolist() == features[is_kept.any(axis=1)].tolist()
    assert pruned.ends.tolist() == np.cumsum(is_kept.sum(axis=1))[is_kept.any(axis=1)].tolist()
    assert pruned.slots.tolist() == np.nonzero(is_kept)[1].tolist()
    np.testing.assert_array_equal(pruned.weights, W[:-1, :n_slots][is_kept])
    np.testing.assert_array_equal(pruned.bias, W[-1, :n_slots])


@fast_kernel
def accumulate_and_scatter(indices, data, begin, end, W, first, n_vectors, total, step):
    accumulate_rows(indices, data, begin, end, W, first, n_vectors, total)
    scatter_to_rows(indices, data, begin, end, W, first, n_vectors, step)


@pytest.mark.parametrize("n_vectors", [1, 2, MAX_TILE_VECTORS])
@pytest.mark.parametrize("n_features", [0, 1, 2, 7])
def test_simd_loops_equal_numpy(n_vectors, n_features):
    rng, first = np.random.default_rng(n_features), 8
    labels = slice(first, first + n_vectors * LANES)
    W, data = rng.random((20, 8 * MAX_TILE_VECTORS + 16), np.float32), rng.random(12, np.float32)
    total, step = rng.random((2, W.shape[1]), np.float32)
    indices = rng.permutation(20)[:12].astype(np.uint32)
    used, values = indices[3 : 3 + n_features], data[3 : 3 + n_features]

    expected_total, expected_W = total.copy(), W.copy()
    expected_total[labels] += values @ W[used, labels]
    expected_W[used, labels] += values[:, None] * step[labels]
    accumulate_and_scatter(indices, data, 3, 3 + n_features, W, first, n_vectors, total, step)
    np.testing.assert_allclose(total, expected_total, rtol=1e-5)
    np.testing.assert_allclose(W, expected_W, rtol=1e-5)

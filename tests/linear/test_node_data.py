"""How a node's documents are gathered and its weights pruned, and loops of vector instructions, against plain twins."""

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


def squares_of(X: csr_array) -> np.ndarray:
    return to_node_documents(X).squares


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [[17, 3, 4, 11], [5], []])
def test_columns_of_one_document_are_set_apart(rows, dtype):
    X, rows = sparse(30, 100, seed=0), np.array(rows, dtype)
    found, dense = gather_documents(X, rows, squares_of(X)), X[rows].toarray()
    counts = (dense != 0).sum(axis=0)
    shared = np.flatnonzero(counts > 1)
    np.testing.assert_array_equal(found.columns, np.flatnonzero(counts))
    shape = len(rows), found.n_shared
    again = csr_array((found.data, found.indices.astype(np.int32), found.indptr), shape=shape).toarray()
    np.testing.assert_array_equal(again, dense[:, shared])
    np.testing.assert_allclose(found.squares, (dense**2).sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.singleton_squares, (dense[:, counts == 1] ** 2).sum(axis=1), rtol=1e-6)
    assert (found.n_shared, found.n_singletons) == (len(shared), (counts == 1).sum())
    check_rows_of_weights(found, dense)


def check_rows_of_weights(found: NodeDocuments, dense: np.ndarray) -> None:
    """Shared columns have rows of their own, in order; those of one document that document's, times their value."""
    n_shared = 0
    for column, place, factor in zip(found.columns, *found.weight_rows, strict=True):
        owners = np.flatnonzero(dense[:, column])
        if len(owners) > 1:
            assert (place, factor) == (n_shared, 1)
            n_shared += 1
        else:
            assert (place, factor) == (found.n_shared + owners[0], dense[owners[0], column])


def test_everything_is_whole():
    X = sparse(30, 100, seed=1)
    found, expected = to_node_documents(X), as_compact(X)
    assert np.shares_memory(found.data, X.data)
    assert all(np.array_equal(one, other) for one, other in zip(found[:3], expected[:3], strict=True))
    np.testing.assert_allclose(found.squares, (X.toarray() ** 2).sum(axis=1), rtol=1e-6)
    assert (found.n_shared, found.n_singletons, found.singleton_squares.any()) == (100, 0, False)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("n_labels", [2, 16])
@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2, 40, dtype=np.float32)], ids=["plain", "weighted"])
def test_weights_are_those_of_a_node_whose_columns_are_all_alike(loss, n_labels, weights):
    X, rows, rng = sparse(40, 300, seed=2), np.arange(5, 33), np.random.default_rng(3)
    signs = np.where(rng.random((len(rows), n_labels)) < 0.4, 1, -1).astype(np.float32)
    solver, mine = Solver(loss, C=2.0, max_passes=7, eps=0), None if weights is None else weights[rows]
    documents = compact(X, rows)
    plain = LinearWeights(documents.columns, solver.solve(documents, signs, mine), n_labels)
    gathered = gather_documents(X, rows, squares_of(X))
    assert gathered.n_singletons > 50
    found = solver.solve_node(gathered, signs, n_labels, mine)
    one, other = (dense_rows(prune_weights(answer, 0.01), 300) for answer in (found, plain))
    np.testing.assert_allclose(one, other, atol=1e-4)
    assert other.any()


def dense_rows(rows, n_features):
    """The pruned weights of each feature, and in the last row the biases. Those near to the least may be in or out."""
    dense = np.zeros((n_features + 1, len(rows.bias)))
    for feature, begin, end in zip(rows.features, [0, *rows.ends[:-1]], rows.ends, strict=True):
        dense[feature, rows.slots[begin:end]] = rows.weights[begin:end]
    dense[-1] = rows.bias
    return np.where(np.abs(dense) < 0.0102, 0, dense)


@pytest.mark.parametrize("n_slots", [1, 2, 8, 13, 24])
def test_weights_that_are_large_enough_are_kept(n_slots):
    rng = np.random.default_rng(n_slots)
    W = rng.normal(size=(51, n_slots + 3)).astype(np.float32) * (rng.random((51, n_slots + 3)) < 0.2)
    features = np.sort(rng.choice(1000, 50, replace=False)).astype(np.int32)
    found = prune_weights(LinearWeights(features, W, n_slots), 0.7)
    is_kept = np.abs(W[:-1, :n_slots]) >= np.float32(0.7)
    assert found.features.tolist() == features[is_kept.any(axis=1)].tolist()
    assert found.ends.tolist() == np.cumsum(is_kept.sum(axis=1))[is_kept.any(axis=1)].tolist()
    assert found.slots.tolist() == np.nonzero(is_kept)[1].tolist()
    np.testing.assert_array_equal(found.weights, W[:-1, :n_slots][is_kept])
    np.testing.assert_array_equal(found.bias, W[-1, :n_slots])


@fast_kernel
def both(indices, data, begin, end, W, first, n_vectors, total, step):
    accumulate_rows(indices, data, begin, end, W, first, n_vectors, total)
    scatter_to_rows(indices, data, begin, end, W, first, n_vectors, step)


@pytest.mark.parametrize("n_vectors", [1, 2, MAX_TILE_VECTORS])
@pytest.mark.parametrize("n_features", [0, 1, 2, 7])
def test_rows_are_added_as_numpy_does(n_vectors, n_features):
    rng, first = np.random.default_rng(n_features), 8
    labels = slice(first, first + n_vectors * LANES)
    W, data = rng.random((20, 8 * MAX_TILE_VECTORS + 16), np.float32), rng.random(12, np.float32)
    total, step = rng.random((2, W.shape[1]), np.float32)
    indices = rng.permutation(20)[:12].astype(np.uint32)
    used, values = indices[3 : 3 + n_features], data[3 : 3 + n_features]

    expected_total, expected_W = total.copy(), W.copy()
    expected_total[labels] += values @ W[used, labels]
    expected_W[used, labels] += values[:, None] * step[labels]
    both(indices, data, 3, 3 + n_features, W, first, n_vectors, total, step)
    np.testing.assert_allclose(total, expected_total, rtol=1e-5)
    np.testing.assert_allclose(W, expected_W, rtol=1e-5)

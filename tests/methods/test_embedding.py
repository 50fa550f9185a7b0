"""SLEEC and AnnexML: kernels against NumPy references, and behaviour that the shared test suite does not cover."""

from __future__ import annotations

import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array, random_array

from xmtc import Classifier, Dataset, Run, XmtcError
from xmtc.core.sparse import compact, normalise_rows
from xmtc.errors import MissingExtra
from xmtc.linear.ridge import fit_ridge
from xmtc.methods import SLEEC, AnnexML
from xmtc.methods.embedding import annexml, neighbours
from xmtc.methods.embedding.neighbour_model import (
    find_positions,
    project_documents,
    quantize_to_int8,
    rank_by_neighbour_votes,
    route_documents,
)
from xmtc.methods.embedding.neighbours import NO_NEIGHBOUR, find_label_neighbours, search_exact
from xmtc.methods.embedding.sleec import (
    compute_cluster_centres,
    compute_neighbour_products,
    compute_residuals,
    learn_embeddings,
)
from xmtc.storage.form import is_equal

ONE, TWO = Run(threads=1), Run(threads=2)
RNG = np.random.default_rng(0)


def sparse(n: int, m: int, density: float = 0.2, seed: int = 0) -> csr_array:
    result = random_array((n, m), density=density, format="csr", dtype=np.float32, rng=np.random.default_rng(seed))
    return csr_array(result)


def labels_of(n: int, m: int, density: float = 0.15, seed: int = 0) -> csr_array:
    result = sparse(n, m, density, seed)
    result.data[:] = 1
    return result


def data(n: int = 300, seed: int = 0) -> Dataset:
    """Return documents whose features determine their labels."""
    Y = labels_of(n, 12, 0.2, seed)
    return Dataset.from_matrix(normalise_rows(csr_array(Y @ sparse(12, 60, 0.2, 1) + 0.1 * sparse(n, 60, 0.1, 2))), Y)


def test_label_neighbours_have_the_largest_cosines():
    Y = labels_of(neighbours.BLOCK_DOCUMENTS + 90, 14)  # two blocks
    unit = normalise_rows(Y).toarray()
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, 0)
    for run in (ONE, TWO):
        result = find_label_neighbours(Y, 7, run)
        for doc, row in enumerate(result):
            expected = np.sort(cosines[doc])[::-1][:7]
            expected = expected[expected > 0]
            assert (row[len(expected) :] == NO_NEIGHBOUR).all()
            np.testing.assert_allclose(cosines[doc, row[: len(expected)]], expected, rtol=1e-6)


def test_equal_neighbours_are_spread_over_all_documents():
    """All documents have the same label, and none is the neighbour of all others."""
    result = find_label_neighbours(csr_array(np.ones((50, 1), np.float32)), 3, ONE)
    np.testing.assert_array_equal(result, (np.arange(50)[:, None] + [1, 2, 3]) % 50)


def test_only_a_limited_number_of_documents_of_a_frequent_label_are_compared(monkeypatch):
    n = neighbours.MAX_DOCUMENTS_PER_LABEL + 10
    result = find_label_neighbours(csr_array(np.ones((n, 1), np.float32)), 2, ONE)
    np.testing.assert_array_equal(result, (np.arange(n)[:, None] + [1, 2]) % n)


@pytest.mark.parametrize("dimension", [1, 4, 7, 50])
def test_exact_search_finds_the_largest_cosines(dimension):
    n = 2 * neighbours.TILE_EMBEDDINGS + 17
    columns, scale = quantize_to_int8(np.random.default_rng(1).standard_normal((n, dimension)).astype(np.float32))
    assert scale.shape == (n,)
    columns = np.ascontiguousarray(columns.T)
    lengths = np.sqrt(np.square(columns, dtype=np.int64).sum(axis=0)).astype(np.float32)
    queries = np.random.default_rng(2).standard_normal((9, dimension)).astype(np.float32)
    members = slice(5, n - 3)
    result, cosines = search_exact(queries, columns, lengths, members, 6)
    expected = (queries @ columns / lengths)[:, members]
    np.testing.assert_allclose(cosines, np.sort(expected, axis=1)[:, ::-1][:, :6], rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(expected, result - 5, axis=1), cosines, rtol=1e-5)
    alone = search_exact(queries[3:4], columns, lengths, members, 6)
    np.testing.assert_array_equal(alone[0][0], result[3])
    np.testing.assert_array_equal(alone[1][0], cosines[3])


def test_exact_search_of_a_small_cluster():
    columns = np.array([[3, 4, 5]], np.int8)
    result, _ = search_exact(np.ones((2, 1), np.float32), columns, np.ones(3, np.float32), slice(1, 3), 10)
    np.testing.assert_array_equal(result, [[2, 1], [2, 1]])
    assert search_exact(np.ones((2, 1), np.float32), columns, np.ones(3, np.float32), slice(1, 1), 10)[0].shape == (
        2,
        0,
    )


def test_ridge_regression_equals_the_closed_form():
    X, targets, C = sparse(80, 30, 0.3), RNG.standard_normal((80, 5)).astype(np.float32), 2.0
    documents = compact(X, np.arange(80))
    dense = X.toarray()[:, documents.columns]
    expected = np.linalg.solve(dense.T @ dense + np.eye(dense.shape[1]) / (2 * C), dense.T @ targets)
    np.testing.assert_allclose(fit_ridge(documents, targets, C, 3000, 0), expected, atol=2e-3)


def test_neighbour_products_equal_the_dense_product():
    Y = labels_of(40, 10)
    unit = normalise_rows(Y).toarray()
    result = compute_neighbour_products(Y, 4)
    dense, whole = result.toarray(), unit @ unit.T
    np.testing.assert_allclose(dense[dense != 0], whole[dense != 0], rtol=1e-5)
    np.testing.assert_allclose(dense, dense.T)
    np.testing.assert_allclose(np.diag(dense), np.diag(whole), rtol=1e-5)
    for dimension in (3, 8):
        U, scaled = (RNG.standard_normal((40, dimension)).astype(np.float32) for _ in range(2))
        missing = np.empty(result.nnz, np.float32)
        compute_residuals(result.indptr, result.indices, result.data, scaled, U, missing)
        rows = np.repeat(np.arange(40), np.diff(result.indptr))
        np.testing.assert_allclose(missing, result.data - (scaled @ U.T)[rows, result.indices], atol=1e-5)


def test_embeddings_approximate_the_products():
    products = compute_neighbour_products(labels_of(60, 8, 0.3), 60)
    rows = np.repeat(np.arange(60), np.diff(products.indptr))

    def lack(steps: int) -> float:
        Z = learn_embeddings(products, 8, steps, (0, 0))
        return float(np.abs(products.data - (Z @ Z.T)[rows, products.indices]).mean())

    assert lack(1) > lack(60)
    assert lack(60) < 0.01  # eight labels: the products have rank 8, and nearly all of them are observed


def test_projection_and_routing_equal_numpy():
    X, columns = sparse(20, 30), np.array([2, 5, 6, 20], np.int32)
    weights = RNG.standard_normal((4, 6)).astype(np.float32)
    packed, scales = quantize_to_int8(weights)
    np.testing.assert_allclose(packed * scales[:, None], weights, atol=np.abs(weights).max() / 200)
    vectors = np.empty((20, 6), np.float32)
    where = find_positions(columns, X.indices)
    project_documents(X.indptr, where, X.data, scales, packed, vectors)
    expected = X.toarray()[:, columns] @ (packed * scales[:, None])
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected / np.where(lengths > 0, lengths, 1), atol=1e-5)
    assert (find_positions(columns[:0], X.indices) == -1).all()

    routes = RNG.standard_normal((30, 4)).astype(np.float32)
    np.testing.assert_array_equal(route_documents(X, routes), (X.toarray() @ routes).argmax(axis=1))


def test_neighbour_votes_equal_numpy():
    Y = labels_of(15, 6, 0.4)
    result, votes = RNG.integers(-1, 15, (8, 5)).astype(np.int32), RNG.random((8, 5)).astype(np.float32)
    result[0] = NO_NEIGHBOUR
    top, scores = np.full((8, 6), -1, np.int32), np.zeros((8, 6), np.float32)
    room = np.zeros(6, np.float32), np.empty(6, np.int32)
    rank_by_neighbour_votes(result, votes, Y.indptr.astype(np.int64), Y.indices, *room, top, scores)
    assert (top[0] == -1).all()
    for doc in range(1, 8):
        counted = np.where(result[doc] >= 0, votes[doc], 0)
        expected = counted @ Y.toarray()[result[doc]] / counted.sum()
        np.testing.assert_allclose(scores[doc], np.sort(expected)[::-1], rtol=1e-5)
        np.testing.assert_allclose(expected[top[doc][top[doc] >= 0]], scores[doc][top[doc] >= 0], rtol=1e-5)


def ranking_loss(units: np.ndarray, others: np.ndarray, gamma: float) -> float:
    margins = gamma * units @ others.T
    return float(np.log(np.exp(margins - np.diag(margins)[:, None]).sum(axis=1)).sum())


def test_ranking_gradient_equals_numpy():
    rng, n, gamma = np.random.default_rng(3), 5, np.float32(3)
    units, others = (rng.standard_normal((n, 4)).astype(np.float32) for _ in range(2))
    gradients, other_gradients, room = np.zeros_like(units), np.zeros_like(others), np.empty(n, np.float32)
    for i in range(n):
        annexml.add_ranking_gradients(i, n, gamma, units, others, gradients, other_gradients, room)
    margins = gamma * units.astype(np.float64) @ others.T
    shares = np.exp(margins - margins.max(axis=1, keepdims=True))
    pull = gamma * (shares / shares.sum(axis=1, keepdims=True) - np.eye(n))
    np.testing.assert_allclose(gradients, pull @ others, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(other_gradients, pull.T @ units, rtol=1e-3, atol=1e-4)
    step = 1e-3 * gradients
    assert ranking_loss(units - step, others, gamma) < ranking_loss(units, others, gamma)


def test_embedding_step_is_orthogonal_to_the_vector():
    X, W = sparse(3, 10, 0.5), RNG.standard_normal((10, 4)).astype(np.float32)
    rows, unit = (X.indptr.astype(np.int64), X.indices, X.data), np.empty(4, np.float32)
    length = annexml.embed_document(*rows, 1, W, unit)
    vector = X.toarray()[1] @ W
    np.testing.assert_allclose(unit * length, vector, rtol=1e-4)
    given, squares, before = RNG.standard_normal(4).astype(np.float32), np.zeros(10, np.float32), W.copy()
    turning = (given - (unit @ given) * unit) / length
    annexml.step_adagrad(*rows, 1, unit, length, given.copy(), np.float32(0.1), W, squares)
    x = X.toarray()[1]
    np.testing.assert_allclose(squares, x**2 * (turning**2).mean(), rtol=1e-4)
    expected = before - 0.1 * np.sign(x)[:, None] * turning / np.sqrt((turning**2).mean())
    np.testing.assert_allclose(W, expected, rtol=1e-3, atol=1e-4)


def test_ftrl_step_equals_its_formula():
    X, rate, lazy = sparse(2, 6, 0.7), np.float32(0.1), np.float32(0.5)
    shape = (6, 3)
    W, squares, sums = np.zeros(shape, np.float32), np.ones(shape, np.float32), np.zeros(shape, np.float32)
    W[:, 1], sums[:, 1] = 0.3, 0.3 / rate + lazy
    before, x = W.copy(), X.toarray()[1]
    annexml.step_ftrl_proximal(X.indptr, X.indices, X.data, 1, 1, np.float32(0), rate, lazy, W, squares, sums)
    step = -x / (1 + np.exp(-x @ before[:, 1]))
    after = np.sqrt(1 + step**2)
    total = 0.3 / rate + lazy + step + (after - 1) / rate * before[:, 1]
    expected = np.where(x != 0, rate * np.sign(total) * np.maximum(np.abs(total) - lazy, 0) / after, before[:, 1])
    np.testing.assert_allclose(W[:, 1], expected, rtol=1e-4)
    np.testing.assert_array_equal(W[:, [0, 2]], 0)


def test_learned_clusters_keep_neighbours_together():
    """Two groups of labels share no feature, so neighbours are known."""
    group = np.arange(400) % 2
    Y, X = np.zeros((400, 8), np.float32), np.zeros((400, 40), np.float32)
    rng = np.random.default_rng(0)
    for doc in range(400):
        Y[doc, 4 * group[doc] + rng.choice(4, 2, replace=False)] = 1
        X[doc, 20 * group[doc] + rng.choice(20, 6, replace=False)] = 6**-0.5
    given = Dataset.from_matrix(X, Y)
    (routes,) = AnnexML(n_learners=1, sparsity=0.0).learn_clusters(given, 2, ONE)
    cluster = route_documents(given.X, routes)
    assert max((cluster == group).mean(), (cluster != group).mean()) > 0.95


def test_k_means_centres_have_unit_length():
    result = compute_cluster_centres(normalise_rows(sparse(50, 20, 0.5)), 3, (0, 0))
    np.testing.assert_allclose(np.linalg.norm(result, axis=0), 1, rtol=1e-5)


@pytest.mark.parametrize("method", [SLEEC(n_learners=2, dimension=8), AnnexML(n_learners=2, dimension=8)], ids=repr)
def test_result_is_independent_of_threads(method):
    method = method.replace(n_clusters=3, n_neighbours=5)
    one, two = (method.fit(data(), run=run) for run in (ONE, TWO))
    assert is_equal(one, two)
    assert sorted(one.learners[0].members) == list(range(one.n_docs))
    one.check()
    result = one.predict(data(), 3, TWO)
    assert (data().Y.toarray()[np.arange(300), result.labels[:, 0]]).mean() > 0.8


def test_more_clusters_than_documents():
    lonely = Dataset.from_matrix(np.eye(4), np.eye(4))
    for method in (SLEEC(n_clusters=9), AnnexML(n_clusters=9)):
        model = method.fit(lonely, run=ONE)
        model.check()
        assert model.predict(lonely, 1, ONE).labels.shape == (4, 1)


@pytest.mark.parametrize("method", [SLEEC, AnnexML])
def test_training_resumes_from_finished_learners(method, tmp_path, monkeypatch):
    recipe = method(n_learners=3, n_clusters=2, dimension=6)
    uninterrupted, learn_projection, calls = recipe.fit(data(), run=ONE), method.learn_projection, []

    def interrupt_fourth_call(self, *arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return learn_projection(self, *arguments)

    run = Run(threads=1, checkpoint=tmp_path / "kept")
    monkeypatch.setattr(method, "learn_projection", interrupt_fourth_call)
    with pytest.raises(KeyboardInterrupt):
        recipe.fit(data(), run=run)
    run.checkpoint.release()
    kept = len(list((tmp_path / "kept").glob("learner-*.npz")))
    assert 1 <= kept < 3
    calls[:] = [1] * 10
    assert is_equal(recipe.fit(data(), run=run), uninterrupted)
    assert len(calls) == 10 + 2 * (3 - kept)


def test_approximate_search_is_nearly_exact():
    pytest.importorskip("usearch")
    model = AnnexML(n_learners=2, search="approximate", n_clusters=2).fit(data(), run=ONE)
    exact = replace(model, edges=0)
    near, truth = (each.predict(data(), 3, TWO) for each in (model, exact))
    assert (near.labels == truth.labels).mean() > 0.95
    again = replace(model, learners=tuple(replace(each) for each in model.learners)).predict(data(), 3, ONE)
    np.testing.assert_array_equal(near.labels, again.labels)
    np.testing.assert_array_equal(near.scores, again.scores)


def test_missing_usearch_is_reported_before_training(monkeypatch):
    model = AnnexML(n_learners=1).fit(data(), run=ONE)
    monkeypatch.setitem(sys.modules, "usearch", None)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(MissingExtra, match=r"search=approximate needs usearch: pip install 'xmtc\[neighbours\]'"):
        AnnexML(search="approximate").fit(data(), run=ONE)
    monkeypatch.setattr("xmtc.methods.embedding.neighbour_model.find_spec", lambda name: None)
    result, expected = replace(model, edges=50).predict(data(), 3, ONE), model.predict(data(), 3, ONE)
    np.testing.assert_array_equal(result.labels, expected.labels)


def test_training_beyond_memory_is_rejected(monkeypatch):
    monkeypatch.setattr("xmtc.core.memory.get_memory_limit", lambda: 10_000.0)
    with pytest.raises(XmtcError, match=r"A model of 15 learners would need .* lower n_learners"):
        AnnexML().fit(data(), run=ONE)


def test_too_large_features_are_rejected():
    large = Dataset.from_matrix(np.full((3, 2), 1e12), np.eye(3))
    for method in (SLEEC(), AnnexML()):
        with pytest.raises(XmtcError, match=r"X has values of up to 1e[+]12, which is too large"):
            method.fit(large, run=ONE)


def test_presets_equal_the_papers_and_keep_set_parameters():
    assert (SLEEC(preset="Wiki10-31K").dimension, SLEEC(preset="Wiki10-31K", dimension=7).dimension) == (75, 7)
    assert SLEEC(preset="EUR-Lex").sharpness == 0
    names = {field.name for field in fields(SLEEC)}
    assert all(set(values) <= names for values in SLEEC.presets.values())


def test_label_without_documents_in_the_cluster_has_zero_weights():
    texts, tags = make_planted_corpus(60, seed=0)
    tagger = Classifier("sleec", n_learners=1, n_clusters=20, dimension=8).fit(texts, tags, run=ONE).tagger_
    weights = [weight for _, weight in tagger.explain(texts[0], tags[1][0])]
    assert np.isfinite(weights).all()

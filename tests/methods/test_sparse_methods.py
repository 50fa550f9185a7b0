"""L1-penalised solvers against NumPy references and optimality conditions; PD-Sparse, PPDSparse and ProXML."""

from __future__ import annotations

import filecmp
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array, random_array

from xmtc.classifier import Classifier
from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.core.sparse import CompactMatrix, compact
from xmtc.errors import XmtcError
from xmtc.labels.propensity import Propensity
from xmtc.linear.active_set import ActiveSetSolver, RowColumnDocuments, minimise_bias
from xmtc.linear.coordinate_descent import next_random_state, shuffle, soft_threshold
from xmtc.linear.frank_wolfe import (
    PASS_PARTS,
    DualVariables,
    FrankWolfeSolver,
    add_feature_margins,
    estimate_margins,
    find_simplex_threshold,
    make_document_state,
    predict_top_labels,
    project_duals,
    recompute_weights,
    search_labels,
    threshold_weights,
)
from xmtc.linear.solver import RUN_DOCUMENTS, Solver, seed_state
from xmtc.methods.one_vs_all import pd_sparse
from xmtc.methods.one_vs_all.dismec import DiSMEC
from xmtc.methods.one_vs_all.pd_sparse import PDSparse
from xmtc.methods.one_vs_all.ppd_sparse import PPDSparse
from xmtc.methods.one_vs_all.proxml import ProXML
from xmtc.testing import make_planted_corpus

ONE = Run(threads=1)


def sparse(n_rows: int, n_columns: int, seed: int, density: float = 0.2) -> csr_array:
    rng = np.random.default_rng(seed)
    return random_array((n_rows, n_columns), density=density, format="csr", dtype=np.float32, rng=rng)


def labels_for(n_rows: int, n_labels: int, seed: int) -> csr_array:
    return csr_array((np.random.default_rng(seed).random((n_rows, n_labels)) < 0.3).astype(np.float32))


def reference_soft_threshold(values, penalty):
    return np.sign(values) * np.maximum(np.abs(values) - penalty, 0)


def all_documents(X: csr_array) -> CompactMatrix:
    return compact(X, np.arange(X.shape[0]))


def test_soft_threshold_equals_numpy():
    values = np.linspace(-2, 2, 41).astype(np.float32)
    result = [soft_threshold(value, np.float32(0.5)) for value in values]
    np.testing.assert_allclose(result, reference_soft_threshold(values, 0.5), atol=1e-7)
    assert {type(value) for value in result} == {float}


# Block solver with a penalty and factors: ProXML.


def reference_solve(X, signs, C, factors, penalty, passes, steps, seed):
    """Run dual coordinate descent with margins of soft weights and a Newton step of the bias after each pass."""
    n_rows, n_labels = signs.shape
    costs = C * np.where(signs > 0, factors, 1)
    V, bias, runs = (
        np.zeros((X.shape[1], n_labels)),
        signs.mean(axis=0).astype(float),
        np.arange(-(-n_rows // RUN_DOCUMENTS)),
    )
    for _ in range(steps):
        state, alpha = np.uint64(seed_state(seed)), np.zeros(signs.shape)
        for _ in range(passes):
            state = np.uint64(shuffle(runs, state))
            for i in (i for run in runs for i in range(run * RUN_DOCUMENTS, min((run + 1) * RUN_DOCUMENTS, n_rows))):
                margin = signs[i] * (X[i] @ reference_soft_threshold(V, penalty) + bias)
                slope = margin - 1 + alpha[i] / (2 * costs[i])
                new = np.maximum(alpha[i] - slope / (X[i] @ X[i] + 1 / (2 * costs[i])), 0)
                V += np.outer(X[i], (new - alpha[i]) * signs[i])
                alpha[i] = new
            bias -= (bias - (alpha * signs).sum(axis=0)) / (1 + (2 * costs * (alpha > 0)).sum(axis=0))
        V = reference_soft_threshold(V, penalty)
    return np.vstack([V, bias])


@pytest.mark.parametrize("n_labels", [2, 5])
@pytest.mark.parametrize("steps", [1, 3])
def test_block_solver_with_penalty_and_factors_equals_numpy(n_labels, steps):
    X, rng = sparse(43, 20, seed=5), np.random.default_rng(6)
    signs = np.where(rng.random((43, n_labels)) < 0.4, 1, -1).astype(np.float32)
    factors = rng.uniform(1, 4, n_labels).astype(np.float32)
    solver = Solver(C=0.7, eps=0, max_passes=3, seed=9, penalty=0.2, steps=steps)
    documents = CompactMatrix(
        X.indptr.astype(np.int64), X.indices.astype(np.uint32), X.data, np.arange(20, dtype=np.int32)
    )
    result = solver.solve(documents, signs, None, factors)
    np.testing.assert_allclose(result, reference_solve(X.toarray(), signs, 0.7, factors, 0.2, 3, steps, 9), atol=1e-4)


def objective(w, X, signs, costs, penalty, ridge=1.0):
    """Return the objective of weights whose last one is the bias."""
    missing = np.maximum(1 - signs * (X @ w[:-1] + w[-1]), 0)
    return penalty * np.abs(w[:-1]).sum() + ridge * (w[:-1] ** 2).sum() / 2 + w[-1] ** 2 / 2 + costs @ missing**2


def least(X, signs, costs, penalty):
    """Return the minimum of a smooth solver: each weight is the difference of two non-negative ones."""

    def split(u):
        return np.append(u[:n] - u[n : 2 * n], u[-1])

    def smooth(u):
        w = split(u)
        return objective(w, X, signs, costs, 0.0) + penalty * u[: 2 * n].sum()

    n = X.shape[1]
    bounds = [(0, None)] * (2 * n) + [(None, None)]
    return split(minimize(smooth, np.zeros(2 * n + 1), bounds=bounds, options={"maxiter": 5000, "maxfun": 10**6}).x)


def test_both_solvers_reach_the_minimum():
    X, Y = sparse(60, 12, seed=1), labels_for(60, 2, seed=2)
    everywhere, ours = np.arange(60), {}
    block = Solver(eps=1e-6, max_passes=5000, penalty=0.3).fit(X, everywhere, Y)
    ours["block"] = np.zeros((13, 2))
    ours["block"][np.append(block.features, 12)] = block.W
    rows = ActiveSetSolver(penalty=0.3, eps=1e-5, max_rounds=5000).fit(
        RowColumnDocuments.from_matrix(X, 1.0, None), Y, 0, 0.0
    )
    ours["active"] = np.vstack([dense(rows, 12), rows.bias])
    for label in range(2):
        signs = np.where(Y.toarray()[:, label] > 0, 1, -1)
        best = objective(least(X.toarray(), signs, np.ones(60), 0.3), X.toarray(), signs, np.ones(60), 0.3)
        for name, W in ours.items():
            assert objective(W[:, label], X.toarray(), signs, np.ones(60), 0.3) < best * 1.002, name
            assert 0 < np.count_nonzero(W[:-1, label]) < 12, name


def dense(rows, n_features):
    W = np.zeros((n_features, len(rows.bias)))
    for feature, begin, end in zip(rows.features, np.append(0, rows.ends[:-1]), rows.ends, strict=True):
        W[feature, rows.slots[begin:end]] = rows.weights[begin:end]
    return W


def test_more_proximal_steps_approach_the_objective_without_ridge():
    X, Y = sparse(60, 12, seed=1), labels_for(60, 1, seed=2)
    signs, values = np.where(Y.toarray()[:, 0] > 0, 1, -1), []
    for steps in (1, 3, 30):
        result = Solver(eps=1e-6, max_passes=2000, penalty=0.3, steps=steps).fit(X, np.arange(60), Y)
        w = np.zeros(13)
        w[np.append(result.features, 12)] = result.W[:, 0]
        values.append(objective(w, X.toarray(), signs, np.ones(60), 0.3, ridge=0.0))
    assert values[0] > values[1] > values[2] - 1e-6


# PPDSparse: one label at a time over active documents.


def reference_active_rounds(X, y, C, penalty, eps, state, rounds=4):
    """Run PPDSparse on dense arrays; documents become active if they contain a feature with a weight."""
    n_docs, n_features = X.shape
    alpha, active, V, bias, seen = np.zeros(n_docs), np.flatnonzero(y > 0), np.zeros(n_features), -1.0, []
    for _ in range(rounds):
        state = np.uint64(shuffle(active, state))
        for i in active:
            margin = y[i] * (X[i] @ reference_soft_threshold(V, penalty) + bias)
            new = max(alpha[i] - (margin - 1 + alpha[i] / (2 * C)) / (X[i] @ X[i] + 1 / (2 * C)), 0)
            V, alpha[i] = V + (new - alpha[i]) * y[i] * X[i], new
            seen += [j for j in np.flatnonzero(X[i]) if j not in seen and V[j] != 0]
        active = active[(y[active] > 0) | (alpha[active] > 0)]
        w = reference_soft_threshold(V, penalty)
        bias = minimize(bias_loss, [bias], (C, y, X @ w)).x[0]
        reached = list(dict.fromkeys(i for j in seen if w[j] for i in np.flatnonzero(X[:, j])))
        missing = {i: 1 + bias + X[i] @ w for i in reached if i not in active}
        active = np.array([*active, *(i for i in missing if missing[i] > eps)])
    return np.append(w, bias)


def bias_loss(b, C, y, margins):
    return b[0] ** 2 / 2 + C * (np.maximum(1 - y * (margins + b[0]), 0) ** 2).sum()


def test_active_rounds_equal_numpy():
    X, Y = sparse(50, 25, seed=3, density=0.1), labels_for(50, 3, seed=4)
    solver = ActiveSetSolver(penalty=0.1, eps=0.03, max_rounds=4, seed=5)
    rows = solver.fit(RowColumnDocuments.from_matrix(X, 0.8, None), Y, 7, 0.0)
    for label in range(3):
        y = np.where(Y.toarray()[:, label] > 0, 1.0, -1.0)
        state = np.uint64(next_random_state(np.uint64(seed_state(5) + np.uint64(7 + label))))
        expected = reference_active_rounds(X.toarray().astype(float), y, 0.8, 0.1, 0.03, state)
        np.testing.assert_allclose(dense(rows, 25)[:, label], expected[:-1], atol=2e-3)
        np.testing.assert_allclose(rows.bias[label], expected[-1], atol=2e-3)


def test_bias_is_optimal():
    rng = np.random.default_rng(0)
    margins, kinds, costs = rng.normal(size=30), rng.integers(1, 3, 30).astype(np.int8), rng.uniform(0.5, 2, 30)
    signs = np.where(kinds == 2, 1, -1)
    touched, rest = np.arange(30), 17.5  # loss of inactive documents, whose margin is the bias

    def loss(b):
        return b**2 / 2 + costs @ np.maximum(1 - signs * (margins + b), 0) ** 2 + rest * max(1 + b, 0) ** 2

    result = minimise_bias(-1.0, costs.sum() + rest, costs, margins, kinds, touched, 30)
    assert loss(result) <= min(loss(result + 1e-3), loss(result - 1e-3))


# PD-Sparse: all labels at once.


@pytest.mark.parametrize("seed", range(20))
def test_projection_is_the_nearest_point(seed):
    rng = np.random.default_rng(seed)
    n_own, n_other, C = rng.integers(1, 5), rng.integers(1, 6), rng.choice([0.2, 1.0, 50.0])
    values = rng.normal(size=n_own + n_other).astype(np.float32)
    result = np.append(values, np.float32(7))  # entries behind the range are unchanged
    project_duals(result, n_own, n_own + n_other, np.float32(C))
    own, other = result[:n_own], result[n_own:-1]
    assert result[-1] == 7
    assert (result >= 0).all()
    assert own.sum() <= C * (1 + 1e-5)
    np.testing.assert_allclose(own.sum(), other.sum(), atol=1e-5)

    def distance(u):
        return ((u - values) ** 2).sum()

    limits = [
        {"type": "eq", "fun": lambda u: u[:n_own].sum() - u[n_own:].sum()},
        {"type": "ineq", "fun": lambda u: C - u[:n_own].sum()},
    ]
    best = minimize(distance, np.zeros(len(values)), bounds=[(0, None)] * len(values), constraints=limits)
    assert distance(result[:-1]) <= best.fun + 1e-4


def test_simplex_threshold_keeps_the_total():
    values = np.array([9, 0.5, -1, 2, 1.5, 9], np.float32)
    assert np.maximum(values[1:5] - find_simplex_threshold(values, 1, 5, np.float32(1.2)), 0).sum() == pytest.approx(
        1.2, abs=1e-5
    )


def test_sampled_margins_are_unbiased():
    rng = np.random.default_rng(0)
    W, data = rng.normal(size=(12, 6)).astype(np.float32), rng.normal(size=12).astype(np.float32)
    indices, margins = np.arange(12, dtype=np.uint32), np.empty(6, np.float32)
    expected = data @ reference_soft_threshold(W, 0.3)
    estimate_margins(indices, data, W, np.float32(0.3), 12, np.uint64(5), margins)
    np.testing.assert_allclose(margins, expected, atol=1e-5)
    total = np.zeros(6)
    for row in range(20_000):
        estimate_margins(
            indices, data, W, np.float32(0.3), 4, np.uint64(make_document_state(np.uint64(5), row)), margins
        )
        total += margins
    np.testing.assert_allclose(total / 20_000, expected, atol=0.15)
    margins[:] = 0
    add_feature_margins(W[3], np.float32(2), np.float32(0.3), margins)
    np.testing.assert_allclose(margins, 2 * reference_soft_threshold(W[3], 0.3), atol=1e-6)


def test_search_finds_the_largest_margins_of_inactive_labels():
    X, rng = sparse(9, 15, seed=2, density=0.6), np.random.default_rng(3)
    W = rng.normal(size=(15, 8)).astype(np.float32)
    documents, duals = all_documents(X), DualVariables.from_labels(labels_for(9, 8, seed=4), 2)
    W = W[documents.columns]
    result = np.empty((9, 3), np.int32)
    room = np.empty(8, np.float32), np.empty(8, np.bool_), np.empty(3, np.float32), np.empty(3, np.int64)
    kept = duals.offsets, duals.counts, duals.labels
    search_labels(*documents[:3], np.arange(9), W, np.float32(0.1), 100, np.uint64(1), *kept, *room, result)
    margins = X[:, documents.columns] @ reference_soft_threshold(W, 0.1)
    for row in range(9):
        own = duals.labels[duals.offsets[row] : duals.offsets[row] + duals.counts[row]]
        order = [label for label in np.argsort(-margins[row]) if label not in own and margins[row, label] > -1]
        expected = (order + [-1] * 3)[:3]
        assert result[row].tolist() == expected
    np.testing.assert_array_equal(predict_top_labels(documents, W, 0.1, 2), margins.argmax(axis=1))


def reference_step(x, own, others, alphas, V, penalty, C):
    """Return the new dual variables of one document; change V in place."""
    labels = np.array([*own, *others])
    margins, square = x @ reference_soft_threshold(V, penalty)[:, labels], x @ x
    pulls = np.where(np.arange(len(labels)) < len(own), -margins, 1 + margins)
    values = np.append(alphas + pulls / square, 0).astype(np.float32)
    project_duals(values, len(own), len(labels), np.float32(C))
    steps = (values[:-1] - alphas) * np.where(np.arange(len(labels)) < len(own), 1, -1)
    V[:, labels] += np.outer(x, steps)
    return values[:-1]


def test_epoch_keeps_weights_consistent_and_decreases_the_objective():
    """The weights are the sum of documents times dual variables, and the dual objective decreases."""
    X, Y = sparse(150, 40, seed=7), labels_for(150, 12, seed=8)
    documents, solver = all_documents(X), FrankWolfeSolver(penalty=0.1, C=1.0, select=3, draws=5, seed=1)
    duals, W = DualVariables.from_labels(Y, 3), np.zeros((len(documents.columns), 12), np.float32)
    values = []
    for number in range(8 * PASS_PARTS):
        solver.train_part(documents, duals, W, number, 1)
        if number % PASS_PARTS == PASS_PARTS - 1:
            places = [duals.offsets[i] + np.arange(duals.n_own[i], duals.counts[i]) for i in range(150)]
            values.append(
                (reference_soft_threshold(W, 0.1) ** 2).sum() / 2 - duals.alphas[np.concatenate(places)].sum()
            )
    assert (np.diff(values) < 1e-3).all(), values
    again = np.ones_like(W)
    recompute_weights(documents, duals, again)
    np.testing.assert_allclose(W, again, atol=1e-4)
    for i in range(150):
        own, rest = np.split(duals.alphas[duals.offsets[i] : duals.offsets[i] + duals.counts[i]], [duals.n_own[i]])
        assert own.sum() == pytest.approx(rest.sum(), abs=1e-4)
        assert own.sum() <= 1.0001
        assert (rest > 0).all()


def test_document_step_equals_numpy():
    X, Y = sparse(1, 20, seed=7, density=0.5), csr_array(np.array([[1, 0, 1, 0, 0, 0]], np.float32))
    documents, duals = all_documents(X), DualVariables.from_labels(Y, 2)
    rng = np.random.default_rng(0)
    W = rng.normal(size=(len(documents.columns), 6)).astype(np.float32)
    expected = W.astype(float)
    solver, result = FrankWolfeSolver(penalty=0.1, C=0.4, select=2), np.array([[4, 1]], np.int32)
    x = X.toarray()[0, documents.columns].astype(float)
    values = reference_step(x, [0, 2], [4, 1], np.zeros(4), expected, 0.1, 0.4)
    solver._update_documents(documents, np.array([x @ x], np.float32), np.array([0]), result, duals, W, np.float32(0.1))
    np.testing.assert_allclose(W, expected, atol=1e-5)
    np.testing.assert_allclose(duals.alphas[: duals.counts[0]], values[[True, True, *(values[2:] > 0)]], atol=1e-5)


def test_polishing_keeps_zero_weights():
    X, Y = sparse(80, 30, seed=7), labels_for(80, 8, seed=8)
    documents, solver = all_documents(X), FrankWolfeSolver(penalty=0.3, select=2)
    duals, W = DualVariables.from_labels(Y, 2), np.zeros((len(documents.columns), 8), np.float32)
    solver.train_part(documents, duals, W, 0, 1)
    before = W.copy()
    threshold_weights(W, np.float32(0.3), False)
    np.testing.assert_array_equal(W, np.where(np.abs(before) > 0.3, before, 0))
    support = W != 0
    solver.polish(documents, duals, W, 0)
    assert (W[~support] == 0).all()
    assert (W[support] != before[support]).any()
    threshold_weights(before, np.float32(0.3), True)
    assert (before[~support] == 0).all()


# Methods


TEXTS, TAGS = make_planted_corpus(800, seed=1)


def weights_kept(classifier: Classifier) -> int:
    return sum(np.count_nonzero(tree.entries) for tree in classifier.tagger_.model.trees)


def test_l1_penalty_keeps_fewer_weights_than_pruning():
    methods = (DiSMEC(), ProXML(), PPDSparse(), PDSparse())
    kept = {type(method): weights_kept(Classifier(method).fit(TEXTS, TAGS, run=ONE)) for method in methods}
    assert kept[DiSMEC] > kept[ProXML] > 1.5 * max(kept[PPDSparse], kept[PDSparse])
    more = weights_kept(Classifier("ppd_sparse", penalty=0.3).fit(TEXTS, TAGS, run=ONE))
    assert 0 < more < kept[PPDSparse]


def test_proxml_weighs_own_documents_by_inverse_propensity():
    """A common label has a smaller weight than a rare one, and document weights count as repeated documents."""
    X, rng = sparse(300, 30, seed=0), np.random.default_rng(1)
    Y = csr_array((rng.random((300, 2)) < [0.3, 0.01]).astype(np.float32))
    data = Dataset.from_matrix(X, Y)
    common, rare = ProXML().inverse_propensities(data)
    assert 1 < common < rare
    np.testing.assert_allclose([common, rare], Propensity().inverse(np.asarray(Y.sum(axis=0)).ravel(), 300))
    amazon = ProXML(preset="amazon").inverse_propensities(data)
    np.testing.assert_allclose(amazon, Propensity(A=0.6, B=2.6).inverse(np.asarray(Y.sum(axis=0)).ravel(), 300))
    doubled = replace(data, weights=np.full(300, 2, np.float32))
    np.testing.assert_allclose(
        ProXML().inverse_propensities(doubled), Propensity().inverse(2 * np.asarray(Y.sum(axis=0)).ravel(), 600)
    )


def test_pd_sparse_resumes_from_a_checkpoint(tmp_path):
    method = {"max_passes": 12, "patience": 12}
    whole = Classifier("pd_sparse", **method).fit(TEXTS, TAGS, run=ONE)
    whole.save(tmp_path / "whole")
    calls = []

    def stops(self, score):
        calls.append(score)
        if len(calls) == 30:
            raise KeyboardInterrupt
        return genuine(self, score)

    genuine = pd_sparse.PDSparseState.update_best
    with patch.object(pd_sparse.PDSparseState, "update_best", stops), pytest.raises(KeyboardInterrupt):
        Classifier("pd_sparse", **method).fit(TEXTS, TAGS, run=Run(threads=1, checkpoint=tmp_path / "kept"))
    resumed = Run(threads=2, checkpoint=tmp_path / "kept")
    resumed.checkpoint.release()
    with patch.object(pd_sparse.PDSparseState, "update_best", autospec=True, side_effect=genuine) as judged:
        Classifier("pd_sparse", **method).fit(TEXTS, TAGS, run=resumed).save(tmp_path / "resumed")
    assert judged.call_count == 12 * PASS_PARTS - pd_sparse.CHECKPOINT_INTERVAL_PARTS
    assert filecmp.cmp(tmp_path / "whole" / "arrays.safetensors", tmp_path / "resumed" / "arrays.safetensors", False)


def test_pd_sparse_rejects_weights_beyond_memory():
    data = Dataset.from_matrix(sparse(50, 30, seed=0), labels_for(50, 8, seed=1))
    with patch("xmtc.core.memory.get_memory_limit", lambda: 100.0), pytest.raises(XmtcError, match="use ppd_sparse"):
        PDSparse().fit(data, run=ONE)


def test_pd_sparse_uses_validation_documents():
    data = Dataset.from_matrix(sparse(80, 30, seed=0), labels_for(80, 5, seed=1))
    model = PDSparse(max_passes=2).fit(data.select_rows(np.arange(60)), data.select_rows(np.arange(60, 80)), ONE)
    assert model.predict(data, 3, ONE).labels.shape == (80, 3)

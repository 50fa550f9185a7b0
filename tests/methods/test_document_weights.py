"""Weights of documents as in scikit-learn: weight 2 equals the document twice, weight 0 its removal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from test_solver import labels_for, solve_by_reference, sparse

from xmtc import Dataset, Method, Run, XmtcError
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.dataset import Bag
from xmtc.core.sparse import CompactMatrix, normalise_rows
from xmtc.labels.vectors import LabelVectors
from xmtc.linear.solver import Solver
from xmtc.methods.ensemble.consensus import Consensus
from xmtc.methods.ensemble.ensemble import Ensemble
from xmtc.methods.label_tree.bonsai import Bonsai
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.label_tree.plt import PLT
from xmtc.methods.one_vs_all.dismec import DiSMEC
from xmtc.storage.form import is_equal
from xmtc.testing import ONE_THREAD

# trained to convergence, with all weights kept: only rounding to float32 and the 16 bits of a model differs
EXACT = {"eps": 1e-6, "max_passes": 3000, "min_weight": 0.0}
METHODS = {
    "parabel": Parabel(max_leaf=3, **EXACT),
    "matched": Parabel(max_leaf=3, n_trees=1, match_negatives=True, **EXACT),
    "bonsai": Bonsai(max_leaf=3, arity=3, **EXACT),
    "joint": Bonsai(max_leaf=3, arity=3, space="joint", **EXACT),
    "plt": PLT(max_leaf=3, arity=4, **EXACT),
    "dismec": DiSMEC(**EXACT),
}


def some_data(n_docs: int = 90, n_labels: int = 8) -> Dataset:
    rng = np.random.default_rng(5)
    Y = csr_array((rng.random((n_docs, n_labels)) < 0.3).astype(np.float32))
    X = Y.toarray() @ (rng.random((n_labels, 30)) < 0.3) + (rng.random((n_docs, 30)) < 0.2)
    return Dataset.from_matrix(normalise_rows(csr_array(X.astype(np.float32))), Y)


DATA = some_data()
TIMES = np.random.default_rng(6).integers(0, 4, DATA.n_docs)  # how often each document is repeated


def weighted(data: Dataset, weights: np.ndarray) -> Dataset:
    return replace(data, weights=weights)


@pytest.mark.parametrize("name", METHODS)
def test_weight_equals_repeated_documents(name):
    """Weights 0 to 3 equal repeated documents."""
    method, repeated = METHODS[name], DATA.select_rows(np.repeat(np.arange(DATA.n_docs), TIMES))
    one, other = method.fit(weighted(DATA, TIMES), run=ONE_THREAD), method.fit(repeated, run=ONE_THREAD)
    plain = method.fit(DATA, run=ONE_THREAD)
    result, expected, without = (model.predict(DATA, 8, ONE_THREAD) for model in (one, other, plain))
    by_label = [np.take_along_axis(p.scores, np.argsort(p.labels, axis=1), axis=1) for p in (result, expected, without)]
    np.testing.assert_allclose(by_label[0], by_label[1], atol=2e-3)
    assert np.abs(by_label[0] - by_label[2]).max() > 0.05  # the weights change the result


@pytest.mark.parametrize("name", METHODS)
def test_weight_0_equals_removal_bit_for_bit(name):
    method, there = METHODS[name], np.arange(DATA.n_docs) % 3 > 0
    one = method.fit(weighted(DATA, there), run=ONE_THREAD)
    assert is_equal(one, method.fit(DATA.select_rows(there), run=ONE_THREAD))


@pytest.mark.parametrize("name", METHODS)
def test_scaling_all_weights_equals_scaling_C(name):
    """Label vectors are normalised, so the trees are the same."""
    method = METHODS[name]
    one = method.fit(weighted(DATA, np.full(DATA.n_docs, 1.5)), run=ONE_THREAD).predict(DATA, 8, ONE_THREAD)
    other = replace(method, C=1.5 * method.C).fit(DATA, run=ONE_THREAD).predict(DATA, 8, ONE_THREAD)
    np.testing.assert_allclose(one.scores, other.scores, atol=2e-3)


def test_weighted_squared_hinge_equals_liblinear():
    X, Y, weights = sparse(80, 40, seed=1), labels_for(80, 3, seed=2), np.random.default_rng(3).random(80) + 0.1
    solver = Solver(eps=1e-5, max_passes=5000)
    result = solver.fit(X, np.arange(80), Y, weights.astype(np.float32))
    for label in range(3):
        y = Y[:, [label]].toarray().ravel()
        reference = LinearSVC(tol=1e-6, max_iter=100000, random_state=0).fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(result.W[:-1, label], reference.coef_[0][result.features], atol=2e-3)


def test_weighted_logistic_loss_equals_scikit_learn():
    X, Y, weights = sparse(80, 40, seed=3), labels_for(80, 2, seed=4), np.random.default_rng(5).random(80) + 0.1
    result = Solver("logistic", 10.0, eps=1e-6, max_passes=5000).fit(X, np.arange(80), Y, weights.astype(np.float32))
    with_constant = np.hstack([X.toarray(), np.ones((80, 1))])
    for label in range(2):
        reference = LogisticRegression(C=10.0, fit_intercept=False, tol=1e-10, max_iter=10000)
        expected = reference.fit(with_constant, Y[:, [label]].toarray().ravel(), sample_weight=weights).coef_[0]
        np.testing.assert_allclose(result.W[:-1, label], expected[result.features], atol=2e-2)
        np.testing.assert_allclose(result.W[-1, label], expected[-1], atol=2e-2)


@pytest.mark.parametrize("is_logistic", [False, True])
@pytest.mark.parametrize("n_labels", [5, 2])
def test_weighted_solver_equals_numpy(n_labels, is_logistic):
    X, rng = sparse(43, 20, seed=5), np.random.default_rng(6)
    signs = np.where(rng.random((43, n_labels)) < 0.4, 1, -1).astype(np.float32)
    weights = (rng.random(43) * 3 + 0.1).astype(np.float32)
    documents = CompactMatrix(
        X.indptr.astype(np.int64), X.indices.astype(np.uint32), X.data, np.arange(20, dtype=np.int32)
    )
    for passes in (1, 3):
        solver = Solver("logistic" if is_logistic else "squared_hinge", C=0.7, eps=0, max_passes=passes, seed=9)
        plain = solve_by_reference(X.toarray(), signs, is_logistic, 0.7, passes, seed=9, weights=weights)
        np.testing.assert_allclose(solver.solve(documents, signs, weights), plain, atol=1e-4)


@pytest.mark.parametrize("space", ["from_documents", "from_labels", "from_both"])
def test_label_vectors_use_document_weights(space):
    repeated = DATA.select_rows(np.repeat(np.arange(DATA.n_docs), TIMES))
    result = getattr(LabelVectors, space)(weighted(DATA, TIMES).drop_zero_weights())
    expected = getattr(LabelVectors, space)(repeated)
    np.testing.assert_allclose(result.matrix.toarray(), expected.matrix.toarray(), atol=1e-6)


def test_consensus_accepts_weights_if_all_members_do():
    both = Consensus((Parabel(), DiSMEC()))
    assert both.has_weight_support
    assert Ensemble(Parabel()).has_weight_support
    assert not replace(both, calibrated=True).has_weight_support
    assert not Consensus((Parabel(), Weightless())).has_weight_support
    there = np.arange(DATA.n_docs) % 3 > 0
    small = Consensus((METHODS["parabel"], METHODS["dismec"]))
    assert is_equal(
        small.fit(weighted(DATA, there), run=ONE_THREAD), small.fit(DATA.select_rows(there), run=ONE_THREAD)
    )


@dataclass(frozen=True)
class Weightless(Method):
    """Method that does not declare support for weights."""

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run):
        assert data.weights is None


def test_methods_without_weight_support_reject_weights():
    Weightless().fit(DATA)
    with pytest.raises(XmtcError) as error:
        Weightless().fit(weighted(DATA, TIMES))
    assert str(error.value) == (
        "Weightless does not support document weights; omit sample_weight, or use a method that supports them, such as "
        "parabel or dismec."
    )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "The weights have shape (3,) and type float64; expected one number for each of the 90"),
        (np.ones((90, 1)), "have shape (90, 1)"),
        (["a"] * 90, "type <U1"),
        (np.where(np.arange(90) == 7, -1.0, 1.0), "The weight of document 7 is -1; expected 0, or a finite number"),
        (np.where(np.arange(90) == 7, np.nan, 1.0), "The weight of document 7 is nan"),
        (np.where(np.arange(90) == 7, 1e300, 1.0), "The weight of document 7 is inf"),
        (
            np.where(np.arange(90) == 7, 1e-39, 1.0),
            "The weight of document 7 is 1e-39; expected 0, or a finite number from 1e-12 to",
        ),
        (
            np.where(np.arange(90) == 7, 1e37, 1.0),
            "The weight of document 7 is 1e+37; expected 0, or a finite number from 1e-12 to",
        ),
        (np.zeros(90), "All documents have zero weight"),
    ],
)
def test_invalid_weights_are_rejected(weights, message):
    with pytest.raises(XmtcError) as error:
        weighted(DATA, weights)
    assert message in str(error.value)


def test_selected_documents_keep_their_weights():
    data = weighted(DATA, np.arange(90))
    assert data.weights.dtype == np.float32
    assert data.select_rows(np.array([5, 2])).weights.tolist() == [5, 2]
    assert data.keep_views(["columns"]).weights is data.weights
    assert data.drop_zero_weights().weights.tolist() == list(range(1, 90))
    assert DATA.drop_zero_weights() is DATA
    with pytest.raises(XmtcError, match="All documents have zero weight"):
        DiSMEC().fit(data.select_rows(np.array([0])))


def test_fingerprint_contains_weights_only_if_set(tmp_path):
    assert DATA.fingerprint() == "33b78339bc4551c4f5969095b1ec036f"  # the fingerprint of data without weights
    assert len({DATA.fingerprint(), weighted(DATA, TIMES).fingerprint(), weighted(DATA, TIMES + 1).fingerprint()}) == 3
    run = Run(threads=1, checkpoint=Checkpoint(tmp_path / "parts"))
    METHODS["dismec"].fit(weighted(DATA, TIMES), run=run)
    with pytest.raises(XmtcError, match="pieces of a training with other data or parameters"):
        METHODS["dismec"].fit(DATA, run=run)


def test_weights_are_shared_by_views():
    twice = Dataset({"a": Bag(DATA.X), "b": Bag(vstack([DATA.X]))}, DATA.Y, TIMES)
    assert twice.keep_views(["b"]).weights.tolist() == TIMES.tolist()

"""Convergence on dense and unscaled features: accuracy of scikit-learn's solvers, passes and warnings."""

from __future__ import annotations

import numpy as np
import pytest
from commands import invoke
from planted import make_planted_corpus
from scipy.sparse import csr_array
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from xmtc import Classifier
from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.linear.newton import NewtonProblem, add_bias_column, solve_by_newton
from xmtc.linear.solver import Solver
from xmtc.methods.label_tree.plt import PLT
from xmtc.methods.one_vs_all.dismec import DiSMEC

ONE = Run(threads=1)


@pytest.fixture(scope="module")
def dense() -> tuple[np.ndarray, np.ndarray]:
    """Return standardised features and labels; the last quarter is for evaluation."""
    X, Y = make_multilabel_classification(2000, n_features=60, n_classes=12, n_labels=3, random_state=0)
    return StandardScaler().fit_transform(X).astype(np.float32), Y


def measure_precision(Y: np.ndarray, scores: np.ndarray) -> float:
    return float(Y[np.arange(len(Y)), scores.argmax(axis=1)].mean())


@pytest.mark.parametrize("C", [1.0, 10.0])
@pytest.mark.parametrize(
    ("method", "reference"),
    [
        (DiSMEC(min_weight=0), LinearSVC(dual=False, max_iter=10_000)),
        (PLT(min_weight=0, n_trees=1, max_leaf=100), LogisticRegression(max_iter=10_000)),
    ],
)
def test_dense_features_reach_the_accuracy_of_scikit_learn(dense, method, reference, C):
    X, Y = dense
    model = method.replace(C=C).fit(Dataset.from_matrix(X[:1500], Y[:1500]), run=ONE)
    ranked = model.predict(Dataset.from_matrix(X[1500:]), 1, ONE)
    found = float(Y[1500:][np.arange(500), ranked.labels[:, 0]].mean())
    trained = OneVsRestClassifier(reference.set_params(C=C)).fit(X[:1500], Y[:1500])
    compute_scores = getattr(trained, "decision_function", None) or trained.predict_proba
    assert found == pytest.approx(measure_precision(Y[1500:], compute_scores(X[1500:])), abs=0.015)


@pytest.mark.parametrize("scale", [0.02, 1.0, 50.0])
@pytest.mark.parametrize(
    ("method", "reference"), [("parabel", LinearSVC()), ("dismec", LinearSVC()), ("plt", LogisticRegression(C=10))]
)
def test_features_of_any_scale_reach_the_accuracy_of_scikit_learn(dense, method, reference, scale):
    """Check that weights are pruned relative to the scale of the features: larger features have smaller weights."""
    X, Y = scale * dense[0], dense[1]
    trained = OneVsRestClassifier(reference.set_params(max_iter=10_000)).fit(X[:1500], Y[:1500])
    classifier = Classifier(method, unit_length=False, calibrate=False).fit(X[:1500], Y[:1500], run=ONE)
    expected = measure_precision(Y[1500:], trained.decision_function(X[1500:]))
    assert classifier.evaluate(X[1500:], Y[1500:], "P@1")["P@1"] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_newton_finds_the_minimum_for_dense_and_sparse_documents(loss, dense):
    X, signs = dense[0][:300, :20].astype(np.float64), np.where(dense[1][:300, :4] > 0, 1.0, -1.0)
    costs = np.random.default_rng(0).uniform(0.5, 3, signs.shape)
    sparse = csr_array((np.random.default_rng(1).random((300, 200)) < 0.02) * 3.0)
    for documents in (csr_array(X), sparse):
        problem = NewtonProblem(add_bias_column(documents), signs, costs, loss == "logistic")
        W, progress = solve_by_newton(problem, 1e-8, 100)
        margins = signs * (documents @ W[:-1] + W[-1])
        slopes = problem.compute_slopes(margins) * signs
        gradient = W + np.vstack([documents.T @ slopes, slopes.sum(axis=0)])
        assert np.abs(gradient).max() < 1e-4 * np.abs(slopes).sum()
        assert progress[1] == 0


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_labels_of_all_documents_or_of_none_have_their_bias(loss, n_labels):
    """Check labels whose first bias, the mean of their signs, leaves no loss: the first pass takes no step."""
    X = csr_array(np.eye(30, dtype=np.float32))
    positives = csr_array(np.repeat([[1.0, 0.0, 1.0][:n_labels]], 30, axis=0))
    dual, primal = (Solver(loss, eps=1e-3, is_primal=p).fit(X, np.arange(30), positives).W for p in (False, True))
    np.testing.assert_allclose(dual[-1], primal[-1], atol=0.1)
    assert (np.sign(dual[-1]) == [1, -1, 1][:n_labels]).all()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_a_node_without_documents_has_zero_weights_and_has_converged(loss, dense):
    positives = csr_array((0, 3), dtype=np.float32)
    result = Solver(loss, is_primal=True).fit(csr_array(dense[0]), np.empty(0, np.int64), positives)
    assert result.W.shape == (1, 3)
    assert not result.W.any()
    assert (result.convergence.n_passes, result.convergence.n_unconverged) == (0, 0)


@pytest.mark.parametrize("method", ["parabel", "plt", "dismec"])
def test_weights_of_documents_count_as_copies_for_dense_features(method, dense):
    X, Y = dense[0][:300], dense[1][:300]
    weights = np.arange(300) % 3 + 1
    common = {"calibrate": False, "eps": 1e-4, "min_weight": 0.0}
    weighted = Classifier(method, **common).fit(X, Y, sample_weight=weights, run=ONE)
    copied = Classifier(method, **common).fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0), run=ONE)
    np.testing.assert_allclose(weighted.predict_proba(X), copied.predict_proba(X), atol=0.02)


@pytest.mark.parametrize("method", ["parabel", "bonsai", "plt", "dismec"])
def test_too_few_passes_warn_and_are_counted(method, dense):
    X, Y = dense
    with pytest.warns(ConvergenceWarning, match=r"classifiers did not converge in 1 passes; raise max_passes"):
        classifier = Classifier(method, max_passes=1, C=1e4, calibrate=False).fit(X, Y, run=ONE)
    assert classifier.n_iter_ == 1
    assert Classifier(method, calibrate=False).fit(X, Y, run=ONE).n_iter_ < 20


@pytest.mark.parametrize("method", ["parabel", "bonsai", "plt", "dismec", "proxml"])
def test_ordinary_texts_converge_within_the_usual_passes(method):
    classifier = Classifier(method).fit(*make_planted_corpus(600, seed=0), run=ONE)
    assert 1 < classifier.n_iter_ <= 20


def test_a_method_without_a_linear_solver_has_no_passes():
    classifier = Classifier("parabel").fit(*make_planted_corpus(200, seed=0), run=ONE)
    classifier.set_params(method="fastxml", n_trees=1).fit(*make_planted_corpus(200, seed=0), run=ONE)
    assert not hasattr(classifier, "n_iter_")


def test_dense_models_have_the_same_bytes_for_any_number_of_threads(dense, tmp_path):
    for threads in (1, 2):
        Classifier("plt").fit(*dense, run=Run(threads=threads)).save(tmp_path / str(threads))
    one, two = ((tmp_path / name / "arrays.safetensors").read_bytes() for name in "12")
    assert one == two


def test_sparse_features_of_unit_length_use_coordinate_descent(dense):
    sparse = csr_array(np.eye(50, dtype=np.float32))
    assert not Solver().for_features(sparse).is_primal
    assert Solver().for_features(csr_array(3 * sparse)).is_primal
    assert Solver().for_features(csr_array(dense[0])).is_primal


def test_the_command_line_shows_the_warning_as_one_line(dense, tmp_path):
    X, Y = dense
    lines = (
        ",".join(map(str, np.flatnonzero(labels))) + " " + " ".join(f"{i}:{value:.4f}" for i, value in enumerate(row))
        for row, labels in zip(X[:500], Y[:500], strict=True)
    )
    (tmp_path / "train.txt").write_text(f"500 {X.shape[1]} {Y.shape[1]}\n" + "\n".join(lines) + "\n")
    done = invoke("train", "train.txt", "-m", "plt", "-p", "max_passes=1", "-p", "C=10000", "-o", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.decode().splitlines() if "converge" in line]
    assert len(warnings) == 1
    assert b"features of each document were scaled to unit length; unit_length=false keeps" in done.stderr
    assert warnings[0].startswith("Warning: ")
    assert "Warning(" not in done.stderr.decode()
    assert b"warnings.warn" not in done.stderr

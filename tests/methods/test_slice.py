"""Slice: candidates by centroids, training on confused documents, and the combination of both models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from xmtc.core.dataset import Dataset
from xmtc.core.predictions import NO_LABEL
from xmtc.core.run import Run
from xmtc.methods.one_vs_all.slice import Slice, find_confused_documents
from xmtc.methods.one_vs_all.slice_model import CentroidSearch

ONE = Run(threads=1, device="cpu")
N_DOCS, N_LABELS, WIDTH, N_CANDIDATES = 300, 60, 12, 8


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Documents near the vectors of their labels; the last label has no document."""
    rng = np.random.default_rng(0)
    labels = rng.standard_normal((N_LABELS, WIDTH))
    Y = rng.random((N_DOCS, N_LABELS)) < 0.03
    Y[:, -1] = False
    X = Y @ labels + 0.7 * rng.standard_normal((N_DOCS, WIDTH))
    return Dataset.from_matrix(X / np.linalg.norm(X, axis=1, keepdims=True), csr_array(Y.astype(np.float32)))


@pytest.fixture(scope="module")
def model(data):
    return Slice(candidates=N_CANDIDATES, eps=1e-6, max_passes=100).fit(data, run=ONE)


def test_centroids_are_normalised_sums_of_documents(data, model):
    sums = data.Y.toarray().T @ data.X.toarray()
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    np.testing.assert_allclose(model.centroids, sums / np.where(lengths > 0, lengths, 1), atol=1e-3)
    assert not model.centroids[-1].any()


def test_a_classifier_sees_its_documents_and_those_that_it_is_a_wrong_candidate_of(data, model):
    X, Y = data.X.toarray().astype(np.float64), data.Y.toarray()
    cosines = X @ model.centroids.astype(np.float64).T
    cosines[:, -1] = -np.inf  # without documents
    is_candidate = cosines >= np.sort(cosines, axis=1)[:, [-N_CANDIDATES]]
    confused = find_confused_documents(data.X.toarray(), CentroidSearch(model.centroids, 0, 0), N_CANDIDATES, ONE)
    np.testing.assert_array_equal(confused.toarray() > 0, is_candidate)
    for label in (0, 7, 33):
        rows = np.flatnonzero((Y[:, label] > 0) | is_candidate[:, label])
        documents, signs = np.hstack([X[rows], np.ones((len(rows), 1))]), 2 * Y[rows, label] - 1

        def objective(w, documents=documents, signs=signs):
            slack = np.maximum(0, 1 - signs * (documents @ w))
            return w @ w / 2 + slack @ slack, w - 2 * documents.T @ (signs * slack)

        best = minimize(objective, np.zeros(WIDTH + 1), jac=True, method="L-BFGS-B", options={"ftol": 1e-14})
        found = np.append(model.weights[label], model.biases[label]).astype(np.float64)
        np.testing.assert_allclose(found, best.x, atol=5e-3)
    assert not model.weights[-1].any()


def test_scores_are_the_mean_of_both_probabilities_of_the_candidates(data, model):
    X = data.X.toarray().astype(np.float64)
    found = model.predict(data, N_LABELS, ONE)
    lengths = np.linalg.norm(np.column_stack([model.weights, model.biases]).astype(np.float64), axis=1)
    assert model.scale == pytest.approx(lengths[:-1].mean(), rel=1e-3)
    cosines, margins = X @ model.centroids.astype(float).T, X @ model.weights.astype(float).T + model.biases
    expected = (expit(margins) + expit(model.scale * cosines)) / 2
    assert ((found.labels >= 0).sum(axis=1) == N_CANDIDATES).all()
    for row in range(N_DOCS):
        own = found.labels[row][found.labels[row] != NO_LABEL]
        np.testing.assert_allclose(found.scores[row][: len(own)], expected[row, own], rtol=1e-5)
    every = model.to_exhaustive().predict(data, N_LABELS, ONE)
    assert set(every.labels[0]) == {NO_LABEL, *range(N_LABELS - 1)}


def test_an_index_finds_the_same_candidates(data, model):
    pytest.importorskip("usearch", reason="needs usearch: pip install 'xmtc[neighbours]'")
    approximate = Slice(candidates=N_CANDIDATES, search="approximate", eps=1e-6, max_passes=100).fit(data, run=ONE)
    assert (approximate.edges, approximate.ef, model.edges) == (100, 300, 0)
    expected, found = (which.predict(data, 3, ONE) for which in (model, approximate))
    assert (expected.labels == found.labels).mean() > 0.99
    alone = approximate.predict(data.select_rows(np.array([4])), 3, ONE)
    np.testing.assert_array_equal(alone.labels[0], found.labels[4])


def test_explanation_sums_to_the_mean_of_the_log_odds(data, model):
    document, label = data.select_rows(np.array([5])), 9
    explanation, x = model.explain(document, label), document.X.toarray()[0]
    margin = x @ model.weights[label] + model.biases[label]
    cosine = x @ model.centroids[label]
    assert explanation.weights.sum() + explanation.bias == pytest.approx((margin + model.scale * cosine) / 2, rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"edges": -1}, "a negative size"),
        ({"scale": float("nan")}, "no finite scale"),
        ({"centroids": np.zeros((N_LABELS, WIDTH - 1), np.float16)}, "its centroids have the shape"),
        ({"weights": np.full((N_LABELS, WIDTH), np.inf, np.float16)}, "its weights are not finite"),
        ({"biases": np.zeros(3, np.float32)}, "3 biases; expected 60"),
    ],
)
def test_damaged_model_is_refused(changes, problem, model):
    model.check()
    with pytest.raises(ValueError, match=problem):
        replace(model, **changes).check()

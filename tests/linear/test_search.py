"""Search of label trees: the same labels for every k, and long lists of labels."""

from __future__ import annotations

import numpy as np
import pytest

from xmtc.core.dataset import Dataset
from xmtc.core.label_masks import predict_allowed
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.ranking_steps import extend_ranking, list_steps
from xmtc.core.run import Run
from xmtc.linear.search import MAX_INSERTION_LABELS, add_ranked, sort_ranked
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.one_vs_all.dismec import DiSMEC

ONE = Run(threads=1)
N_LABELS = 1500


@pytest.fixture(scope="module")
def data() -> Dataset:
    rng = np.random.default_rng(0)
    X, Y = (rng.random((3000, 200)) < 0.04).astype(np.float32), np.zeros((3000, N_LABELS), np.float32)
    weights = rng.normal(size=(200, N_LABELS))
    np.put_along_axis(Y, np.argsort(-X @ weights, axis=1)[:, :3], 1, axis=1)
    Y[np.arange(3000), np.arange(3000) % N_LABELS] = 1
    return Dataset.from_matrix(X, Y)


@pytest.mark.parametrize("method", [Parabel(max_leaf=20), Parabel(max_leaf=20, n_trees=1), DiSMEC()])
def test_the_first_labels_are_the_same_for_every_k(data, method):
    model, documents = method.fit(data, run=ONE), data.select_rows(np.arange(100)).copy_with(Y=None)
    longest = model.predict(documents, N_LABELS, ONE)
    assert (np.diff(longest.scores, axis=1) <= 0).all()
    for k in (1, 5, 20, 21, 99, 100, 101, 300, 1000, 1001):
        found = model.predict(documents, k, ONE)
        np.testing.assert_array_equal(found.labels, longest.labels[:, :k])
        np.testing.assert_array_equal(found.scores, longest.scores[:, :k])


def test_the_first_allowed_labels_are_the_same_for_every_k(data):
    model, documents = Parabel(max_leaf=20).fit(data, run=ONE), data.select_rows(np.arange(100)).copy_with(Y=None)
    allowed = np.arange(N_LABELS) % 50 == 0
    longest = predict_allowed(model, documents, 30, allowed, ONE)
    assert (longest.labels != NO_LABEL).all()
    for k in (1, 3, 10):
        found = predict_allowed(model, documents, k, allowed, ONE)
        np.testing.assert_array_equal(found.labels, longest.labels[:, :k])
        np.testing.assert_array_equal(found.scores, longest.scores[:, :k])


@pytest.mark.parametrize("size", [1, MAX_INSERTION_LABELS, MAX_INSERTION_LABELS + 1, 700, 1500])
def test_the_best_items_of_a_long_list_are_sorted_by_score_and_number(size):
    rng = np.random.default_rng(size)
    scores, numbers = rng.integers(0, 50, 1000).astype(np.float32), rng.permutation(1000)
    best, items, n = np.empty(size, np.float32), np.empty(size, np.int32), 0
    for score, number in zip(scores, numbers, strict=True):
        n = add_ranked(score, number, best, items, n)
    sort_ranked(best, items, n)
    expected = np.lexsort((numbers, -scores))[:size]
    assert n == min(size, 1000)
    np.testing.assert_array_equal(items[:n], numbers[expected])
    np.testing.assert_array_equal(best[:n], scores[expected])


def test_steps_grow_by_ten_from_a_hundred():
    assert [list_steps(k, 20) for k in (1, 20, 21, 100, 101)] == [[20], [20], [20, 100], [20, 100], [20, 100, 1000]]
    assert list_steps(2000, 100) == [100, 1000, 10_000]


def test_a_deeper_ranking_adds_labels_with_at_most_the_last_score():
    first = Predictions([[7, 3], [5, -1]], [[0.6, 0.4], [0.2, 0]])
    deeper = Predictions([[3, 9, 7, 1], [5, 2, -1, -1]], [[0.7, 0.5, 0.3, 0.1], [0.3, 0.1, 0, 0]])
    found = extend_ranking(first, deeper, 4)
    assert found.labels.tolist() == [[7, 3, 9, 1], [5, 2, -1, -1]]
    np.testing.assert_allclose(found.scores, [[0.6, 0.4, 0.4, 0.1], [0.2, 0.1, 0, 0]], rtol=1e-6)

"""Weights of 8 bits: their values, the search, the validation and updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.linear.tree import MAX_BYTE_SLOTS
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.one_vs_all.dismec import DiSMEC

ONE = Run(threads=1)
N_LABELS = MAX_BYTE_SLOTS + 50


@pytest.fixture(scope="module")
def data() -> Dataset:
    rng = np.random.default_rng(0)
    share = np.where(np.arange(200) % 2, 0.06, 0.004)  # of the documents; rare features have few weights
    X, Y = (rng.random((2000, 200)) < share).astype(np.float32), np.zeros((2000, N_LABELS), np.float32)
    np.put_along_axis(Y, np.argsort(-X @ rng.normal(size=(200, N_LABELS)), axis=1)[:, :3], 1, axis=1)
    Y[np.arange(2000), np.arange(2000) % N_LABELS] = 1
    return Dataset.from_matrix(X, Y)


METHODS = {"tree": Parabel(max_leaf=40, n_trees=1, min_weight=0.6), "flat": DiSMEC(min_weight=0.5)}


@pytest.fixture(scope="module", params=METHODS)
def models(request, data):
    """The same method with weights of 16 and of 8 bits. The flat model has slots above MAX_BYTE_SLOTS."""
    method = METHODS[request.param]
    return method.fit(data, run=ONE), method.replace(precision=8).fit(data, run=ONE)


def to_dense(tree, chunk: int, n_features: int) -> np.ndarray:
    weights = np.zeros((tree.slots[chunk + 1] - tree.slots[chunk], n_features), np.float32)
    for slot in range(len(weights)):
        features, values = tree.slot_weights(chunk, int(tree.slots[chunk]) + slot)
        weights[slot, features] = values
    return weights


def test_weights_are_the_nearest_multiples_of_127ths_of_the_largest(models):
    long, short = (model.trees[0] for model in models)
    assert short.entries.dtype == np.int8
    assert short.entries.nbytes <= 0.76 * long.entries.nbytes
    for chunk in range(long.n_chunks):
        trained = to_dense(long, chunk, 200)
        unit = np.abs(trained).max() / 127
        np.testing.assert_allclose(to_dense(short, chunk, 200), np.rint(trained / unit) * unit, atol=unit / 100)


def test_both_kinds_of_rows_occur(models):
    tree = models[1].trees[0]
    lengths = [np.diff(tree.table[a:b, 1].astype(int)) for a, b in zip(tree.places[:-1], tree.places[1:], strict=True)]
    is_dense = np.concatenate([row == n for row, n in zip(lengths, np.diff(tree.slots), strict=True)])
    assert is_dense.any()
    assert (np.concatenate(lengths)[~is_dense] > 0).any()


def test_search_finds_the_labels_with_the_best_products_along_their_paths(models, data):
    model, documents = models[1].to_exhaustive(), data.select_rows(np.arange(50)).copy_with(Y=None)
    tree, X = model.trees[0], documents.X.toarray()
    logs = np.zeros((50, len(tree.bias)))
    for chunk in range(tree.n_chunks):
        own = slice(tree.slots[chunk], tree.slots[chunk + 1])
        logs[:, own] = tree.bias[own] + X @ to_dense(tree, chunk, 200).T
    logs = -np.logaddexp(0, -logs) if model.link == "logistic" else -(np.maximum(0, 1 - logs) ** 3)
    paths = [[slot for _, slot in tree.find_path(label)] for label in range(N_LABELS)]
    expected = np.stack([logs[:, path].sum(axis=1) for path in paths], axis=1)
    found = model.predict(documents, 5, ONE)
    np.testing.assert_allclose(found.scores, -np.sort(-np.exp(expected), axis=1)[:, :5], rtol=1e-3, atol=1e-6)


def test_slots_outside_of_a_chunk_are_refused(models):
    model = models[1]
    model.check()
    tree, entries = model.trees[0], model.trees[0].entries.copy()
    lengths = np.diff(tree.table[: tree.places[1], 1].astype(int))
    cell = int(np.flatnonzero((lengths > 0) & (lengths < tree.slots[1]))[0])
    start = int(tree.table[cell, 1])
    entries[start : start + 2] = -1  # slot 255, or with two bytes 65,535
    with pytest.raises(ValueError, match="do not fit together"):
        replace(model, trees=(replace(tree, entries=entries),)).check()


def test_an_update_trains_again(models, data):
    for method in (Parabel(precision=8), DiSMEC(precision=8)):
        assert method.update(models[1], change=None, run=ONE) is None

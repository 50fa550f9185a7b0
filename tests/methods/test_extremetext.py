"""extremeText's kernels beside plain NumPy; its tree, search and explanations worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array
from training_stop import TrainingStop, stop_at_pass

from xmtc import Classifier
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.predictions import NO_LABEL
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.labels.tree import LabelTree, from_groups
from xmtc.methods.embedding.extremetext import (
    ExtremeText,
    ExtremeTextModel,
    ExtremeTextTrainer,
    compute_feature_shares,
    flatten_tree,
    list_label_nodes,
    list_parents,
)
from xmtc.methods.embedding.fasttext_kernels import PARTIAL_SUMS, multiply_vectors

ONE = Run(threads=1)
# labels 0 to 5: node 1 has 3 and 0, node 2 has 5, 1 and 4, and label 2 is below the root
TREE = LabelTree(from_groups([[np.array([0, 1, 2])], [np.array([3, 0]), np.array([5, 1, 4]), np.array([2])]]).levels)
STARTS, LABELS = flatten_tree(TREE)
X = csr_array(np.array([[0.5, 0, 1.5, 0], [0, 2, 0, -2], [1, 1, 1, 1], [0, 0, 0, 0]], np.float32))
Y = csr_array(np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1]], np.float32))
DATA = Dataset.from_matrix(X, Y)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def model_of(d: int = 6) -> ExtremeTextModel:
    rng = np.random.default_rng(2)
    vectors, outputs = (rng.normal(size=(n, d)).astype(np.float32) for n in (4, len(LABELS)))
    return ExtremeTextModel(
        n_labels=6, views=DATA.sizes, starts=STARTS, labels=LABELS, vectors=vectors, outputs=outputs
    )


def paths() -> list[list[int]]:
    """Return the nodes on the path to each label, without the root."""
    found: dict[int, list[int]] = {}

    def walk(node: int, path: list[int]) -> None:
        if LABELS[node] != NO_LABEL:
            found[LABELS[node]] = path
        for child in range(STARTS[node], STARTS[node + 1]):
            walk(child, [*path, child])

    walk(0, [])
    return [found[label] for label in range(6)]


def test_a_tree_is_numbered_by_breadth_and_nodes_with_one_child_are_left_out():
    assert LABELS.tolist() == [-1, -1, -1, 2, 3, 0, 5, 1, 4]
    assert STARTS.tolist() == [1, 4, 6, 9, 9, 9, 9, 9, 9, 9]
    assert list_parents(STARTS).tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2]
    assert list_label_nodes(LABELS).tolist() == [5, 7, 3, 4, 8, 6]
    starts, labels = flatten_tree(from_groups([[np.array([0])], [np.array([0, 1])], [np.array([1, 0]), np.array([2])]]))
    assert (starts.tolist(), labels.tolist()) == ([1, 3, 5, 5, 5, 5], [-1, -1, 2, 1, 0])
    assert [part.tolist() for part in flatten_tree(LabelTree.flat(1))] == [[1, 1], [0]]


def test_a_document_is_the_share_of_each_of_its_features():
    expected = [[0.25, 0, 0.75, 0], [0, 0.5, 0, -0.5], [0.25] * 4, [0] * 4]
    np.testing.assert_allclose(compute_feature_shares(X).toarray(), expected)


@pytest.mark.parametrize("d", [1, 6, PARTIAL_SUMS, 2 * PARTIAL_SUMS + 5])
def test_products_of_vectors_of_any_length(d):
    h, w = np.random.default_rng(d).normal(size=(2, d)).astype(np.float32)
    lanes = np.empty(PARTIAL_SUMS, np.float32)
    assert multiply_vectors(h, w, lanes) == pytest.approx(float(h.astype(float) @ w), abs=1e-5)


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_steps_are_the_plain_ones(l2):
    trainer = ExtremeTextTrainer(ExtremeText(dimension=6, l2=l2), compute_feature_shares(X), Y, STARTS, LABELS)
    rng = np.random.default_rng(0)
    trainer.vectors, trainer.outputs = (rng.normal(size=(n, 6)).astype(np.float32) for n in (4, len(LABELS)))
    V, W, loss = trainer.vectors.astype(float), trainer.outputs.astype(float), 0.0
    docs, rates = np.array([2, 0, 1, 2]), np.array([0.5, 0.4, 0.3, 0.2], np.float32)
    for doc, rate in zip(docs, rates.astype(float), strict=True):
        x = compute_feature_shares(X).toarray()[doc]
        positive = {0} | {node for label in np.flatnonzero(Y.toarray()[doc]) for node in paths()[label]}
        below = [child for node in positive for child in range(STARTS[node], STARTS[node + 1])]
        h, y = x @ V, np.array([child in positive for child in below], float)
        p = sigmoid(W[below] @ h)
        loss -= np.log(np.where(y == 1, p, 1 - p)).sum()
        gradient = rate * (y - p) @ W[below]
        W[below] = (1 - rate * l2) * W[below] + rate * np.outer(y - p, h)
        V += np.outer(x, gradient)
    assert trainer.step(docs, rates, rng) == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(trainer.vectors, V, atol=1e-5)
    np.testing.assert_allclose(trainer.outputs, W, atol=1e-5)


def test_the_search_finds_the_largest_products():
    model = model_of()
    model.check()
    nodes = sigmoid(compute_feature_shares(X).toarray() @ model.vectors.astype(float) @ model.outputs.T)
    expected = np.stack([nodes[:, path].prod(axis=1) for path in paths()], axis=1)
    for k in (1, 3, 6):
        result = model.predict(DATA, k, ONE)
        np.testing.assert_allclose(result.scores, -np.sort(-expected, axis=1)[:, :k], rtol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(expected, result.labels, 1), result.scores, rtol=1e-5)
    assert (result.labels[3] == [2, 3, 0, 5, 1, 4]).all()  # an empty document: every node 1/2, ties by node


def test_an_explanation_adds_up_to_the_scores_on_the_path():
    model = model_of()
    for doc in range(4):
        h = compute_feature_shares(X).toarray()[doc] @ model.vectors
        for label in range(6):
            explained = model.explain(DATA.select_rows([doc]), label)
            expected = float((model.outputs[paths()[label]] @ h).sum())
            assert explained.weights.sum() + explained.bias == pytest.approx(expected, abs=1e-5)


def test_resumed_training_has_the_same_bytes(tmp_path):
    train, small = make_planted_corpus(80, seed=1), {"dimension": 8, "epochs": 4, "l2": 0.01}
    whole = Classifier("extremetext", calibrate=False, **small).fit(*train, run=ONE).tagger_.model

    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "kept", interval_seconds=0))
    with pytest.raises(TrainingStop):
        Classifier("extremetext", calibrate=False, **small).fit(*train, run=replace(run, callbacks=stop_at_pass(3)))
    assert int(run.checkpoint.load_piece("vectors")["n_passes"]) == 2
    resumed = Classifier("extremetext", calibrate=False, **small).fit(*train, run=run).tagger_.model
    np.testing.assert_array_equal(resumed.vectors, whole.vectors)
    np.testing.assert_array_equal(resumed.outputs, whole.outputs)


def test_regularisation_shortens_the_node_vectors():
    plain, short = (ExtremeText(dimension=4, l2=l2, epochs=50).fit(DATA, run=ONE) for l2 in (0.0, 0.1))
    assert np.abs(short.outputs).sum() < np.abs(plain.outputs).sum()


def test_a_training_that_diverges_says_so():
    with pytest.raises(XmtcError, match=r"diverged with rate=1000: .*; lower the rate"):
        ExtremeText(rate=1000.0, epochs=50, dimension=4).fit(DATA, run=ONE)


def test_a_training_that_memory_cannot_hold_is_refused():
    with pytest.raises(XmtcError, match="4 vectors of features, and 7 of nodes would need"):
        ExtremeText(dimension=10**12).fit(DATA, run=ONE)


def test_labels_that_no_document_has_come_last():
    labels = np.hstack([np.zeros((4, 1)), np.ones((4, 1)), np.zeros((4, 1))])
    result = ExtremeText(dimension=4, epochs=200, rate=1.0).fit(Dataset.from_matrix(X, labels), run=ONE)
    result.check()
    assert (result.predict(DATA, 3, ONE).labels[:3, 0] == 1).all()


@pytest.mark.parametrize("l2", [0.0, 1.0])
@pytest.mark.parametrize("scale", [0.0, 1e-45, 1e14])
def test_extreme_numbers_give_scores(scale, l2):
    given = Dataset.from_matrix(scale * np.random.default_rng(0).integers(-3, 3, (40, 3)), np.eye(4)[np.arange(40) % 4])
    result = ExtremeText(dimension=4, l2=l2).fit(given, run=ONE)
    scores = result.predict(given, 4, ONE).scores
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1)).all()
    assert np.isfinite(result.explain(given.select_rows([0]), 2).weights).all()


def test_damaged_models_are_refused():
    good = model_of()
    cyclic, short, late = STARTS.copy(), STARTS.copy(), STARTS.copy()
    cyclic[1:3], short[-1], late[0] = 1, 8, 0
    twice = np.where(LABELS == 5, 4, LABELS).astype(np.int32)
    for wrong in (
        replace(good, starts=cyclic),
        replace(good, starts=short),
        replace(good, starts=late),
        replace(good, starts=STARTS[:-1]),
        replace(good, starts=np.array([1, 1], np.int64), labels=LABELS[:1]),
        replace(good, labels=twice),
        replace(good, labels=np.where(LABELS == NO_LABEL, 0, LABELS).astype(np.int32)),
        replace(good, n_labels=5),
        replace(good, vectors=good.vectors[1:]),
        replace(good, outputs=good.outputs[:, 1:]),
        replace(good, outputs=good.outputs[1:]),
    ):
        with pytest.raises(ValueError, match=r"expected|breadth-first|one leaf for each"):
            wrong.check()

"""Tests of the slots of trained label trees: unpacking, editing and reassembly."""

from __future__ import annotations

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array

from xmtc import Classifier, Document, Run, train
from xmtc.core.predictions import NO_LABEL
from xmtc.linear.slots import ROOT, TreeSlots, replace_weights, unpack_weights
from xmtc.linear.tree import LinearTree
from xmtc.methods.ensemble.calibrated_model import strip_calibration

ONE = Run(threads=1)
SETTINGS = {
    "parabel": {"max_leaf": 4, "arity": 2, "n_trees": 1},
    "bonsai": {"max_leaf": 4, "arity": 5, "n_trees": 1},
    "dismec": {},
}


@pytest.fixture(scope="module", params=SETTINGS)
def trained(request):
    classifier = Classifier(request.param, **SETTINGS[request.param]).fit(*make_planted_corpus(200, seed=0), run=ONE)
    model = strip_calibration(classifier.tagger_.model)
    return model.trees[0], model.n_features, classifier.tagger_


def find_path(slots: TreeSlots, slot: int) -> list[int]:
    path = [slot]
    while slots.parents[path[-1]] != ROOT:
        path.append(int(slots.parents[path[-1]]))
    return path


def test_unpacked_weights_and_paths_are_those_of_the_tree(trained):
    tree, n_features, _ = trained
    columns = np.arange(n_features) * 2
    weights, slots = unpack_weights(tree, 2 * n_features, columns), TreeSlots.from_tree(tree)
    for label in (0, 3, int(slots.labels.max())):
        path = tree.find_path(label)
        assert find_path(slots, path[0][1]) == [slot for _, slot in path]
        for chunk, slot in path:
            features, values = tree.slot_weights(chunk, slot)
            expected = np.zeros(2 * n_features, np.float32)
            expected[columns[features]] = values
            assert np.array_equal(weights[[slot]].toarray()[0], expected)


@pytest.mark.parametrize("precision", [8, 16])
def test_unpacked_weights_are_those_of_the_reference(trained, precision):
    method = trained[2].about["method"]
    parameters = SETTINGS[method] | {"precision": precision, "calibrate": False}
    tagger = train(documents(200), method, run=ONE, **parameters)
    tree, n_features = tagger.model.trees[0], tagger.model.n_features
    columns = np.arange(n_features) * 2
    weights, expected = (unpack(tree, 2 * n_features, columns) for unpack in (unpack_weights, unpack_reference))
    for name in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(weights, name), getattr(expected, name))


def test_memberships_follow_the_paths(trained):
    tree, _, tagger = trained
    slots, Y = TreeSlots.from_tree(tree), tagger.transform_labelled(documents()).Y
    members = slots.memberships(Y).toarray()
    scored = slots.scored(slots.memberships(Y)).toarray()
    slot_of_label = {int(label): slot for slot, label in enumerate(slots.labels) if label != NO_LABEL}
    for row in range(3):
        labels = Y[[row]].indices.tolist()
        on_paths = {slot for label in labels for slot in find_path(slots, slot_of_label[label])}
        assert set(np.flatnonzero(members[row])) == on_paths
        below = {slot for slot, parent in enumerate(slots.parents) if parent == ROOT or parent in on_paths}
        assert set(np.flatnonzero(scored[row])) == below


def documents(n_docs: int = 5) -> list[Document]:
    texts, labels = make_planted_corpus(n_docs, seed=3)
    return [Document(str(i), text, own) for i, (text, own) in enumerate(zip(texts, labels, strict=True))]


def test_a_tree_is_reassembled_from_its_slots(trained):
    tree, n_features, _ = trained
    slots, identity = TreeSlots.from_tree(tree), np.arange(n_features)
    weights = unpack_weights(tree, n_features, identity)
    nothing, everything = np.zeros(slots.n_slots, bool), np.ones(slots.n_slots, bool)
    for is_trained in (nothing, everything):
        again = replace_weights(tree, slots, weights, tree.bias, is_trained, has_same_features=True)
        for name, array in vars(tree).items():
            if isinstance(array, np.ndarray):
                tolerance = 1e-6 if name == "scale" else 0
                assert np.allclose(getattr(again, name), array, rtol=tolerance, atol=0), name


def test_labels_are_removed_and_added(trained):
    tree, n_features, _ = trained
    before = TreeSlots.from_tree(tree)
    n_labels = int(before.labels.max()) + 1
    is_label = before.labels != NO_LABEL
    shared = [int(i) for i in np.flatnonzero(is_label) if (before.parents == before.parents[i]).sum() > 1]
    gone, other = before.labels[shared[0]], before.labels[shared[-1]]
    targets = np.where(np.arange(n_labels) > gone, np.arange(n_labels) - 1, np.arange(n_labels))
    targets[gone] = NO_LABEL  # the labels after it move up, and a new one is the last
    chunk = before.chunks[shared[-1]]
    slots = before.with_labels(targets, np.array([n_labels - 1]), np.array([chunk]))
    (added,) = np.flatnonzero(slots.labels == n_labels - 1)
    (sibling,) = np.flatnonzero(slots.labels == targets[other])
    assert slots.origins[added] == -1
    assert slots.parents[added] == slots.parents[sibling]
    assert sorted(slots.labels[slots.labels != NO_LABEL]) == list(range(n_labels))
    weights = unpack_weights(tree, n_features, np.arange(n_features))
    new = replace_weights(
        tree, slots, weights[np.maximum(slots.origins, 0)], tree.bias[np.maximum(slots.origins, 0)],
        slots.origins < 0, has_same_features=True,
    )  # fmt: skip
    new.check_sizes(n_labels, n_features)
    assert find_path(TreeSlots.from_tree(new), added)[1:] == find_path(slots, sibling)[1:]


def unpack_reference(tree: LinearTree, n_features: int, columns: np.ndarray) -> csr_array:
    """Plain NumPy reference of `unpack_weights`."""
    starts = tree.table[:, 1].astype(np.int64)
    lengths = np.append(np.diff(starts), 0)
    lengths[tree.places[1:] - 1] = 0  # the last cell of a chunk has no row
    cells = np.flatnonzero(lengths)
    cells = cells[np.argsort(columns[tree.table[cells, 0]], kind="stable")]  # by feature, then by chunk
    lengths, chunks = lengths[cells], np.searchsorted(tree.places, cells, side="right") - 1
    is_dense = lengths == np.diff(tree.slots)[chunks]
    counts = np.where(is_dense, lengths, lengths // 2)
    row = np.repeat(np.arange(len(cells)), counts)
    offset = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    at = (tree.firsts[chunks] + starts[cells])[row] + np.where(is_dense[row], offset, 2 * offset)
    slots = tree.slots[chunks][row] + np.where(is_dense[row], offset, tree.entries[at])
    values = (tree.entries[at + ~is_dense[row]] * tree.scale[chunks][row]).astype(np.float32)
    used = np.flatnonzero(values)
    features = columns[tree.table[cells, 0]][row[used]]
    ends = np.concatenate([[0], np.cumsum(np.bincount(features, minlength=n_features))])
    by_feature = csr_array((values[used], slots[used], ends), shape=(n_features, len(tree.bias)))
    return csr_array(by_feature.T)

"""Tests of label vectors, label trees and tree search against hand-computed values and reference implementations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array
from test_disk_arrays import is_mapped

from xmtc.core.checkpoint import Checkpoint
from xmtc.core.dataset import Dataset, Tokens
from xmtc.core.predictions import NO_LABEL
from xmtc.core.run import Run
from xmtc.core.sparse import compact, normalise_rows
from xmtc.errors import XmtcError
from xmtc.labels import balanced_kmeans, kmeans, streaming_kmeans
from xmtc.labels.balanced_kmeans import add_labels, choose_half, halve, split_balanced, split_pieces
from xmtc.labels.kmeans import cluster_labels, k_means
from xmtc.labels.streaming_kmeans import build_label_vectors
from xmtc.labels.tree import build_balanced_trees, build_wide_trees, compress_tree, from_groups
from xmtc.labels.vectors import LabelVectors
from xmtc.linear import tree_training as training
from xmtc.linear.blocks import TrainingBlock, split_large_blocks
from xmtc.linear.model import TreeModel
from xmtc.linear.packing import (
    Chunk,
    SparseWeights,
    TreeBuilder,
    assemble_tree,
    concatenate_slots,
    group_levels,
    make_constant_weights,
    number_chunks,
    pack_tree,
)
from xmtc.linear.solver import MAX_BLOCK_LABELS, Solver
from xmtc.linear.tree import EMPTY_FEATURE_CODE, SAME_CHUNK, LinearTree, has_valid_rows
from xmtc.methods.label_tree.bonsai import Bonsai
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.label_tree.plt import PLT
from xmtc.methods.one_vs_all import base as family
from xmtc.methods.one_vs_all.dismec import DiSMEC


def matrix(rows) -> csr_array:
    return csr_array(np.array(rows, np.float32))


def test_a_label_is_the_normalised_sum_of_its_documents():
    data = Dataset.from_matrix(matrix([[1, 0], [0, 1], [3, 4]]), matrix([[1, 0, 0], [1, 1, 0], [0, 1, 0]]))
    vectors = LabelVectors.from_documents(data).matrix.toarray()
    root2, root34 = np.sqrt(2), np.sqrt(34)
    np.testing.assert_allclose(vectors, [[1 / root2, 1 / root2], [3 / root34, 5 / root34], [0, 0]], rtol=1e-6)


def test_a_label_of_sequences_of_words_is_the_normalised_sum_of_their_tf_idf():
    """Three documents: word 1 twice and word 2; word 2; an unknown word and word 1."""
    tokens = Tokens(np.array([1, 2, 1, 2, 0, 1], np.int32), np.array([0, 3, 4, 6]), 4)
    vectors = LabelVectors.from_words(tokens, matrix([[1, 0], [1, 0], [0, 1]])).matrix.toarray()
    tf, idf = np.array([[0, 1 + np.log(2), 1, 0], [0, 0, 1, 0]]), 1 + np.log(4 / 3)
    first = tf[0] * idf / np.linalg.norm(tf[0] * idf) + tf[1]
    np.testing.assert_allclose(vectors, [first / np.linalg.norm(first), [0, 1, 0, 0]], rtol=1e-6)


def test_joint_space_has_both_spaces_with_equal_weight():
    data = Dataset.from_matrix(matrix([[3, 4], [0, 1], [1, 0]]), matrix([[1, 0], [1, 1], [0, 1]]))
    joint = LabelVectors.from_both(data).matrix.toarray()
    parts = [LabelVectors.from_documents(data).matrix.toarray(), LabelVectors.from_labels(data).matrix.toarray()]
    np.testing.assert_allclose(joint, np.hstack(parts) / np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(parts[1] ** 2, [[0.8, 0.2], [0.2, 0.8]], rtol=1e-6)  # counts (2, 1) and (1, 2)


def test_halves_are_equal_and_keep_neighbours_together():
    rng = np.random.default_rng(0)
    points = np.repeat(np.eye(2), 10, axis=0) @ [[1, 0, 0], [0, 1, 0]] + 0.05 * rng.random((20, 3))
    vectors = LabelVectors(matrix(points / np.linalg.norm(points, axis=1, keepdims=True)))
    halves = halve(vectors, np.arange(20), np.random.SeedSequence(1))
    assert sorted(tuple(half) for half in halves) == [tuple(range(10)), tuple(range(10, 20))]
    assert [len(half) for half in halve(vectors, np.arange(7), np.random.SeedSequence(0))] == [4, 3]


@pytest.mark.parametrize("n", [1, 2, 3, 31, 400])
@pytest.mark.parametrize("decimals", [0, 1, 6])  # few decimals give many ties
def test_selected_half_equals_a_stable_sort(n, decimals):
    rng = np.random.default_rng(n)
    for _ in range(20):
        leaning = rng.normal(size=n).round(decimals).astype(np.float32)
        is_first = rng.random(n) < 0.5  # the initial values do not matter
        choose_half(leaning, rng.permutation(leaning), is_first)
        assert set(np.flatnonzero(is_first)) == set(np.argsort(leaning, kind="stable")[: (n + 1) // 2])


def test_halving_equals_the_reference():
    rng = np.random.default_rng(2)
    points = rng.random((31, 8)) * (rng.random((31, 8)) < 0.6) + 0.01
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    V = matrix(points)
    is_first = split_balanced(V, np.arange(31), 4, 20)
    assert set(np.flatnonzero(is_first)) == halve_by_reference(points, 4, 20)


def test_halving_in_pieces_equals_halving_with_one_thread():
    rng = np.random.default_rng(3)
    V = matrix((rng.random((200, 30)) * (rng.random((200, 30)) < 0.3)).round(1))  # sums without rounding
    at_once = split_balanced(V, np.arange(10, 190), 4, 20)
    in_pieces = split_balanced(V, np.arange(10, 190), 4, 20, min_piece_values=16)
    assert np.array_equal(in_pieces, at_once)


def halve_by_reference(points, first, second):
    """Return the members of the first cluster of balanced 2-means."""
    centres, last = points[[first, second]], -np.inf
    while True:
        order = np.argsort(points @ (centres[1] - centres[0]), kind="stable")
        sums = np.array([points[order[:16]].sum(axis=0), points[order[16:]].sum(axis=0)])
        lengths = np.linalg.norm(sums, axis=1)
        if lengths.sum() / 31 - last < balanced_kmeans.MIN_GAIN:
            return set(order[:16])
        centres, last = sums / lengths[:, None], lengths.sum() / 31


@pytest.fixture
def small_piece_size(monkeypatch):
    """Make pieces so small that some dozens of labels are split into many."""
    monkeypatch.setattr(balanced_kmeans, "MIN_PIECE_VALUES", 16)
    monkeypatch.setattr(kmeans, "MIN_PIECE_VALUES", 16)


def test_pieces_hold_every_row_once_and_about_as_many_values():
    lengths = np.random.default_rng(0).integers(0, 9, 300)
    pieces = split_pieces(lengths, min_values=16)
    assert len(pieces) == balanced_kmeans.MAX_PIECES
    assert np.concatenate([np.arange(300)[piece] for piece in pieces]).tolist() == list(range(300))
    assert max(lengths[piece].sum() for piece in pieces) <= lengths.sum() / len(pieces) + lengths.max()
    assert split_pieces(np.zeros(0, int)) == [slice(0, 0)]
    assert split_pieces(np.zeros(5, int)) == [slice(0, 5)]


@pytest.mark.parametrize("factors", [[1, 1, 1, 1, 1], [1, -1, 0, 2, -0.5]])
def test_sum_of_rows_in_pieces_equals_the_sum(factors):
    V, labels = matrix(np.random.default_rng(1).random((9, 12))), np.array([1, 7, 8, 2, 2])
    total = np.ones(12, np.float32)
    add_labels(total, V, labels, np.array(factors, np.float32), min_piece_values=16)
    np.testing.assert_allclose(total, 1 + np.array(factors) @ V.toarray()[labels], rtol=1e-5)


@pytest.mark.parametrize("piece", [16, 100_000], ids=["pieces", "whole"])
@pytest.mark.parametrize(("n_features", "density", "least"), [(9, 0.5, 0.01), (29, 0.2, 0.0)], ids=["full", "sparse"])
def test_k_means_equals_the_reference(n_features, density, least, piece):
    """Compare with the reference implementation, also if features leave a centre with their rows."""
    rng = np.random.default_rng(4)
    points = rng.random((300, n_features)) * (rng.random((300, n_features)) < density) + least
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-9)
    starts = rng.choice(300, 20, replace=False)
    result = k_means(compact(matrix(points), np.arange(300)), starts, min_piece_values=piece)
    np.testing.assert_array_equal(result, k_means_by_reference(points, starts))


def k_means_by_reference(points, starts):
    """Compute spherical k-means with NumPy."""
    centres, last = points[starts], -np.inf
    while True:
        similarity = points @ centres.T
        cluster, mean = similarity.argmax(axis=1), similarity.max(axis=1).mean()
        if mean - last < 1e-3:
            return cluster
        sums = np.array([points[cluster == c].sum(axis=0) for c in range(len(starts))])
        centres, last = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-15), mean


@pytest.mark.parametrize("method", [Parabel, Bonsai, PLT, DiSMEC])
def test_tree_is_the_same_with_any_number_of_threads(method, small_piece_size):
    """Compare with small pieces, and with blocks of labels that finish in any order."""
    rng = np.random.default_rng(12)
    data = Dataset.from_matrix(matrix(rng.random((90, 40))), matrix(rng.random((90, 400)) < 0.04))
    one, three, seven = (method(**method.quick_parameters).fit(data, run=Run(threads)) for threads in (1, 3, 7))
    for other in (three, seven):
        for tree, other_tree in zip(one.trees, other.trees, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(tree.arrays, other_tree.arrays, strict=True))


def test_labels_without_documents_can_be_halved():
    vectors = LabelVectors(csr_array((5, 3), dtype=np.float32))
    assert sum(len(half) for half in halve(vectors, np.arange(5), np.random.SeedSequence(0))) == 5


@pytest.mark.parametrize(
    ("n_labels", "max_leaf", "leaves"), [(5, 5, 1), (6, 5, 2), (41, 10, 5), (1, 1, 1), (3, 1, 3), (6, 1, 6)]
)
def test_balanced_tree_contains_every_label_once(n_labels, max_leaf, leaves):
    rng = np.random.default_rng(3)
    tree = build_balanced_trees(LabelVectors(matrix(rng.random((n_labels, 6)))), max_leaf, seeds=[(0,)])[0]
    assert tree.levels[0].shape[0] == 1
    assert tree.levels[-1].shape == (leaves, n_labels)
    assert tree.n_labels == n_labels
    np.testing.assert_array_equal(tree.levels[-1].sum(axis=0), np.ones(n_labels))
    assert tree.levels[-1].sum(axis=1).max() <= max_leaf
    for above, below in zip(tree.levels[:-1], tree.levels[1:], strict=True):
        assert above.shape[1] == below.shape[0]


def test_documents_of_a_node_are_those_of_its_labels():
    tree = from_groups([[np.array([0, 1])], [np.array([0, 2]), np.array([1, 3])]])
    nodes, labels = tree.memberships(matrix([[1, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0]]))
    np.testing.assert_array_equal(nodes.toarray(), [[1, 0], [0, 1], [1, 1], [0, 0]])
    assert labels.nnz == 5


def rows(bias, weights) -> SparseWeights:
    """Return rows with these biases and weights, given as {feature: {slot: weight}}."""
    pairs = [pair for row in weights.values() for pair in row.items()]
    return SparseWeights(
        np.array(bias, np.float32),
        np.array(list(weights), np.int32),
        np.cumsum([len(row) for row in weights.values()], dtype=np.int64),
        np.array([slot for slot, _ in pairs], np.int16),
        np.array([weight for _, weight in pairs], np.float32),
    )


def hand_made_tree() -> LinearTree:
    """Return a tree whose root has chunks 1 and 2; chunk 1 has labels 2 and 0, chunk 2 has label 1."""
    nowhere = np.array([SAME_CHUNK, SAME_CHUNK])
    root = Chunk(rows([0.5, -1], {0: {0: 0.25}, 2: {0: 0.5, 1: 1}}), nowhere, np.array([-2, -3]))
    first = Chunk(rows([0, 0], {1: {1: 2}, 2: {0: -1}}), nowhere, np.array([2, 0]))
    second = Chunk(rows([1], {}), nowhere[:1], np.array([1]))
    return pack_tree([root, first, second])


def forest(n_trees: int = 1, beam: int = 2, link: str = "squared_hinge") -> TreeModel:
    return TreeModel(n_labels=3, views={"columns": 3}, link=link, beam=beam, trees=(hand_made_tree(),) * n_trees)


def test_scores_by_hand():
    # x = (1, 0, 0.5). Root: node 1 has 0.5 + 0.25 + 0.25 = 1, so log P = 0; node 2 has -1 + 0.5, so log P = -2.25.
    # Node 1: label 2 has 0 - 0.5, so -2.25; label 0 has 0, so -1. Node 2: label 1 has 1, so 0.
    answer = forest().predict(Dataset.from_matrix(matrix([[1, 0, 0.5]])), k=3)
    assert answer.labels.tolist() == [[0, 1, 2]]
    np.testing.assert_allclose(answer.scores[0], np.exp([-1, -2.25, -2.25]), rtol=1e-4)


def test_a_logistic_tree_multiplies_sigmoids():
    answer = forest(link="logistic").predict(Dataset.from_matrix(matrix([[1, 0, 0.5]])), k=3)
    sigmoid = {m: 1 / (1 + np.exp(-m)) for m in (1, -0.5, 0)}
    expected = {0: sigmoid[1] * sigmoid[0], 2: sigmoid[1] * sigmoid[-0.5], 1: sigmoid[-0.5] * sigmoid[1]}
    np.testing.assert_allclose(answer.scores[0], sorted(expected.values(), reverse=True), rtol=1e-4)
    assert answer.labels[0, 0] == 0


def test_exact_search_equals_an_exhaustive_search():
    rng = np.random.default_rng(9)
    X = matrix(rng.random((50, 12)) * (rng.random((50, 12)) < 0.5))
    data = Dataset.from_matrix(X, matrix(rng.random((50, 19)) < 0.2))
    for n_trees in (1, 2):
        wide, exact = (Parabel(n_trees=n_trees, max_leaf=3, beam=beam).fit(data).predict(data, k=4) for beam in (99, 0))
        np.testing.assert_array_equal(exact.labels, wide.labels)
        np.testing.assert_allclose(exact.scores, wide.scores, rtol=1e-5)


@pytest.mark.parametrize("method", [Parabel, Bonsai, PLT])
def test_matched_negatives_train_on_more_documents_and_still_find_labels(method):
    rng = np.random.default_rng(10)
    Y = rng.random((80, 15)) < 0.15
    X = normalise_rows(matrix(Y @ rng.random((15, 30)) * (rng.random((80, 30)) < 0.9)))
    data = Dataset.from_matrix(X, matrix(Y))
    taught = method(n_trees=1, max_leaf=4).fit(data)
    matched = method(n_trees=1, max_leaf=4, match_negatives=True).fit(data)
    assert not np.array_equal(taught.trees[0].entries, matched.trees[0].entries)
    best = matched.predict(data, k=1).labels[:, 0]
    assert Y[np.arange(80), best][Y.any(axis=1)].mean() > 0.9


def test_k_means_keeps_clusters_together():
    rng = np.random.default_rng(1)
    centres = np.eye(5)[rng.integers(5, size=60)]
    points = centres + 0.05 * rng.random((60, 5))
    vectors = LabelVectors(matrix(points / np.linalg.norm(points, axis=1, keepdims=True)))
    groups = cluster_labels(vectors, np.arange(60), np.random.SeedSequence(3), n_clusters=12)
    assert sorted(np.concatenate(groups)) == list(range(60))
    assert all(len(np.unique(centres[group].argmax(axis=1))) == 1 for group in groups)


def test_wide_tree_splits_only_large_clusters():
    rng = np.random.default_rng(2)
    vectors = LabelVectors(normalise_rows(matrix(rng.random((200, 10)) * (rng.random((200, 10)) < 0.3) + 1e-3)))
    tree = build_wide_trees(vectors, max_leaf=10, arity=6, max_depth=4, seeds=[(0,)])[0]
    assert len(tree.levels) <= 4
    assert tree.levels[0].shape[1] <= 6
    np.testing.assert_array_equal(tree.levels[-1].sum(axis=0), np.ones(200))
    shallow = build_wide_trees(vectors, max_leaf=10, arity=6, max_depth=2, seeds=[(0,)])[0]
    assert len(shallow.levels) == 2


def test_levels_of_a_binary_tree_are_collapsed():
    vectors = LabelVectors(matrix(np.random.default_rng(0).random((64, 5))))
    binary = build_balanced_trees(vectors, max_leaf=4, seeds=[(0,)])[0]
    tree = compress_tree(binary, 2)
    assert [level.shape for level in binary.levels] == [(1, 2), (2, 4), (4, 8), (8, 16), (16, 64)]
    assert [level.shape for level in tree.levels] == [(1, 4), (4, 16), (16, 64)]
    np.testing.assert_array_equal(tree.levels[-1].toarray(), binary.levels[-1].toarray())


@pytest.mark.parametrize("space", ["input", "output", "joint"])
def test_bonsai_trains_with_every_label_space(space):
    X, Y = matrix(np.eye(30)), matrix(np.repeat(np.eye(10), 3, axis=0))
    model = Bonsai(n_trees=1, max_leaf=3, arity=4, space=space).fit(Dataset.from_matrix(X, Y))
    assert (model.predict(Dataset.from_matrix(X), k=1).labels[:, 0] == np.arange(30) // 3).all()


@pytest.mark.parametrize("method", [Parabel(max_leaf=4), Bonsai(max_leaf=4, arity=3), DiSMEC()], ids=str)
def test_interrupted_training_resumes_from_finished_parts(method, tmp_path, monkeypatch):
    rng = np.random.default_rng(11)
    X = rng.random((60, 100)) * (rng.random((60, 100)) < 0.06)  # sparse: trained by coordinate descent
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1)
    data = Dataset.from_matrix(matrix(X), matrix(rng.random((60, 300)) < 0.05))
    whole = method.fit(data)
    run = Run(threads=1, checkpoint=Checkpoint(tmp_path / "parts"))
    passes = Solver.pass_limit

    def interrupt(self, *arguments):
        if len(list((tmp_path / "parts").glob("*.npz"))) == 2:
            raise KeyboardInterrupt
        return passes(self, *arguments)

    monkeypatch.setattr(Solver, "pass_limit", interrupt)
    # With a longer queue, this small tree would be trained before the previous tree is saved.
    monkeypatch.setattr(training, "QUEUED_BLOCKS_PER_THREAD", 1)
    with pytest.raises(KeyboardInterrupt):
        method.fit(data, run=run)
    monkeypatch.setattr(Solver, "pass_limit", passes)
    assert len(list((tmp_path / "parts").glob("*.npz"))) == 2
    resumed = method.fit(data, run=run)
    for one, other in zip(whole.trees, resumed.trees, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))
    with pytest.raises(XmtcError, match="pieces of a training with other data or parameters"):
        replace(method, C=2.0).fit(data, run=run)
    run.checkpoint.remove()
    assert not (tmp_path / "parts").exists()


def test_label_weights_raise_the_rank_of_labels():
    answer = forest()._predict(
        Dataset.from_matrix(matrix([[1, 0, 0.5]])), 3, Run(), label_weights=np.array([1, 1, 100])
    )
    assert answer.labels.tolist() == [[2, 0, 1]]


@pytest.mark.parametrize("n_docs", [1, 3, 100])
def test_number_of_documents_does_not_change_predictions(n_docs):
    """Compare one document at a time with a batch, which visits several chunks at once."""
    rng = np.random.default_rng(8)
    X = matrix(rng.random((100, 12)) * (rng.random((100, 12)) < 0.5))
    model = Parabel(n_trees=2, max_leaf=3).fit(Dataset.from_matrix(X, matrix(rng.random((100, 90)) < 0.03)))
    whole = model.predict(Dataset.from_matrix(X), k=4, run=Run(threads=1))
    batches = [Dataset.from_matrix(X[i : i + n_docs]) for i in range(0, 100, n_docs)]
    parts = [model.predict(batch, k=4, run=Run(threads=2)) for batch in batches]
    np.testing.assert_array_equal(np.vstack([part.labels for part in parts]), whole.labels)


DAMAGE = {
    "slots": lambda a: a[::-1].copy(),
    "above": lambda a: a + 1,
    "leads": lambda a: a + 3,
    "bias": lambda a: a[:-1],
    "scale": lambda a: a[:-1],
    "homes": lambda a: a + 99,
    "places": lambda a: a * 2,
    "table": lambda a: a + 1,
    "firsts": lambda a: a[:-1],
    "entries": lambda a: a[:-1],
}


@pytest.mark.parametrize("field", DAMAGE)
def test_invalid_arrays_are_rejected(field):
    model = forest()
    model.check()
    bad = replace(hand_made_tree(), **{field: DAMAGE[field](getattr(hand_made_tree(), field))})
    with pytest.raises(ValueError, match="do not fit together"):
        replace(model, trees=(bad,)).check()


def test_row_without_slots_is_rejected():
    few = {0: dict.fromkeys((3, 17), 1.0)}
    tree = pack_tree([Chunk(rows(np.zeros(30), few), np.full(30, SAME_CHUNK), np.arange(30))])
    tree.check_sizes(30, 1)
    assert tree.entries.tolist()[::2] == [3, 17]
    for wrong in (-1, 30):
        bad = replace(tree, entries=np.array([3, 100, wrong, 100], np.int16))
        with pytest.raises(ValueError, match="do not fit together"):
            bad.check_sizes(30, 1)


def test_check_of_table_rows_equals_the_reference():
    """Change each number of the tables of a small tree in turn."""
    rng = np.random.default_rng(0)
    data = Dataset.from_matrix(matrix(rng.random((40, 12)) < 0.3), matrix(rng.random((40, 9)) < 0.2))
    (tree,) = Parabel(n_trees=1, max_leaf=3).fit(data).trees
    result = []
    for place, column in np.ndindex(tree.table.shape):
        for number in (0, 1, 2, min(int(tree.table[place, column]) + 1, EMPTY_FEATURE_CODE), 12, EMPTY_FEATURE_CODE):
            table = tree.table.copy()
            table[place, column] = number
            other = replace(tree, table=table)
            result.append(
                has_valid_rows(other.slots, other.homes, other.places, table, other.firsts, other.entries, 12)
            )
            assert result[-1] == rows_fit_by_reference(other, 12)
    assert 0 < sum(result) < len(result)


def rows_fit_by_reference(tree, n_features):
    return all(chunk_fits_by_reference(tree, chunk, n_features) for chunk in range(tree.n_chunks))


def chunk_fits_by_reference(tree, chunk, n_features):
    table = tree.table[tree.places[chunk] : tree.places[chunk + 1]].astype(np.int64)
    entries = tree.entries[tree.firsts[chunk] : tree.firsts[chunk + 1]]
    features, starts, n = table[:, 0], table[:, 1], tree.slots[chunk + 1] - tree.slots[chunk]
    lengths = np.diff(starts)
    pairs = [
        entries[start : start + length : 2] for start, length in zip(starts[:-1], lengths, strict=True) if length != n
    ]
    return (
        (starts[0], starts[-1], features[-1]) == (0, len(entries), EMPTY_FEATURE_CODE)
        and ((lengths >= 0) & (lengths <= n)).all()
        and ((lengths % 2 == 0) | (lengths == n)).all()
        and (features[(features != EMPTY_FEATURE_CODE)] < n_features).all()
        and (lengths[features[:-1] == EMPTY_FEATURE_CODE] == 0).all()
        and all(((row >= 0) & (row < n)).all() for row in pairs)
    )


def test_cyclic_tree_is_rejected():
    tree = hand_made_tree()
    back = replace(tree, leads=np.where(tree.leads >= 0, -2, tree.leads).astype(np.int32))
    with pytest.raises(ValueError, match="do not fit together"):
        back.check_sizes(3, 3)


def test_packed_weights_are_looked_up():
    """Test rows with few and many weights, hash collisions of features, and missing features."""
    rng = np.random.default_rng(4)
    W = rng.normal(size=(200, 40)) * (rng.random((200, 40)) < rng.random((200, 1)) ** 3)
    W[rng.random(200) < 0.3] = 0
    used = np.flatnonzero(W.any(axis=1))
    weights = {int(f): {int(slot): W[f, slot] for slot in np.flatnonzero(W[f])} for f in used}
    tree = pack_tree([Chunk(rows(np.zeros(40), weights), np.full(40, SAME_CHUNK), np.arange(40))])
    tree.check_sizes(40, 200)
    x = rng.random((7, 200)) * (rng.random((7, 200)) < 0.4)
    model = TreeModel(n_labels=40, views={"columns": 200}, link="logistic", beam=1, trees=(tree,))
    answer = model.predict(Dataset.from_matrix(matrix(x)), k=40)
    margins = np.log(answer.scores) - np.log1p(-answer.scores)
    np.testing.assert_allclose(margins, np.take_along_axis(x @ W, answer.labels, axis=1), atol=2e-3)
    for slot in range(40):
        result = np.zeros(200)
        features, values = tree.slot_weights(0, slot)
        result[features] = values
        np.testing.assert_allclose(result, W[:, slot], atol=1e-4)


def block(n_docs: int, n_children: int, tree: int = 0, first: int = 0) -> TrainingBlock:
    nothing = np.zeros(n_children + 1, np.int64), np.zeros(0, np.int32)
    return TrainingBlock(tree, 7, 0, first, True, np.arange(n_docs), np.arange(first, first + n_children), nothing)


def test_large_blocks_are_split():
    leaves = [block(100, 60, tree) for tree in (0, 1) for _ in range(20)]
    result = split_large_blocks([block(1000, 100), *leaves, block(1000, 4, tree=1), block(1000, 12, tree=1)])
    assert [(part.first_child, len(part.children), part.is_leaf) for part in result[:2]] == [
        (0, 50, False),
        (50, 50, False),
    ]
    assert result[2:42] == leaves  # small
    assert [len(part.children) for part in result[42:]] == [2, 2, 12]  # splitting twelve labels would save little
    assert np.concatenate([part.children for part in result[:2]]).tolist() == list(range(100))
    alone = split_large_blocks([block(1000, 100), *leaves[:20]])
    assert [len(part.children) for part in alone] == [50, 50, *[60] * 20]  # independent of the other trees


def test_slots_of_a_node_are_adjacent():
    parts = [
        rows([1, 2], {0: {0: 0.1, 1: 0.2}, 3: {1: 0.3}}),
        make_constant_weights(1, 9.0),
        rows([3, 4], {3: {0: 0.4}, 5: {1: 0.5}}),
    ]
    result = concatenate_slots(parts)
    assert result.bias.tolist() == [1, 2, 9, 3, 4]
    assert (result.features.tolist(), result.ends.tolist()) == ([0, 3, 5], [2, 4, 5])
    assert result.slots.tolist() == [0, 1, 1, 3, 4]
    np.testing.assert_allclose(result.weights, [0.1, 0.2, 0.3, 0.4, 0.5], rtol=1e-6)


def test_documents_of_children_are_marked():
    """Test children 2 and 0 of a node with the documents 2, 3, 4 and 7."""
    memberships = np.zeros((9, 3), np.float32)
    memberships[[2, 3, 3, 4, 7, 8], [2, 0, 2, 0, 0, 1]] = 1
    members, rows = csc_array(memberships), np.array([2, 3, 4, 7])
    by_child = members.indptr.astype(np.int64), members.indices
    block = TrainingBlock(0, 0, 0, 0, True, rows, np.array([2, 0]), by_child)
    np.testing.assert_array_equal(block.signs(), np.where(memberships[rows][:, [2, 0]] > 0, 1, -1))


def test_documents_of_children_are_marked_at_any_distance():
    rng = np.random.default_rng(5)
    memberships = (rng.random((3000, 4)) < [0.5, 0.1, 0.01, 0.001]).astype(np.float32)
    members, rows = csc_array(memberships), np.flatnonzero(memberships.sum(axis=1))
    by_child = members.indptr.astype(np.int64), members.indices
    block = TrainingBlock(0, 0, 0, 0, True, rows, np.arange(4), by_child)
    np.testing.assert_array_equal(block.signs()[:, :4], np.where(memberships[rows] > 0, 1, -1))


def test_trees_are_trained_in_order_with_large_blocks_first():
    def block(tree: int, n_rows: int, chunk: int = 0) -> TrainingBlock:
        members = np.zeros(3, np.int64), np.zeros(0, np.int32)
        return TrainingBlock(tree, 0, chunk, 0, False, np.arange(n_rows), np.arange(2), members)

    blocks = [block(0, 30), block(0, 5000), block(1, 40), block(1, 90000), block(0, 60, chunk=1), block(0, 50)]
    total = sum(each.cost for each in blocks)
    turns = sorted(blocks, key=lambda each: each.sort_key(total))
    in_turn = [(0, 5000), (0, 50), (0, 30), (0, 60), (1, 90000), (1, 40)]
    assert [(each.tree, len(each.rows)) for each in turns] == in_turn


def test_last_blocks_are_narrow():
    blocks = family.split_label_blocks(2000)
    assert [label for block in blocks for label in range(block.start, block.stop)] == list(range(2000))
    assert {block.stop - block.start for block in blocks[:7]} == {MAX_BLOCK_LABELS}
    assert {block.stop - block.start for block in blocks[7:-1]} == {family.NARROW_BLOCK_LABELS}
    assert family.split_label_blocks(3) == [slice(0, 3)]


def test_wide_nodes_are_levels_of_the_binary_tree():
    rng = np.random.default_rng(13)
    data = Dataset.from_matrix(matrix(rng.random((80, 30))), matrix(rng.random((80, 64)) < 0.1))
    binary, wide = (Parabel(n_trees=1, max_leaf=4, arity=arity).fit(data) for arity in (2, 16))
    assert len(binary.trees[0].find_path(5)) == 5  # four levels of splits, and the labels
    assert len(wide.trees[0].find_path(5)) == 2
    assert set(wide.trees[0].leads) - set(range(64)) == {-2 - chunk for chunk in range(16)}


@pytest.mark.parametrize(("power", "link"), [(2, "squared_hinge"), (3, "cubed_hinge")])
def test_power_of_the_hinge_loss(power, link):
    # As in test_scores_by_hand: the hinge losses are 0 and 1.5 in the root, 1 and 1.5 under node 1.
    answer = forest(link=link).predict(Dataset.from_matrix(matrix([[1, 0, 0.5]])), k=3)
    np.testing.assert_allclose(answer.scores[0], np.exp([-1, -(1.5**power), -(1.5**power)]), rtol=1e-3)
    data = Dataset.from_matrix(matrix(np.eye(6)), matrix(np.eye(6)))
    assert Parabel(power=power).fit(data).link == link


def test_small_levels_are_merged_into_one_chunk():
    vectors = LabelVectors(matrix(np.random.default_rng(0).random((512, 5))))
    tree = build_balanced_trees(vectors, max_leaf=2, seeds=[(0,)])[0]
    assert group_levels(tree) == [(0, 2), (2, 8)]  # 4 chunks of 126 slots under one of 6
    sizes = [size for level in tree.levels for size in np.diff(level.indptr)]
    nodes = {node: make_constant_weights(size, 1.0) for node, size in enumerate(sizes)}
    packed = assemble_tree(tree, nodes, make_constant_weights(1, 1.0))
    packed.check_sizes(512, 1)
    assert np.diff(packed.slots)[:6].tolist() == [6, 126, 126, 126, 126, 2]
    for label in (0, 77, 511):
        assert len(packed.find_path(label)) == len(tree.levels)


def test_chunks_are_packed_when_their_nodes_are_complete():
    """Nodes may arrive in any order; if they arrive chunk by chunk, only those of one chunk wait."""
    vectors = LabelVectors(matrix(np.random.default_rng(0).random((700, 5))))
    tree = compress_tree(build_balanced_trees(vectors, max_leaf=2, seeds=[(0,)])[0], 2)
    sizes = np.concatenate([np.diff(level.indptr) for level in tree.levels])
    nodes = {int(node): make_constant_weights(sizes[node], float(node)) for node in np.flatnonzero(sizes > 1)}
    assert len(nodes) < len(sizes)
    single_child, chunks = make_constant_weights(1, 1.0), number_chunks(tree)

    builder = TreeBuilder(tree, single_child)
    for node in sorted(nodes, key=lambda node: chunks[node]):
        assert not builder.is_complete
        builder.add_node(node, nodes[node])
        assert builder.n_waiting < (chunks == chunks[node]).sum()
    in_order = builder.to_tree()
    in_order.check_sizes(700, 1)

    order = np.random.default_rng(1).permutation(list(nodes))
    shuffled = assemble_tree(tree, {int(node): nodes[node] for node in order}, single_child)
    assert all(np.array_equal(one, other) for one, other in zip(in_order.arrays, shuffled.arrays, strict=True))


@pytest.mark.parametrize("method", [Parabel(n_trees=2, max_leaf=4), PLT(max_leaf=4, arity=4), Bonsai(max_leaf=4)])
def test_model_trained_with_workdir_is_the_same(tmp_path, method):
    rng = np.random.default_rng(4)
    data = Dataset.from_matrix(matrix(rng.random((90, 30)) * (rng.random((90, 30)) < 0.3)), matrix(np.eye(90)[:, :60]))
    memberships, mapped = method.fit(data), method.fit(data, run=Run(workdir=tmp_path))
    for one, other in zip(memberships.trees, mapped.trees, strict=True):
        for mine, theirs in zip(one.arrays, other.arrays, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert any(is_mapped(array) for tree in mapped.trees for array in tree.arrays)


@pytest.mark.parametrize("few", [0, 300, 3000])
@pytest.mark.parametrize("threads", [1, 2])
def test_splits_through_documents_equal_splits_by_label_vectors(monkeypatch, few, threads):
    rng = np.random.default_rng(5)
    X = matrix(rng.random((300, 40)) * (rng.random((300, 40)) < 0.2))
    Y = matrix(rng.random((300, 90)) < 0.03)
    data = Dataset.from_matrix(X, Y, weights=rng.random(300) + 0.5)
    stored = build_label_vectors(data)
    assert isinstance(stored, LabelVectors)
    expected = build_balanced_trees(stored, 3, [(0,), (1,)])
    monkeypatch.setattr(streaming_kmeans, "MAX_STORED_VALUES", 0)
    monkeypatch.setattr(streaming_kmeans, "MAX_PART_VALUES", few)
    monkeypatch.setattr(balanced_kmeans, "MIN_PIECE_VALUES", 50)
    labels = build_label_vectors(data)
    assert isinstance(labels, streaming_kmeans.StreamedLabelVectors)
    np.testing.assert_allclose(labels.compute_vectors(np.arange(90)).toarray(), stored.matrix.toarray(), rtol=1e-5)
    result = build_balanced_trees(labels, 3, [(0,), (1,)], Run(threads))
    for one, other in zip(result, expected, strict=True):
        for level, same in zip(one.levels, other.levels, strict=True):
            np.testing.assert_array_equal(level.toarray(), same.toarray())


def test_too_many_labels_for_a_chunk_are_spread_over_several(monkeypatch):
    monkeypatch.setattr(family, "MAX_CHUNK_SLOTS", 2 * MAX_BLOCK_LABELS)
    rng = np.random.default_rng(6)
    data = Dataset.from_matrix(matrix(np.eye(40)), matrix(rng.random((40, 3 * MAX_BLOCK_LABELS)) < 0.02))
    spread = DiSMEC().fit(data)
    monkeypatch.undo()
    whole = DiSMEC().fit(data)
    assert (spread.trees[0].n_chunks, whole.trees[0].n_chunks) == (3, 1)
    np.testing.assert_allclose(spread.predict(data).scores, whole.predict(data).scores, atol=1e-4)


def test_a_narrow_beam_leaves_labels_out():
    answer = forest(beam=1).predict(Dataset.from_matrix(matrix([[1, 0, 0.5]])), k=3)
    assert answer.labels.tolist() == [[0, 2, NO_LABEL]]
    assert answer.scores[0, 2] == 0


def test_trees_are_averaged():
    one, three = (forest(n) for n in (1, 3))
    document = Dataset.from_matrix(matrix([[0, 2, 1]]))
    np.testing.assert_allclose(one.predict(document).scores, three.predict(document).scores, rtol=1e-6)


def test_an_explanation_adds_up_to_the_log_probability():
    document = Dataset.from_matrix(matrix([[1, 0, 0.5]]))
    explained, best = forest().explain(document, label=2), forest().predict(document, k=10)
    assert set(explained.ids.tolist()) == {0, 2}
    score = float(best.scores[0][best.labels[0] == 2].sum())
    assert explained.weights.sum() + explained.bias == pytest.approx(np.log(score), abs=1e-3)


def test_wide_beam_equals_an_exhaustive_search():
    """Compare with a reference implementation that visits every node and multiplies along the paths."""
    rng = np.random.default_rng(5)
    X = matrix(rng.random((60, 12)) * (rng.random((60, 12)) < 0.5))
    Y = matrix(rng.random((60, 17)) < 0.2)
    model = Parabel(n_trees=2, max_leaf=3, beam=1000, min_weight=0.05, arity=4).fit(Dataset.from_matrix(X, Y))
    answer = model.predict(Dataset.from_matrix(X), k=17)
    expected = sum(visit_by_reference(tree, X.toarray(), 17) for tree in model.trees) / 2
    rows = np.arange(60)[:, None]
    np.testing.assert_allclose(answer.scores, expected[rows, answer.labels], rtol=1e-4)
    np.testing.assert_allclose(answer.scores, -np.sort(-expected, axis=1), rtol=1e-4)


def visit_by_reference(tree: LinearTree, X: np.ndarray, n_labels: int) -> np.ndarray:
    scores = np.ones((len(X), n_labels))
    for label in range(n_labels):
        for chunk, slot in tree.find_path(label):
            features, weights = tree.slot_weights(chunk, slot)
            margin = X[:, features] @ weights + tree.bias[slot]
            scores[:, label] *= np.exp(-(np.maximum(0, 1 - margin) ** 3))
    return scores


def test_tree_of_one_leaf_is_one_versus_rest():
    X, Y = matrix(np.eye(6)), matrix(np.eye(6))
    model = Parabel(n_trees=1, min_weight=0.0).fit(Dataset.from_matrix(X, Y))
    assert model.trees[0].n_chunks == 1
    assert model.predict(Dataset.from_matrix(X), k=1).labels.ravel().tolist() == list(range(6))

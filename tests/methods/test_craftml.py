"""CRAFTML's kernels beside plain NumPy, its projections, damage, and explanations worked by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array

from xmtc import XmtcError
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.core.sparse import to_kernel_arrays
from xmtc.data.in_memory import to_documents
from xmtc.linear.coordinate_descent import next_random_state
from xmtc.methods.instance_tree import centroid_growth as growing
from xmtc.methods.instance_tree import craftml as family
from xmtc.methods.instance_tree.craftml import CRAFTML, FEATURES, LABELS, compute_scales, hash_columns, project
from xmtc.pipeline import Pipeline

ONE = Run(threads=1)
STATE = np.uint64(88172645463325253)
BUCKETS = 60


@cache
def data() -> Dataset:
    return Pipeline.from_parameters("craftml").prepare(to_documents(*make_planted_corpus(300, seed=4)), ONE).data


@cache
def model():
    return CRAFTML(n_trees=3, feature_buckets=BUCKETS, n_clusters=4).fit(data(), run=ONE)


def random_rows(seed: int, n_rows: int = 50, n_buckets: int = 12) -> csr_array:
    """Return projected rows with repeated buckets; one row is empty and one sums to zero."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, n_rows)
    counts[3], counts[7] = 0, 2
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    buckets, values = rng.integers(0, n_buckets, indptr[-1]), rng.normal(size=indptr[-1])
    buckets[indptr[7] : indptr[8]], values[indptr[7] : indptr[8]] = 5, (1, -1)
    return csr_array((values.astype(np.float32), buckets.astype(np.int32), indptr), shape=(n_rows, n_buckets))


def unit_rows(rows: csr_array) -> np.ndarray:
    dense = rows.toarray().astype(float)
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    return np.divide(dense, lengths, out=np.zeros_like(dense), where=lengths > 1e-6)


class TestProjection:
    def test_columns_are_spread_over_buckets_and_signs(self):
        buckets, signs = hash_columns(20_000, 0, 0, FEATURES, 10)
        np.testing.assert_allclose(np.bincount(buckets, minlength=10), 2000, atol=200)
        for bucket in range(10):
            assert abs(signs[buckets == bucket].mean()) < 0.08

    def test_trees_seeds_and_kinds_have_their_own(self):
        tables = [hash_columns(100, *which, 1000)[0] for which in ((0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1))]
        assert all((one == other).sum() < 10 for i, one in enumerate(tables) for other in tables[:i])

    def test_they_never_change(self):
        """Stored models depend on them."""
        buckets, signs = hash_columns(6, 7, 3, FEATURES, 10_000)
        assert buckets.tolist() == [3017, 3876, 7439, 9693, 3198, 9509]
        assert signs.tolist() == [-1.0, -1.0, 1.0, 1.0, -1.0, 1.0]

    def test_a_row_is_multiplied_by_the_signed_matrix(self):
        X = data().X[:20]
        buckets, signs = hash_columns(X.shape[1], 0, 2, LABELS, BUCKETS)
        matrix = np.zeros((X.shape[1], BUCKETS))
        matrix[np.arange(X.shape[1]), buckets] = signs
        projected = project(X, 0, 2, LABELS, BUCKETS)
        np.testing.assert_allclose(projected.toarray(), X @ matrix, atol=1e-6)
        np.testing.assert_allclose(compute_scales(projected), 1 / np.linalg.norm(X @ matrix, axis=1), rtol=1e-5)

    def test_rows_that_add_up_to_nothing_have_scale_0(self):
        scales = compute_scales(random_rows(0))
        assert scales[3] == scales[7] == 0
        assert np.isfinite(scales).all()


def uniform(state: np.uint64) -> float:
    return float(state >> np.uint64(11)) / 2**53


def plain_clusters(rows: np.ndarray, k: int, state: np.uint64) -> tuple[np.ndarray, np.uint64]:
    """Compute spherical k-means with k-means++ in NumPy."""
    centres, weights = [], (np.linalg.norm(rows, axis=1) > 0).astype(float)
    while len(centres) < k and weights.max() > 0:
        state = np.uint64(next_random_state(state))
        chosen = np.searchsorted(np.cumsum(weights), uniform(state) * weights.sum(), side="right")
        centres.append(rows[chosen])
        similarity = rows @ rows[chosen]
        weights = np.minimum(weights, np.where(similarity < growing.SAME_SIMILARITY, 1 - similarity, 0))
    C = np.array(centres)
    for _ in range(growing.N_ROUNDS):
        cluster = (rows @ C.T).argmax(axis=1)
        C = np.array([rows[cluster == c].sum(axis=0) for c in range(len(C))])
        lengths = np.linalg.norm(C, axis=1, keepdims=True)
        C = np.divide(C, lengths, out=np.zeros_like(C), where=lengths > 0)
    return (rows @ C.T).argmax(axis=1), state


def centroid_work(n_buckets: int, k: int, n_features: int):
    sums, seen = np.zeros((n_buckets, k), np.float32), np.zeros(n_buckets, bool)
    top = np.empty((k, n_features), np.float32), np.empty((k, n_features), np.int32)
    return sums, seen, *top, np.empty(k, np.int64)


class TestGrowing:
    @pytest.mark.parametrize("seed", range(4))
    def test_clusters_are_the_plain_ones(self, seed):
        rows, k = random_rows(seed), 5
        expected, expected_state = plain_clusters(unit_rows(rows), k, STATE)
        sums, seen = np.zeros((12, k), np.float32), np.zeros(12, bool)
        cluster = np.empty(50, np.int64)
        n, state = growing.cluster_labels(
            (*to_kernel_arrays(rows), compute_scales(rows)),
            np.arange(50), k, STATE, sums, seen, np.empty(50), np.empty(k, np.float32), cluster,
        )  # fmt: skip
        assert (n, state) == (k, expected_state)
        np.testing.assert_array_equal(cluster, expected)
        assert not sums.any()
        assert not seen.any()

    def test_equal_rows_are_one_cluster(self):
        rows = csr_array(np.tile([[0, 1, 2]], (20, 1)).astype(np.float32))
        n, _ = growing.cluster_labels(
            (*to_kernel_arrays(rows), compute_scales(rows)),
            np.arange(20), 5, STATE, np.zeros((3, 5), np.float32), np.zeros(3, bool), np.empty(20),
            np.empty(5, np.float32), np.empty(20, np.int64),
        )  # fmt: skip
        assert n == 1

    @pytest.mark.parametrize("n_features", [3, 12])
    def test_centroids_keep_their_largest_features(self, n_features):
        rows, k = random_rows(1), 3
        cluster = np.random.default_rng(1).integers(0, k, 50)
        sums, seen, top_values, top_buckets, ends = work = centroid_work(12, k, n_features)
        for row in range(50):
            growing.add_row(*to_kernel_arrays(rows), row, np.float32(2), cluster[row], sums)
        expected = np.stack([2 * rows.toarray()[cluster == c].sum(axis=0) for c in range(k)])
        np.testing.assert_allclose(sums.T, expected, atol=1e-5)
        growing.prune_centroids(*to_kernel_arrays(rows)[:2], np.arange(50), k, *work)
        for c in range(k):
            smallest = np.sort(np.abs(expected[c]))[-n_features]
            expected[c, np.abs(expected[c]) < smallest] = 0
            expected[c] /= np.linalg.norm(expected[c])
            kept = np.zeros(12)
            kept[top_buckets[c, : ends[c]]] = top_values[c, : ends[c]]
            np.testing.assert_allclose(kept, expected[c], atol=1e-5)
        np.testing.assert_allclose(sums.T, expected, atol=1e-5)
        assert not seen.any()

    def test_documents_go_to_the_most_similar_column(self):
        rows, sums = random_rows(2), np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
        cluster, chosen = np.empty(20, np.int64), np.random.default_rng(1).permutation(50)[:20]
        growing.assign_rows(*to_kernel_arrays(rows), chosen, sums, 4, np.empty(4, np.float32), cluster)
        np.testing.assert_array_equal(cluster, (rows.toarray()[chosen] @ sums).argmax(axis=1))

    def test_columns_become_unit_vectors(self):
        rows, sums = random_rows(2), np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
        sums[:, 2] = 0
        expected = sums / np.maximum(np.linalg.norm(sums, axis=0), 1e-12)
        growing.normalise_columns(*to_kernel_arrays(rows)[:2], np.arange(50), 4, sums, np.zeros(12, bool))
        np.testing.assert_allclose(sums, expected, rtol=1e-5)

    def test_sort_by_child(self):
        docs, cluster = np.array([9, 4, 7, 1, 3]), np.array([2, 0, 2, 0, 3])
        bounds = np.empty(5, np.int64)
        growing.sort_by_child(docs, cluster, 4, bounds, np.empty(5, np.int64))
        assert docs.tolist() == [4, 1, 9, 7, 3]
        assert bounds.tolist() == [0, 2, 2, 4, 5]
        assert growing.count_filled(bounds, 4) == 3

    def test_samples_are_uniform_and_lose_no_document(self):
        counts, state = np.zeros(10), STATE
        for _ in range(3000):
            docs = np.arange(10)
            state = np.uint64(growing.draw_sample(docs, 3, state))
            assert sorted(docs) == list(range(10))
            counts[docs[:3]] += 1
        np.testing.assert_allclose(counts, 900, atol=120)

    def test_positions_are_drawn_by_their_weights(self):
        weights, counts, state = np.array([0.0, 1, 0, 3, 0]), np.zeros(5), STATE
        for _ in range(4000):
            state = np.uint64(next_random_state(state))
            counts[growing.draw_weighted(weights, state)] += 1
        np.testing.assert_allclose(counts, [0, 1000, 0, 3000, 0], atol=120)

    def test_a_tree_sends_its_own_documents_where_it_put_them(self):
        forest = model().forest
        counted = np.bincount(forest.assign_leaves(data().X).ravel(), minlength=len(forest.sizes))
        is_leaf = forest.n_children == 0
        assert (counted[~is_leaf] == 0).all()
        np.testing.assert_array_equal(counted[is_leaf], forest.sizes[is_leaf])
        for node in np.flatnonzero(~is_leaf):
            children = slice(forest.starts[node], forest.starts[node] + forest.n_children[node])
            assert forest.sizes[node] == forest.sizes[children].sum()
        assert forest.sizes[is_leaf].max() <= 10
        assert forest.n_children.max() == 4

    def test_a_sample_is_enough_to_divide_all_documents(self):
        forest = CRAFTML(n_trees=1, sample=30).fit(data(), run=ONE).forest
        leaves = forest.assign_leaves(data().X)[:, 0]
        np.testing.assert_array_equal(np.bincount(leaves, minlength=len(forest.sizes))[leaves], forest.sizes[leaves])

    @pytest.mark.parametrize("kind", ["documents", "label sets"])
    def test_equal_documents_or_label_sets_are_one_leaf(self, kind):
        X, Y = (np.ones((40, 3)), np.eye(2)[np.arange(40) % 2])
        X, Y = (X, Y) if kind == "documents" else (np.eye(40), np.ones((40, 2)))
        given = Dataset.from_matrix(X, Y)
        result = CRAFTML(n_trees=2).fit(given, run=ONE)
        assert result.forest.n_children.tolist() == [0, 0]
        np.testing.assert_allclose(result.predict(given, 2, ONE).scores, Y.mean(axis=0).max())

    def test_a_training_that_was_stopped_goes_on(self, tmp_path, monkeypatch):
        recipe = CRAFTML(n_trees=3, feature_buckets=BUCKETS, n_clusters=4)
        run = replace(ONE, checkpoint=Checkpoint(tmp_path / "kept"))
        grow, grown = family.grow_centroid_tree, []
        with monkeypatch.context() as patch:
            calls = iter(range(10))
            patch.setattr(family, "grow_centroid_tree", lambda *given: grow(*given) if next(calls) < 2 else 1 / 0)
            with pytest.raises(ZeroDivisionError):
                recipe.fit(data(), run=run)
        run.checkpoint.release()
        monkeypatch.setattr(family, "grow_centroid_tree", lambda *given: grown.append(1) or grow(*given))
        again = recipe.fit(data(), run=run).forest
        assert len(grown) == 1
        for name in ("roots", "n_children", "centroid_ends", "buckets", "weights", "ends", "items", "values"):
            np.testing.assert_array_equal(getattr(again, name), getattr(model().forest, name))

    def test_too_little_memory_is_told_before_the_training(self, monkeypatch):
        monkeypatch.setattr("xmtc.core.memory.get_memory_limit", lambda: 1000.0)
        with pytest.raises(XmtcError, match=r"^Growing 1 trees in parallel would need .* use fewer threads"):
            CRAFTML().fit(data(), run=ONE)


def centroid(forest, node: int) -> np.ndarray:
    entries = slice(forest.centroid_ends[node], forest.centroid_ends[node + 1])
    dense = np.zeros(forest.n_buckets)
    dense[forest.buckets[entries]] = forest.weights[entries]
    return dense


def walk(forest, tree: int, x: np.ndarray) -> list[int]:
    """Return the nodes on the path of a document."""
    path = [int(forest.roots[tree])]
    while forest.n_children[path[-1]]:
        children = forest.starts[path[-1]] + np.arange(forest.n_children[path[-1]])
        path.append(int(children[np.argmax([centroid(forest, child) @ x for child in children])]))
    return path


class TestModel:
    def test_votes_and_paths(self):
        forest, documents = model().forest, data().select_rows(slice(0, 30))
        expected = np.zeros((30, data().n_labels))
        leaves = forest.assign_leaves(documents.X)
        for tree in range(forest.n_trees):
            for doc, x in enumerate(project(documents.X, 0, tree, FEATURES, BUCKETS).toarray()):
                path = walk(forest, tree, x)
                assert leaves[doc, tree] == path[-1]
                assert forest.list_path(tree, path[-1]) == path
                leaf = slice(forest.ends[path[-1]], forest.ends[path[-1] + 1])
                expected[doc, forest.items[leaf]] += forest.values[leaf] / forest.n_trees
        result = model().predict(documents, 7, ONE)
        for labels, scores, wanted in zip(result.labels, result.scores, expected, strict=True):
            np.testing.assert_allclose(scores[labels >= 0], wanted[labels[labels >= 0]], rtol=1e-4)
            np.testing.assert_allclose(scores, np.sort(wanted)[::-1][:7], rtol=1e-4, atol=1e-7)

    def test_shares_are_those_of_the_documents(self):
        forest, leaves = model().forest, model().forest.assign_leaves(data().X)
        begin, end = forest.roots[1], forest.roots[2]
        Y = data().Y.toarray()
        for label in (0, 5, 17):
            shares = np.empty(end - begin)
            nodes = forest.starts[begin:end] - begin, forest.n_children[begin:end], forest.sizes[begin:end]
            growing.compute_node_shares(
                label, *nodes, forest.ends[begin : end + 1], forest.items, forest.values, shares
            )
            for node in range(begin, end):
                below = [node in forest.list_path(1, leaf) for leaf in leaves[:, 1]]
                assert shares[node - begin] == pytest.approx(Y[below, label].mean(), abs=1e-5)

    def test_an_explanation_divides_the_steps_of_the_share(self):
        forest, document = model().forest, data().select_rows([5])
        label, expected = int(data().Y[[5]].indices[0]), np.zeros(data().X.shape[1])
        Y, leaves = data().Y.toarray()[:, label], forest.assign_leaves(data().X)
        for tree in range(forest.n_trees):
            buckets, signs = hash_columns(data().X.shape[1], 0, tree, FEATURES, BUCKETS)
            share = {n: [] for n in range(len(forest.sizes))}
            for doc, leaf in enumerate(leaves[:, tree]):
                for node in forest.list_path(tree, leaf):
                    share[node].append(Y[doc])
            for node, child in pairwise(forest.list_path(tree, leaves[5, tree])):
                children = forest.starts[node] + np.arange(forest.n_children[node])
                mean = np.mean([centroid(forest, sibling) for sibling in children], axis=0)
                parts = document.X.toarray()[0] * signs * (centroid(forest, child) - mean)[buckets]
                expected += (np.mean(share[child]) - np.mean(share[node])) * parts / np.abs(parts).sum()
        explained = model().explain(document, label)
        np.testing.assert_allclose(explained.weights, expected[explained.ids] / forest.n_trees, atol=1e-5)


def broken(array: np.ndarray, place: int, value: float) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


class TestDamage:
    @pytest.mark.parametrize(
        ("name", "place", "value"),
        [
            ("roots", 0, 1), ("roots", 1, 0), ("roots", -1, 10**9), ("n_children", 0, 0), ("n_children", 0, -1),
            ("n_children", 0, 10**6), ("n_children", -1, 1), ("sizes", 0, 0), ("centroid_ends", 1, -1),
            ("centroid_ends", -1, 10**12), ("ends", 2, 10**12), ("buckets", 0, -1), ("buckets", 0, BUCKETS),
            ("weights", 0, np.nan), ("items", 0, -1), ("items", 0, 10**6), ("items", -1, 0), ("values", -1, -0.1),
            ("values", -1, 1.5),
        ],
    )  # fmt: skip
    def test_of_the_forest(self, name, place, value):
        model().check()
        forest = replace(model().forest, **{name: broken(getattr(model().forest, name), place, value)})
        with pytest.raises(ValueError, match=r"of a forest"):
            replace(model(), forest=forest).check()

    @pytest.mark.parametrize("name", ["n_children", "sizes", "buckets", "weights", "items", "values"])
    def test_of_its_sizes(self, name):
        forest = replace(model().forest, **{name: getattr(model().forest, name)[:-1]})
        with pytest.raises(ValueError, match=r"of a forest"):
            replace(model(), forest=forest).check()

    @pytest.mark.parametrize("changes", [{"n_buckets": 0}, {"n_buckets": 10**9}, {"n_buckets": 5}, {"seed": -1}])
    def test_of_its_projection(self, changes):
        with pytest.raises(ValueError, match=r"of a forest"):
            replace(model(), forest=replace(model().forest, **changes)).check()

    def test_children_that_precede_their_parent(self):
        """Node 1 of a tree that nothing leads to, and a child count that another tree makes up for."""
        forest = model().forest
        first, second = forest.roots[:2]
        n_children = broken(broken(forest.n_children, first, forest.n_children[first] - 1), second,
                            forest.n_children[second] + 1)  # fmt: skip
        with pytest.raises(ValueError, match="breadth-first"):
            replace(model(), forest=replace(forest, n_children=n_children)).check()


EXTREME = {
    "nothing": np.zeros((40, 3)),
    "tiny": 1e-45 * np.random.default_rng(0).integers(0, 3, (40, 3)),
    "large": 1e14 * np.random.default_rng(0).standard_normal((40, 3)),
    "mixed": 10.0 ** np.random.default_rng(0).integers(-44, 14, (40, 3)),
    "cancelling": np.tile([[1.0, -1.0, 0.0]], (40, 1)),
}


@pytest.mark.parametrize("kind", EXTREME)
def test_extreme_numbers_give_scores(kind):
    given = Dataset.from_matrix(EXTREME[kind], np.eye(4)[np.arange(40) % 4])
    result = CRAFTML(n_trees=3, feature_buckets=2, label_buckets=2, max_leaf=1).fit(given, run=ONE)
    result.check()
    scores = result.predict(given, 4, ONE).scores
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1)).all()
    assert np.isfinite(result.explain(given.select_rows([0]), 2).weights).all()


def test_labels_that_no_document_has():
    Y = np.zeros((20, 3))
    for labels in (Y, np.hstack([Y, np.ones((20, 1))])):
        given = Dataset.from_matrix(np.eye(20), labels)
        answer = CRAFTML(n_trees=2).fit(given, run=ONE).predict(given, 4, ONE)
        assert (answer.labels[:, 0] == (3 if labels.any() else -1)).all()
        assert (answer.labels[:, 1:] == -1).all()

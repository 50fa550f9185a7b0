"""FastXML and PfastreXML: kernels against NumPy references, worked examples of splits, damaged models, and presets."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csc_array, csr_array

from xmtc import XmtcError
from xmtc.core.checkpoint import Checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.core.sparse import to_kernel_arrays
from xmtc.data.in_memory import to_documents
from xmtc.labels.propensity import Propensity
from xmtc.linear import l1_logistic
from xmtc.methods.instance_tree import base as family
from xmtc.methods.instance_tree import tree_growth as growing
from xmtc.methods.instance_tree.fastxml import FastXML
from xmtc.methods.instance_tree.forest import compute_label_shares, is_preorder
from xmtc.methods.instance_tree.pfastrexml import PfastreXML, compute_label_centroids
from xmtc.methods.instance_tree.tree_growth import LEAF
from xmtc.pipeline import Pipeline

ONE = Run(threads=1)
STATE = np.uint64(88172645463325253)


@cache
def data() -> Dataset:
    return Pipeline.from_parameters("fastxml").prepare(to_documents(*make_planted_corpus(300, seed=4)), ONE).data


@cache
def model():
    return FastXML(n_trees=4).fit(data(), run=ONE)


@cache
def reranked():
    return PfastreXML(n_trees=4).fit(data(), run=ONE)


def random_problem(seed: int, n_rows: int = 60, n_columns: int = 25):
    rng = np.random.default_rng(seed)
    X = csr_array(
        np.where(rng.random((n_rows, n_columns)) < 0.3, rng.normal(size=(n_rows, n_columns)), 0), dtype=np.float32
    )
    signs = np.where(X @ rng.normal(size=n_columns) + rng.normal(size=n_rows) > 0, 1, -1).astype(np.int8)
    return X, signs, rng.uniform(0.5, 2, n_rows)


def objective(w: np.ndarray, X, signs: np.ndarray, costs: np.ndarray) -> float:
    return float(np.abs(w).sum() + costs @ np.logaddexp(0, -signs * (X @ w)))


def by_proximal_gradient(X: np.ndarray, signs: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Run `solve` by proximal gradient descent."""
    w, rate = np.zeros(X.shape[1]), 4 / (np.linalg.norm(X, 2) ** 2 * costs.max())
    for _ in range(20_000):
        moved = w + rate * X.T @ (costs * signs / (1 + np.exp(signs * (X @ w))))
        w = np.sign(moved) * np.maximum(np.abs(moved) - rate, 0)
    return w


def solved(
    X, signs: np.ndarray, costs: np.ndarray, eps: float = 1e-9, steps: int = 500
) -> tuple[np.ndarray, np.ndarray]:
    columns = csc_array(X)
    w, margins = np.zeros(X.shape[1]), np.zeros(X.shape[0])
    arrays = columns.indptr.astype(np.int64), columns.indices.astype(np.int32), columns.data
    l1_logistic.solve_l1_logistic(*arrays, signs, costs, eps, steps, 100, STATE, w, margins)
    return w, margins


class TestL1Logistic:
    @pytest.mark.parametrize("seed", range(4))
    def test_equals_proximal_gradient_descent(self, seed):
        X, signs, costs = random_problem(seed)
        w, margins = solved(X, signs, costs)
        expected = by_proximal_gradient(X.toarray().astype(float), signs, costs)
        np.testing.assert_allclose(w, expected, atol=1e-5)
        np.testing.assert_array_equal(w == 0, expected == 0)
        assert 0 < (w == 0).sum() < len(w)
        np.testing.assert_allclose(margins, X @ w, atol=1e-9)

    def test_few_steps_nearly_converge(self):
        X, signs, costs = random_problem(7)
        rough, exact = (solved(X, signs, costs, *limits)[0] for limits in ((0.01, 10), (1e-9, 500)))
        none, best = objective(0 * exact, X, signs, costs), objective(exact, X, signs, costs)
        assert best <= objective(rough, X, signs, costs) < best + 0.01 * (none - best)

    def test_slopes_equal_numpy(self):
        rng = np.random.default_rng(0)
        margins, signs, costs = (
            rng.normal(size=50) * 8,
            rng.choice([-1, 1], 50).astype(np.int8),
            rng.uniform(0.1, 3, 50),
        )
        slopes, curvatures = np.empty(50), np.empty(50)
        loss = l1_logistic.compute_derivatives(margins, signs, costs, slopes, curvatures)
        p = 1 / (1 + np.exp(-signs * margins))
        np.testing.assert_allclose(slopes, -costs * signs * (1 - p), rtol=1e-9)
        np.testing.assert_allclose(curvatures, costs * p * (1 - p), rtol=1e-9)
        assert loss == pytest.approx(-(costs @ np.log(p)))
        moved = l1_logistic.compute_loss(margins, 0.5, slopes, signs, costs)
        assert moved == pytest.approx(costs @ np.logaddexp(0, -signs * (margins + 0.5 * slopes)))

    def test_huge_margins_are_finite(self):
        X = csr_array(np.array([[1e15], [-1e15], [3e14]], np.float32))
        w, margins = solved(X, np.array([1, -1, -1], np.int8), np.full(3, 1e9))
        assert np.isfinite(w).all()
        assert np.isfinite(margins).all()

    @pytest.mark.parametrize("seed", range(3))
    def test_skipped_columns_have_zero_weight(self, seed):
        """The bound is exact: if neither sum exceeds 1, the best weight is 0."""
        X, signs, costs = random_problem(seed, n_columns=60)
        X = csr_array(X * np.where(np.arange(60) % 2, 0.1, 1).astype(np.float32))
        costs *= 0.5
        against, in_favour, columns = np.zeros(60), np.zeros(60), np.empty(60, np.int32)
        n = l1_logistic.bound_gradients(*to_kernel_arrays(X), np.arange(60), signs, costs, against, in_favour, columns)
        weighted = costs[:, None] * signs[:, None] * X.toarray()
        np.testing.assert_allclose(in_favour, np.maximum(weighted, 0).sum(axis=0), rtol=1e-6)
        np.testing.assert_allclose(against, np.maximum(-weighted, 0).sum(axis=0), rtol=1e-6)
        assert sorted(columns[:n]) == sorted(np.flatnonzero(np.abs(X.toarray()).sum(axis=0)))
        w, _ = solved(X, signs, costs)
        left_out = np.maximum(against, in_favour) <= 1
        assert left_out.sum() > 10
        assert (w[left_out] == 0).all()
        assert (w != 0).any()


def reference_partition(Y: np.ndarray, weights: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Run the alternating optimisation of FastXML in NumPy."""
    discounts, last = 1 / np.log2(np.arange(Y.shape[1]) + 2), -1.0
    gains = Y * weights / np.cumsum(discounts)[Y.sum(axis=1).astype(int) - 1][:, None]
    used = np.flatnonzero(Y.sum(axis=0))
    for _ in range(growing.MAX_ROUNDS):
        leaning, ndcg = np.zeros(Y.shape[1]), 0.0
        for side in (-1, 1):
            sums = gains[signs == side].sum(axis=0)
            ranking = used[np.lexsort((used, -sums[used]))]
            leaning[ranking] += side * discounts[: len(used)]
            ndcg += sums[ranking] @ discounts[: len(used)] / len(Y)
        lean = gains @ leaning
        signs = np.where(np.abs(lean) > 1e-12, np.sign(lean), signs)
        if ndcg - last < growing.MIN_GAIN:
            return signs
        last = ndcg
    return signs


class TestTreeGrowth:
    @pytest.mark.parametrize("seed", range(5))
    def test_partition_equals_the_reference(self, seed):
        rng = np.random.default_rng(seed)
        Y = (rng.random((80, 12)) < 0.2).astype(np.float32)
        Y[np.arange(80), rng.integers(12, size=80)] = 1
        weights = rng.uniform(0.2, 1, 12)
        given = Dataset.from_matrix(np.ones((80, 1)), Y)
        gains, discounts = family.compute_gains(given, weights)
        signs = rng.choice([-1, 1], 80).astype(np.int8)
        expected = reference_partition(Y, weights, signs.astype(float))
        labels = given.Y.indptr.astype(np.int64), given.Y.indices.astype(np.int32), gains
        rankings, sums, leaning = np.empty((2, 12), np.int32), np.zeros((2, 12)), np.zeros(12)
        n = growing.partition_by_ndcg(np.arange(80), *labels, discounts, signs, rankings, sums, leaning)
        np.testing.assert_array_equal(signs, expected)
        assert n == (expected > 0).sum()
        assert not sums.any()
        assert not leaning.any()

    def test_gains_match_a_worked_example(self):
        gains, discounts = family.compute_gains(
            Dataset.from_matrix(np.ones((2, 1)), [[1, 0, 1], [0, 0, 1]]), np.array([1, 1, 0.5])
        )
        np.testing.assert_allclose(discounts, [1, 1 / np.log2(3), 0.5])
        best = 1 + 1 / np.log2(3)
        np.testing.assert_allclose(gains, [1 / best, 0.5 / best, 0.5])
        dcg_gains, _ = family.compute_gains(
            Dataset.from_matrix(np.ones((2, 1)), [[1, 0, 1], [0, 0, 1]]), np.array([1, 1, 0.5]), is_normalised=False
        )
        np.testing.assert_allclose(dcg_gains, [1, 0.5, 0.5])

    @pytest.mark.parametrize("n", [0, 1, 2, 50])
    def test_sort_by_key_equals_sorted(self, n):
        keys = np.random.default_rng(n).integers(0, 9, 60).astype(float)
        items = np.random.default_rng(n).permutation(60).astype(np.int32)
        expected = sorted(items[:n], key=lambda item: (-keys[item], item))
        growing.sort_by_key_descending(keys, items, n)
        assert items[:n].tolist() == expected

    def test_useful_columns_equal_numpy(self):
        X, signs, costs = random_problem(3, n_columns=40)
        docs = np.array([5, 3, 50, 21, 8, 30, 31])
        signs, costs = signs[: len(docs)], costs[: len(docs)]
        arrays, n_features = to_kernel_arrays(X), 40
        against, in_favour, place = np.zeros(41), np.zeros(41), np.zeros(41, np.int64)
        columns = np.empty(41, np.int32)
        n, n_entries = growing.list_useful_columns(*arrays, docs, signs, costs, against, in_favour, place, columns)
        dense = X.toarray()[docs]
        weighted = costs[:, None] * signs[:, None] * dense
        useful = np.maximum(np.maximum(weighted, 0).sum(axis=0), np.maximum(-weighted, 0).sum(axis=0)) > 1
        assert 0 < useful.sum() < n_features
        assert sorted(columns[:n]) == np.flatnonzero(useful).tolist()
        assert not against.any()
        assert not in_favour.any()

        starts, rows, values = (
            np.empty(n + 2, np.int64),
            np.empty(n_entries + 7, np.int32),
            np.empty(n_entries + 7, np.float32),
        )
        growing.build_columns(*arrays, docs, place, columns, n, starts, rows, values)
        result = csc_array((values, rows, starts), shape=(7, n + 1)).toarray()
        np.testing.assert_array_equal(result, np.hstack([dense[:, columns[:n]], np.ones((7, 1))]))
        assert not place.any()

    def test_documents_are_reordered_by_margin(self):
        docs = np.array([4, 9, 2, 7, 5])
        assert growing.reorder_by_margin(docs, np.array([-1.0, 0.0, 2.0, -0.1, 3.0])) == 3
        assert docs.tolist() == [9, 2, 5, 4, 7]

    def test_leaf_labels_match_a_worked_example(self):
        Y = csr_array(np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 0]], np.float32))
        result, sums = np.empty(4, np.int32), np.zeros(4)
        labels = Y.indptr.astype(np.int64), Y.indices.astype(np.int32)
        n = growing.select_leaf_labels(np.array([0, 1, 2]), *labels, np.ones(4), 3, result, sums)
        assert result[:n].tolist() == [0, 1, 2]  # label 3 is as frequent, and comes last
        np.testing.assert_allclose(sums, [1 / 3, 1, 1 / 3, 0])
        sums[:] = 0
        n = growing.select_leaf_labels(np.array([0, 1, 2]), *labels, np.array([1, 0.2, 1, 0.9]), 3, result, sums)
        assert result[:n].tolist() == [0, 2, 3]  # label 1 is the most frequent, but its weight is low
        np.testing.assert_allclose(sums, [1 / 3, 0, 1 / 3, 0.3])

    def test_training_documents_reach_their_leaves(self):
        """The size of a leaf is the number of training documents that are assigned to it."""
        forest = model().forest
        leaves = forest.assign_leaves(*to_kernel_arrays(data().X), model().n_features)
        counted = np.bincount(leaves.ravel(), minlength=len(forest.sizes))
        in_leaf = forest.negative == LEAF
        assert (counted[~in_leaf] == 0).all()
        np.testing.assert_array_equal(counted[in_leaf], forest.sizes[in_leaf])
        inner = np.flatnonzero(~in_leaf)
        first = forest.roots[np.searchsorted(forest.roots, inner, side="right") - 1]
        assert (forest.sizes[inner] == forest.sizes[inner + 1] + forest.sizes[first + forest.negative[inner]]).all()

    def test_equal_documents_are_one_leaf(self):
        same = Dataset.from_matrix(np.ones((40, 3)), np.eye(2)[np.arange(40) % 2])
        result = FastXML(n_trees=2).fit(same, run=ONE)
        assert result.forest.negative.tolist() == [LEAF, LEAF]
        np.testing.assert_allclose(result.predict(same, 2, ONE).scores, 0.5)

    def test_labels_of_a_leaf_are_limited(self):
        result = FastXML(n_trees=2, leaf_labels=3, max_leaf=50).fit(data(), run=ONE).forest
        assert np.diff(result.ends)[result.negative == LEAF].max() == 3


def slow_scores(result, X: np.ndarray) -> np.ndarray:
    """Return scores of shape (n_docs, n_labels); traverses the trees in Python."""
    forest, total = result.forest, np.zeros((len(X), result.n_labels))
    for tree in range(forest.n_trees):
        for doc, x in enumerate(np.hstack([X, np.ones((len(X), 1))])):
            node = root = forest.roots[tree]
            while forest.negative[node] != LEAF:
                here = slice(forest.ends[node], forest.ends[node + 1])
                margin = forest.values[here] @ x[forest.items[here]]
                node = node + 1 if margin >= 0 else root + forest.negative[node]
            here = slice(forest.ends[node], forest.ends[node + 1])
            total[doc, forest.items[here]] += forest.values[here] / forest.n_trees
    return total


def assert_ranked_as(answers, expected: np.ndarray) -> None:
    for labels, scores, wanted in zip(answers.labels, answers.scores, expected, strict=True):
        named = labels >= 0
        assert named.sum() == min(len(labels), (wanted > 0).sum())
        np.testing.assert_allclose(scores[named], wanted[labels[named]], rtol=1e-4)
        np.testing.assert_allclose(scores[named], np.sort(wanted)[::-1][: named.sum()], rtol=1e-4)


class TestModels:
    def test_votes_equal_the_reference(self):
        documents = data().select_rows(slice(0, 40))
        assert_ranked_as(model().predict(documents, 7, ONE), slow_scores(model(), documents.X.toarray()))

    def test_reranking_equals_the_reference(self):
        documents, result = data().select_rows(slice(0, 40)), reranked()
        X, Y = data().X.toarray(), data().Y.toarray()
        unit = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
        centres = (Y.T @ unit) / Y.sum(axis=0)[:, None]
        np.testing.assert_allclose(compute_label_centroids(data(), Y.sum(axis=0)).toarray(), centres, atol=1e-6)
        distances = ((unit[:40, None] - centres[None]) ** 2).sum(axis=2)
        near = 1 / (1 + np.exp(result.gamma / 2 * distances))
        expected = slow_scores(result, documents.X.toarray()) ** result.alpha * near ** (1 - result.alpha)
        assert_ranked_as(result.predict(documents, 7, ONE), expected)

    def test_propensity_weights_favour_rare_labels(self, monkeypatch):
        """Splits weigh labels by inverse propensity."""
        Y, given = np.zeros((40, 3)), []
        Y[:, 0], Y[:4, 1], Y[20:, 2] = 1, 1, 1
        monkeypatch.setattr(
            family, "grow_tree", lambda *arguments: given.append(arguments) or growing.grow_tree(*arguments)
        )
        PfastreXML(n_trees=1).fit(Dataset.from_matrix(np.eye(40), Y), run=ONE)
        inverse, best = Propensity().inverse(Y.sum(axis=0), 40), 1 + 1 / np.log2(3)
        np.testing.assert_allclose(given[0][1][2][:2], inverse[:2] / inverse.max() / best)

    def test_settings_of_the_authors_code(self, monkeypatch):
        """The DCG with inverse propensities is maximised, and leaves store frequencies times inverse propensities."""
        Y, given = np.zeros((40, 3)), []
        Y[:, 0], Y[:4, 1], Y[20:, 2] = 1, 1, 1
        corpus = Dataset.from_matrix(np.eye(40), Y)
        monkeypatch.setattr(
            family, "grow_tree", lambda *arguments: given.append(arguments) or growing.grow_tree(*arguments)
        )
        result = PfastreXML(n_trees=1, max_leaf=50, preset="authors").fit(corpus, run=ONE)
        weights = Propensity().inverse(Y.sum(axis=0), 40)
        weights /= weights.max()
        np.testing.assert_allclose(given[0][1][2], weights[corpus.Y.indices])
        np.testing.assert_allclose(result.forest.values, Y.mean(axis=0) * weights, rtol=1e-6)  # one leaf

    def test_presets_have_the_propensities_of_the_papers(self):
        assert (PfastreXML(preset="amazon").A, PfastreXML(preset="amazon").B) == (0.6, 2.6)
        assert PfastreXML(preset="wikipedia", A=0.7).A == 0.7
        both = PfastreXML(preset="amazon-authors")
        assert (both.A, both.B, both.objective, both.weighted_leaves) == (0.6, 2.6, "dcg", True)

    def test_shares_are_fractions_of_training_documents(self):
        """Fraction of the training documents of a node that have the label."""
        forest, (begin, end) = model().forest, model().forest.roots[:2]
        leaves, has_label = (
            forest.assign_leaves(*to_kernel_arrays(data().X), model().n_features)[:, 0],
            data().Y.toarray()[:, 7] > 0,
        )
        shares = np.empty(end - begin)
        nodes = forest.negative[begin:end], forest.sizes[begin:end], forest.ends[begin : end + 1]
        compute_label_shares(7, *nodes, forest.items, forest.values, shares)
        passing = {node: [] for node in range(end)}
        for document, leaf in enumerate(leaves):
            for node in [leaf, *(above for above, _ in forest.iterate_path(0, leaf))]:
                passing[node].append(has_label[document])
        np.testing.assert_allclose(shares, [np.mean(passing[node]) for node in range(end)], atol=1e-6)

    def test_explanations_sum_to_the_change_of_shares(self):
        """If one word decides every split, its weight is the whole change from the root to the leaf."""
        X, Y = np.eye(2)[np.arange(60) % 2], np.eye(2)[np.arange(60) % 2]
        result = FastXML(n_trees=3, C=100.0).fit(Dataset.from_matrix(X, Y), run=ONE)
        explained = result.explain(Dataset.from_matrix(X[:1]), 0)
        assert explained.ids.tolist() == [0]
        assert 0.2 < explained.weights[0] <= 0.5  # from a half to all; the remainder belongs to the bias
        against = result.explain(Dataset.from_matrix(X[:1]), 1)
        assert against.weights[0] == pytest.approx(-explained.weights[0])

    def test_forest_contains_the_same_trees(self):
        four, forest = FastXML(n_trees=4).fit(data(), run=ONE).forest, model().forest
        one = FastXML(n_trees=1).fit(data(), run=ONE).forest
        assert four.n_trees == 4
        np.testing.assert_array_equal(forest.negative[: forest.roots[1]], one.negative)
        np.testing.assert_array_equal(forest.values[: forest.ends[forest.roots[1]]], one.values)

    def test_interrupted_training_resumes(self, tmp_path, monkeypatch):
        whole, recipe = model().forest, FastXML(n_trees=4)
        run = replace(ONE, checkpoint=Checkpoint(tmp_path / "kept"))
        with monkeypatch.context() as patch:
            calls = iter(range(10))
            patch.setattr(family, "grow_tree", lambda *given: growing.grow_tree(*given) if next(calls) < 2 else 1 / 0)
            with pytest.raises(ZeroDivisionError):
                recipe.fit(data(), run=run)
        run.checkpoint.release()
        grown = []
        monkeypatch.setattr(family, "grow_tree", lambda *given: grown.append(1) or growing.grow_tree(*given))
        again = recipe.fit(data(), run=run).forest
        assert len(grown) == 2
        for ours, theirs in zip(again.arrays, whole.arrays, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    def test_too_little_memory_is_reported_before_training(self, monkeypatch):
        monkeypatch.setattr("xmtc.core.memory.get_memory_limit", lambda: 1000.0)
        with pytest.raises(XmtcError, match=r"^Growing 1 trees in parallel would need .* use fewer threads"):
            FastXML().fit(data(), run=ONE)


def broken(array: np.ndarray, place: int, value: float) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


class TestDamagedModels:
    @pytest.mark.parametrize(
        ("name", "place", "value"),
        [
            ("roots", 0, 1), ("roots", 1, 0), ("roots", -1, 10**9),
            ("negative", 0, 0), ("negative", 0, 1), ("negative", 0, 10**6), ("negative", 0, -7), ("negative", 0, LEAF),
            ("sizes", 0, 0), ("ends", 1, -1), ("ends", 2, 10**12), ("items", 0, -1), ("items", 0, 10**6),
            ("items", -1, 10**6), ("items", -1, 0), ("values", -1, -0.1), ("values", -1, 1.5),
        ],
    )  # fmt: skip
    def test_damaged_forest_is_rejected(self, name, place, value):
        model().check()
        forest = replace(model().forest, **{name: broken(getattr(model().forest, name), place, value)})
        with pytest.raises(ValueError, match=r"(nodes|items or values) of a forest"):
            replace(model(), forest=forest).check()

    @pytest.mark.parametrize(
        ("negative", "is_whole"),
        [
            ([LEAF], True),
            ([4, 3, LEAF, LEAF, LEAF], True),
            ([3, 4, LEAF, LEAF, LEAF], False),  # crossing children
            ([2, LEAF, LEAF, LEAF], False),  # an unreachable node
            ([3, LEAF, LEAF], False),
            ([1, LEAF, LEAF], False),
        ],
    )
    def test_preorder_is_checked(self, negative, is_whole):
        nodes = np.array([LEAF, *negative, LEAF], np.int32)
        roots = np.array([0, 1, len(negative) + 1, len(negative) + 2])
        assert is_preorder(roots, nodes, np.empty(len(nodes), np.int64)) == is_whole

    @pytest.mark.parametrize("name", ["negative", "sizes", "items", "values"])
    def test_inconsistent_forest_sizes_are_rejected(self, name):
        forest = replace(model().forest, **{name: getattr(model().forest, name)[:-1]})
        with pytest.raises(ValueError, match=r"(nodes|items or values) of a forest"):
            replace(model(), forest=forest).check()

    @pytest.mark.parametrize(
        ("name", "place", "value"), [("starts", 1, -1), ("starts", -1, 1), ("labels", 0, -1), ("labels", 0, 40)]
    )
    def test_damaged_centres_are_rejected(self, name, place, value):
        reranked().check()
        with pytest.raises(ValueError, match=r"do not fit|is out of range"):
            replace(reranked(), **{name: broken(getattr(reranked(), name), place, value)}).check()
        with pytest.raises(ValueError, match=r"do not fit|is out of range"):
            replace(reranked(), squares=reranked().squares[:-1]).check()


EXTREME = {
    "nothing": np.zeros((40, 3)),
    "tiny": 1e-45 * np.random.default_rng(0).integers(0, 3, (40, 3)),
    "large": 1e14 * np.random.default_rng(0).standard_normal((40, 3)),
    "mixed": 10.0 ** np.random.default_rng(0).integers(-44, 14, (40, 3)),
}


@pytest.mark.parametrize("C", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize("kind", EXTREME)
@pytest.mark.parametrize("method", [FastXML, PfastreXML])
def test_extreme_numbers_give_scores(method, kind, C):
    given = Dataset.from_matrix(EXTREME[kind], np.eye(4)[np.arange(40) % 4])
    result = method(n_trees=3, C=C).fit(given, run=ONE)
    result.check()
    scores = result.predict(given, 4, ONE).scores
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1)).all()
    assert np.isfinite(result.explain(given.select_rows([0]), 2).weights).all()


def test_stored_zeros_are_not_features():
    """A column that contains only stored zeros must not be counted repeatedly."""
    X = csr_array((np.zeros(400, np.float32), np.zeros(400, np.int32), np.arange(401)), shape=(400, 1))
    given = Dataset.from_matrix(X, np.eye(4)[np.arange(400) % 4])
    assert given.X.nnz == 400
    assert FastXML(n_trees=1).fit(given, run=ONE).forest.negative.tolist() == [LEAF]


@pytest.mark.parametrize("method", [FastXML, PfastreXML])
def test_labels_without_documents_are_never_predicted(method):
    Y = np.zeros((20, 3))
    for labels in (Y, np.hstack([Y, np.ones((20, 1))])):
        given = Dataset.from_matrix(np.eye(20), labels)
        answer = method(n_trees=2).fit(given, run=ONE).predict(given, 4, ONE)
        assert (answer.labels[:, 0] == (3 if labels.any() else -1)).all()
        assert (answer.labels[:, 1:] == -1).all()

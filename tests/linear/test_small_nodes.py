"""Batches of small nodes: the same weights as one node at a time, independent of the other nodes of a batch."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, random_array

from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.linear import blocks as blocks_module
from xmtc.linear import solver as solver_module
from xmtc.linear.blocks import SMALL_BLOCK_COST, TrainingBlock, group_small_blocks
from xmtc.linear.node_data import gather_documents, to_node_documents
from xmtc.linear.packing import SparseWeights, pack_weights, prune_weights
from xmtc.linear.small_nodes import pack_batched_weights, split_weights, train_small_nodes
from xmtc.linear.solver import Solver
from xmtc.methods.label_tree.bonsai import Bonsai
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.label_tree.plt import PLT

N_DOCS, N_FEATURES = 120, 400
WIDTHS = (2, 3, 2, 17, 5)
FIELDS = ("bias", "features", "ends", "slots", "weights")


def documents() -> csr_array:
    rng = np.random.default_rng(0)
    shape = N_DOCS, N_FEATURES
    return random_array(shape, density=0.05, format="csr", dtype=np.float32, rng=rng)


def make_blocks(widths=WIDTHS) -> list[TrainingBlock]:
    """Return the blocks of one level: nodes with these numbers of children, to which documents belong at random."""
    rng = np.random.default_rng(1)
    members = csc_array((rng.random((N_DOCS, sum(widths))) < 0.15).astype(np.float32))
    by_child = members.indptr.astype(np.int64), members.indices
    blocks, first = [], 0
    for number, width in enumerate(widths):
        children = np.arange(first, first + width)
        rows = np.flatnonzero(members[:, children].sum(axis=1)).astype(np.int32)
        blocks.append(TrainingBlock(0, number, number, 0, True, rows, children, by_child))
        first += width
    return blocks


def train(solver: Solver, blocks: list[TrainingBlock], weights: np.ndarray | None = None) -> list[SparseWeights]:
    X = documents()
    batch = train_small_nodes(solver, X, to_node_documents(X).squares, weights, blocks, min_weight=0.01)
    return split_weights(batch, [len(block.children) for block in blocks])


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2, N_DOCS, dtype=np.float32)], ids=["plain", "weighted"])
def test_batched_nodes_have_the_weights_of_single_nodes(loss, weights):
    solver, X = Solver(loss, C=2.0, max_passes=7, eps=0), documents()
    for block, node in zip(make_blocks(), train(solver, make_blocks(), weights), strict=True):
        doc_weights = None if weights is None else weights[block.rows]
        gathered = gather_documents(X, block.rows, to_node_documents(X).squares)
        alone = prune_weights(solver.solve_node(gathered, block.signs(), len(block.children), doc_weights), 0.01)
        np.testing.assert_array_equal(node.features, alone.features)
        np.testing.assert_array_equal(node.ends, alone.ends)
        np.testing.assert_array_equal(node.slots, alone.slots)
        np.testing.assert_allclose(node.weights, alone.weights, atol=1e-5)
        np.testing.assert_allclose(node.bias, alone.bias, atol=1e-5)
        assert len(node.weights) > 50


def test_weights_do_not_depend_on_other_nodes_of_the_batch():
    """They are equal to the last bit, because a resumed training has other batches."""
    for block, node in zip(make_blocks(), train(Solver(), make_blocks()), strict=True):
        (alone,) = train(Solver(), [block])
        assert all(np.array_equal(getattr(node, field), getattr(alone, field)) for field in FIELDS)


def test_batched_nodes_are_packed_as_single_nodes():
    X, blocks = documents(), make_blocks()
    widths = [len(block.children) for block in blocks]
    batch = train_small_nodes(Solver(), X, to_node_documents(X).squares, None, blocks, min_weight=0.01)
    for packed, rows in zip(pack_batched_weights(batch, widths), split_weights(batch, widths), strict=True):
        expected = pack_weights(rows)
        assert (packed.scale, packed.n_buckets) == (expected.scale, expected.n_buckets)
        for field in ("bias", "table", "entries"):
            np.testing.assert_array_equal(getattr(packed, field), getattr(expected, field))


def test_nodes_without_weights_are_packed():
    X, blocks = documents(), make_blocks((2, 3))
    batch = train_small_nodes(Solver(), X, to_node_documents(X).squares, None, blocks, min_weight=1e9)
    for packed, width in zip(pack_batched_weights(batch, [2, 3]), (2, 3), strict=True):
        assert (len(packed.bias), len(packed.entries), len(packed.table)) == (width, 0, 2)
        assert packed.bias.any()


def block(n_docs: int, level: tuple, is_leaf: bool = True, n_children: int = 24) -> TrainingBlock:
    return TrainingBlock(0, 0, 0, 0, is_leaf, np.arange(n_docs), np.arange(n_children), level)


def test_small_blocks_of_a_level_are_grouped():
    one, other = ((np.zeros(25, np.int64), np.zeros(0, np.int32)) for _ in range(2))
    third = SMALL_BLOCK_COST // 64 // 3  # a third of the cost of a group: 24 labels cost 64 per document
    order = [
        *(block(third, one) for _ in range(4)),
        block(third, other),
        block(third, other, is_leaf=False),
        block(4 * third, one),
        block(5, one),
        block(6 * third, one),
        block(6, one),
    ]
    groups = list(group_small_blocks(order, 6 * third))
    assert [len(group) for group in groups] == [3, 1, 1, 1, 1, 1, 1, 1]
    assert [member for group in groups for member in group] == order
    assert [group[0].is_small(6 * third) for group in groups] == [True] * 4 + [False, True, False, True]
    assert list(group_small_blocks([], 10)) == []


def test_block_with_all_documents_is_not_grouped():
    level = np.zeros(25, np.int64), np.zeros(0, np.int32)
    assert [len(group) for group in group_small_blocks([block(9, level), block(10, level), block(9, level)], 10)] == [
        1,
        1,
        1,
    ]


@pytest.mark.filterwarnings("ignore:.*classifiers did not converge")
@pytest.mark.parametrize("method", [Parabel, Bonsai, PLT])
def test_batches_and_single_nodes_predict_the_same(method, monkeypatch):
    monkeypatch.setattr(solver_module, "MAX_SPARSE_DENSITY", 1)  # the documents are dense, the batches for sparse ones
    monkeypatch.setattr(solver_module, "MAX_SPARSE_SQUARE", np.inf)
    rng = np.random.default_rng(3)
    Y = csr_array((rng.random((N_DOCS, 90)) < 0.05).astype(np.float32))
    data, recipe = Dataset.from_matrix(documents(), Y), method(**method.quick_parameters, eps=0, max_passes=6)
    small = recipe.fit(data, run=Run(2)).predict(data)
    monkeypatch.setattr(blocks_module, "SMALL_BLOCK_COST", 0)
    large = recipe.fit(data, run=Run(2)).predict(data)
    np.testing.assert_array_equal(small.labels, large.labels)
    np.testing.assert_allclose(small.scores, large.scores, atol=1e-4)

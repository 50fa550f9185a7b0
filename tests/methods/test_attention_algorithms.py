"""Algorithms 1 to 4 and the trees of appendix A of AttentionXML, written line by line as the paper has them, beside
xmtc's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy.sparse import csr_array

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")

from xmtc.core.dataset import Dataset, Tokens  # noqa: E402
from xmtc.core.run import Run  # noqa: E402
from xmtc.labels.tree import LabelTree, compress_tree, from_groups, grow_trees  # noqa: E402
from xmtc.methods.attention.attention_xml import AttentionXML  # noqa: E402
from xmtc.methods.attention.level_training import (  # noqa: E402
    LevelData,
    build_children_table,
    predict_training_candidates,
)
from xmtc.methods.attention.model import AttentionModel, RecurrentDesign, TreeLevel  # noqa: E402
from xmtc.methods.attention.network import RecurrentNetwork  # noqa: E402
from xmtc.nn.batches import TokenLoader  # noqa: E402
from xmtc.nn.network import TrainedNetwork, Weights  # noqa: E402

CPU, ONE = torch.device("cpu"), Run(threads=1, device="cpu")
N_WORDS, N_DOCS = 30, 25
Node = tuple[int, int]  # depth in the uncompressed tree, and number
Parents = dict[Node, Node]


def make_binary_tree(depth: int, n_labels: int, rng: np.random.Generator) -> LabelTree:
    """Return a tree T0 with 2 ** depth nodes above the labels, which have one label or more each."""
    levels = [[np.array([2 * i, 2 * i + 1]) for i in range(2**level)] for level in range(depth)]
    cuts = np.sort(rng.choice(np.arange(1, n_labels), 2**depth - 1, replace=False))
    return from_groups([*levels, np.split(rng.permutation(n_labels), cuts)])


def list_parents(tree: LabelTree) -> Parents:
    """Return Pa(n) of every node of a tree."""
    return {
        (depth + 1, int(child)): (depth, parent)
        for depth, edges in enumerate(tree.levels)
        for parent in range(edges.shape[0])
        for child in edges.indices[edges.indptr[parent] : edges.indptr[parent + 1]]
    }


def iterate_ancestors(node: Node, parents: Parents) -> Iterator[Node]:
    while node in parents:
        node = parents[node]
        yield node


def algorithm_1(parents: Parents, n_labels: int, depth: int, c: int, height: int) -> Parents:
    """Return Pa of the compressed tree T_H."""
    leaves = [(depth + 1, label) for label in range(n_labels)]
    compressed = {leaf: parents[leaf] for leaf in leaves}
    S = [set(compressed.values())]  # S_0: parents of leaves
    for h in range(1, height + 1):
        if h < height:
            S.append({list(iterate_ancestors(node, parents))[c - 1] for node in S[h - 1]})
        else:
            S.append({(0, 0)})
        for n in S[h]:
            for below in S[h - 1]:
                if n in iterate_ancestors(below, parents):
                    compressed[below] = n
    return compressed


def algorithm_2(Y: np.ndarray, parents: Parents, depth: int) -> dict[tuple[int, Node], bool]:
    """Return z of every document i and node n."""
    z = {(i, n): False for i in range(len(Y)) for n in parents}
    for i, labels in enumerate(Y):
        for j in np.flatnonzero(labels):
            n = (depth + 1, int(j))
            while n in parents:
                z[i, n] = True
                n = parents[n]
    return z


def collect_labels(parents: Parents, depth: int) -> dict[Node, frozenset[int]]:
    """Return the labels below every node of a tree, which identify the node."""
    below: dict[Node, set[int]] = {}
    for node in parents:
        if node[0] == depth + 1:
            for ancestor in [node, *iterate_ancestors(node, parents)]:
                below.setdefault(ancestor, set()).add(node[1])
    return {node: frozenset(labels) for node, labels in below.items()}


def list_members(tree: LabelTree) -> list[list[frozenset[int]]]:
    """Return the labels below each node, level by level below the root."""
    matrices = tree.memberships(csr_array(np.eye(tree.n_labels, dtype=np.float32)))
    return [[frozenset(np.flatnonzero(column).tolist()) for column in matrix.toarray().T] for matrix in matrices]


CASES = [(depth, c, height) for depth in (3, 4, 6) for c in (1, 2, 3) for height in range(1, -(-depth // c) + 1)]


@pytest.mark.parametrize(("depth", "c", "height"), CASES)
def test_algorithms_1_and_2(depth, c, height):
    rng = np.random.default_rng(100 * depth + 10 * c + height)
    n_labels = 5 * 2**depth
    tree = make_binary_tree(depth, n_labels, rng)
    result = compress_tree(tree, c, height)
    expected = algorithm_1(list_parents(tree), n_labels, depth, c, height)
    labels = collect_labels(expected, depth)
    members = list_members(result)

    assert len(result.levels) == height + 1
    assert {labels[n] for n in expected} == {each for level in members for each in level}
    found = {  # labels of each child and its parent
        (members[level][child], members[level - 1][parent] if level else frozenset(range(n_labels)))
        for level, edges in enumerate(result.levels)
        for parent, child in zip(*edges.nonzero(), strict=True)
    }
    assert found == {(labels[n], labels[expected[n]]) for n in expected}

    Y = rng.random((9, n_labels)) < 0.05
    z = algorithm_2(Y, expected, depth)
    nodes = {(i, labels[n]): is_true for (i, n), is_true in z.items()}
    for matrix, level in zip(result.memberships(csr_array(Y.astype(np.float32))), members, strict=True):
        np.testing.assert_array_equal(matrix.toarray() > 0, [[nodes[i, each] for each in level] for i in range(len(Y))])


@pytest.mark.parametrize(
    ("n_labels", "arity", "height", "sizes"),
    [
        (670_091, 8, 3, (2048, 16_384, 131_072, 670_091)),  # Amazon-670K
        (501_008, 64, 1, (8192, 501_008)),  # Wiki-500K
        (2_812_281, 8, 3, (8192, 65_536, 524_288, 2_812_281)),  # Amazon-3M
    ],
)
def test_sizes_of_the_trees_in_appendix_a(n_labels, arity, height, sizes):
    """Parabel's tree halves the labels until no part has more than K."""
    depth = next(depth for depth in range(64) if -(-n_labels // 2**depth) <= arity)
    levels = [pair_nodes(2**level, 2 ** (level + 1)) for level in range(depth)]
    levels = compress_tree(LabelTree((*levels, pair_nodes(2**depth, n_labels))), int(np.log2(arity)), height).levels
    assert (levels[0].shape[0], *(level.shape[1] for level in levels)) == (1, *sizes)


def pair_nodes(n_parents: int, n_children: int) -> csr_array:
    """Return the edges from parents to equal shares of the children."""
    ends = np.linspace(0, n_children, n_parents + 1).astype(np.int64)
    return csr_array((np.ones(n_children, np.float32), np.arange(n_children), ends), shape=(n_parents, n_children))


def test_depth_of_a_grown_tree():
    """The depth that the trees of appendix A need: 2,000 labels, halved until no part has more than 8, in 8 steps."""

    def halve(part, *_):
        return part[: len(part) // 2], part[len(part) // 2 :]

    assert len(grow_trees(2000, 8, [(0,)], halve, ONE)[0].levels) == 8 + 1


def make_problem(seed: int) -> tuple[LabelTree, list[RecurrentNetwork], Tokens, np.ndarray]:
    """Return a tree of H = 2, a network with random weights per level, documents, and their labels."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    tree = compress_tree(make_binary_tree(4, 60, rng), 2, 2)
    lengths = rng.integers(2, 9, N_DOCS)
    words = Tokens(
        rng.integers(1, N_WORDS, lengths.sum()).astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]), N_WORDS
    )
    networks = []
    for edges in tree.levels:
        sizes = {"n_words": N_WORDS, "dimension": 12, "hidden": 4, "layers": (4,), "n_labels": edges.shape[1]}
        network = RecurrentDesign(**sizes, pooling="attention").build().eval()
        torch.nn.init.normal_(network.head.rows.weight, std=3)  # scores that differ, without ties of inactive units
        torch.nn.init.normal_(network.head.layers.output.weight)
        torch.nn.init.constant_(network.head.layers.first.bias, 1)
        networks.append(network)
    return tree, networks, words, rng.random((N_DOCS, 60)) < 0.04


def predict_probabilities(network: RecurrentNetwork, words: Tokens) -> np.ndarray:
    """Return P(node | parent) of all nodes of a level, shape (n_docs, n_nodes)."""
    batch = TokenLoader(words, CPU).load_batch(np.arange(N_DOCS))
    with torch.no_grad():
        return network(batch).sigmoid().numpy()[np.argsort(batch.docs)]


def list_children(edges: csr_array, nodes: list[int]) -> list[int]:
    return [int(child) for node in nodes for child in edges.indices[edges.indptr[node] : edges.indptr[node + 1]]]


@pytest.mark.parametrize("n_candidates", [1, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_algorithm_3(seed, n_candidates):
    """Lines 1 to 11: the candidates of every level, and ẑ of those that were selected."""
    tree, networks, words, Y = make_problem(seed)
    Z = tree.memberships(csr_array(Y.astype(np.float32)))
    z = [matrix.toarray() > 0 for matrix in Z]
    scores = [predict_probabilities(network, words) for network in networks]
    expected: list[list[tuple[list[int], list[float]]]] = [[] for _ in tree.levels]
    for i in range(N_DOCS):
        candidates, z_hat = list_children(tree.levels[0], [0]), {}  # c^1
        parent_of, above = dict.fromkeys(candidates), {None: 1.0}
        for d in range(1, len(tree.levels)):
            z_hat = {n: scores[d - 1][i, n] * above[parent_of[n]] for n in candidates}
            selected = sorted(candidates, key=lambda n: (not z[d - 1][i, n], -z_hat[n]))[:n_candidates]
            expected[d].append((selected, [z_hat[n] for n in selected]))
            candidates = list_children(tree.levels[d], selected)
            parent_of = {n: s for s in selected for n in list_children(tree.levels[d], [s])}
            above = z_hat

    loader, parents = TokenLoader(words, CPU), None
    for d in range(1, len(tree.levels)):
        data = LevelData(loader, Z[d - 1], parents)
        children = build_children_table(tree.levels[d - 1])
        parents = predict_training_candidates(networks[d - 1], children, data, n_candidates, ONE)
        for i, (selected, selected_scores) in enumerate(expected[d]):
            assert parents.labels[i][: len(selected)].tolist() == selected
            np.testing.assert_allclose(parents.scores[i][: len(selected)], selected_scores, rtol=1e-4)


def test_a_level_starts_with_the_weights_of_the_level_above():
    """Algorithm 3, line 12: all weights but the attention rows, whose nodes are other ones."""
    method, vectors = AttentionXML(hidden=4, layers=(6, 5), dimension=3), np.ones((N_WORDS, 3), np.float32)
    above = method.build_network(method.build_design(vectors, 7), None, vectors, 0, ONE, CPU)
    for weight in above.parameters():
        torch.nn.init.normal_(weight)
    below = method.build_network(method.build_design(vectors, 20), above, vectors, 1, ONE, CPU)
    weights, kept = below.state_dict(), above.state_dict()
    assert {name for name in kept if not torch.equal(weights[name], kept[name])} == {"head.rows.weight"}
    assert weights["head.rows.weight"].shape == (20, 8)


@pytest.mark.parametrize("n_candidates", [1, 3, 100])
@pytest.mark.parametrize("seed", range(3))
def test_algorithm_4(seed, n_candidates):
    tree, networks, words, _ = make_problem(seed)
    levels = []
    for network, edges in zip(networks, tree.levels, strict=True):
        sizes = {"n_words": N_WORDS, "dimension": 12, "hidden": 4, "layers": (4,), "n_labels": edges.shape[1]}
        trained = TrainedNetwork(
            design=RecurrentDesign(**sizes, pooling="attention"), weights=Weights.from_network(network)
        )
        levels.append(TreeLevel(network=trained, children=build_children_table(edges)))
    model = AttentionModel(n_labels=60, views={"words": N_WORDS}, n_candidates=n_candidates, levels=tuple(levels))
    result = model.predict(Dataset({"words": words}), 5, ONE)

    scores = [predict_probabilities(network, words) for network in networks]
    for i in range(N_DOCS):
        candidates = list_children(tree.levels[0], [0])  # c^1
        z_hat, selected = {n: scores[0][i, n] for n in candidates}, []
        for d in range(len(tree.levels)):
            if d > 0:
                parent_of = {n: s for s in selected for n in list_children(tree.levels[d], [s])}
                z_hat = {n: scores[d][i, n] * z_hat[parent] for n, parent in parent_of.items()}
            n_selected = n_candidates if d < len(tree.levels) - 1 else 5
            selected = sorted(z_hat, key=lambda n: -z_hat[n])[:n_selected]
        assert result.labels[i][: len(selected)].tolist() == selected
        np.testing.assert_allclose(result.scores[i][: len(selected)], [z_hat[n] for n in selected], rtol=1e-4)

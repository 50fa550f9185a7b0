"""AttentionXML against reference loops for its equations and worked examples of Algorithms 1 to 4."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from math import inf

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")

from xmtc import Classifier  # noqa: E402
from xmtc.core.checkpoint import Checkpoint  # noqa: E402
from xmtc.core.dataset import Dataset, Tokens  # noqa: E402
from xmtc.core.hyperparameters import UnparsedValue  # noqa: E402
from xmtc.core.predictions import NO_LABEL, Predictions  # noqa: E402
from xmtc.core.run import Run  # noqa: E402
from xmtc.errors import XmtcError  # noqa: E402
from xmtc.labels.tree import LabelTree, compress_tree, from_groups  # noqa: E402
from xmtc.methods.attention import base as family  # noqa: E402
from xmtc.methods.attention.attention_xml import AttentionXML  # noqa: E402
from xmtc.methods.attention.level_training import (  # noqa: E402
    LevelData,
    binary_cross_entropy,
    build_children_table,
    predict_training_candidates,
    select_positives_first,
)
from xmtc.methods.attention.model import RecurrentDesign, predict_level  # noqa: E402
from xmtc.methods.attention.network import MaxPooling, MultiLabelAttention, RecurrentNetwork  # noqa: E402
from xmtc.methods.attention.presets import ATTENTION_XML_PRESETS, XML_RNN_PRESETS  # noqa: E402
from xmtc.methods.attention.xml_rnn import XMLRNN  # noqa: E402
from xmtc.methods.autoencoder.model import AutoencoderDesign  # noqa: E402
from xmtc.nn import distributed, training  # noqa: E402
from xmtc.nn.batches import LabelLoader, TokenLoader  # noqa: E402
from xmtc.nn.devices import select_device  # noqa: E402
from xmtc.nn.lstm import RecurrentEncoder  # noqa: E402
from xmtc.nn.training import TrainingOptions, TrainingState, clip_gradients  # noqa: E402
from xmtc.parameters import build_method  # noqa: E402
from xmtc.text.string_index import StringIndex  # noqa: E402

CPU, ONE = torch.device("cpu"), Run(threads=1, device="cpu")
PLAN = TrainingOptions(epochs=9, rate=1.0, average_from=0, average_every=1, patience=9, seed=0)


def tokens(*documents: list[int], n_words: int = 20) -> Tokens:
    offsets = np.cumsum([0, *map(len, documents)])
    return Tokens(np.array([word for words in documents for word in words], np.int32), offsets, n_words)


def build_network(n_labels: int, n_words: int, dimension: int, hidden: int, sparse: bool = False) -> RecurrentNetwork:
    sizes = {"n_words": n_words, "dimension": dimension, "hidden": hidden, "layers": (hidden,), "n_labels": n_labels}
    return RecurrentDesign(**sizes, pooling="attention").build(sparse=sparse)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference_lstm(x: np.ndarray, W, U, b, h, c) -> np.ndarray:
    """Compute eq. 2 step by step; PyTorch's gate order is i, f, g, o."""
    states = []
    for step in x:
        i, f, g, o = np.split(W @ step + U @ h + b, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.array(states)


def test_encoder_is_eq_2_in_both_directions():
    torch.manual_seed(0)
    encoder = RecurrentEncoder(20, 5, 4, 0.0, 0.0).eval()
    torch.nn.init.normal_(encoder.first_state)
    documents = [3, 1, 4, 1, 5], [9, 2], [6, 5, 3]
    batch = TokenLoader(tokens(*documents), CPU).load_batch(np.arange(3))
    with torch.no_grad():
        states = encoder(batch).numpy()
    w = {name: value.detach().numpy() for name, value in encoder.named_parameters()}
    assert batch.docs.tolist() == [0, 2, 1]
    for row, number in enumerate(batch.docs):
        x = w["embedding.weight"][documents[number]]
        for direction, suffix in enumerate(("", "_reverse")):
            W, U = w[f"lstm.weight_ih_l0{suffix}"], w[f"lstm.weight_hh_l0{suffix}"]
            b = w[f"lstm.bias_ih_l0{suffix}"] + w[f"lstm.bias_hh_l0{suffix}"]
            h, c = w["first_state"][:, direction, 0]
            expected = reference_lstm(x[::-1] if direction else x, W, U, b, h, c)[:: -1 if direction else 1]
            result = states[row, : len(x), 4 * direction : 4 * direction + 4]
            np.testing.assert_allclose(result, expected, atol=1e-6)
    np.testing.assert_array_equal(states[2, 2:], 0)


def test_whole_words_are_dropped_only_in_training():
    encoder = RecurrentEncoder(20, 5, 4, 0.0, 0.0, whole_word_dropout=0.4)
    words = torch.ones(1000, 5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        left = encoder.drop_words(words)
    assert {tuple(word) for word in left.tolist()} == {(0.0,) * 5, (1.0,) * 5}
    assert 0.35 < (left[:, 0] == 0).float().mean() < 0.45
    assert torch.equal(encoder.eval().drop_words(words), words)


def reference_logits(head: MultiLabelAttention, states: np.ndarray, labels) -> np.ndarray:
    """Compute eqs. 4 and 5 label by label for the states of one document."""
    w = {name: value.detach().numpy() for name, value in head.named_parameters()}
    result = []
    for label in labels:
        scores = np.array([np.exp(h @ w["rows.weight"][label]) for h in states])
        alpha = scores / scores.sum()
        m = sum(a * h for a, h in zip(alpha, states, strict=True))
        x = np.maximum(0, w["layers.first.weight"] @ m + w["layers.first.bias"])
        for i in range(len(head.layers.further)):
            x = np.maximum(0, w[f"layers.further.{i}.weight"] @ x + w[f"layers.further.{i}.bias"])
        own = w.get("own.weight", np.zeros((99, len(x) + 1)))[label]
        result.append(float((w["layers.output.weight"][0] + own[:-1]) @ x + w["layers.output.bias"][0] + own[-1]))
    return np.array(result)


@pytest.mark.parametrize(("sizes", "own_output"), [((5,), False), ((6, 3), False), ((6, 3), True)])
def test_attention_and_layers_are_eqs_4_and_5(sizes, own_output):
    torch.manual_seed(1)
    head, lengths = MultiLabelAttention(7, 8, sizes, own_output=own_output), [3, 1, 4]
    if own_output:
        torch.nn.init.normal_(head.own.weight)
    states, mask = torch.randn(3, 8, 8), torch.arange(8) < torch.tensor(lengths)[:, None]
    states[~mask] = 0
    candidates = torch.tensor([[6, 0], [1, 1], [2, 5]])
    with torch.no_grad():
        everything, chosen = head(states, mask).numpy(), head(states, mask, candidates).numpy()
        alpha = head.attribute_words(states[:1], mask[:1], 4)
    for row, length in enumerate(lengths):
        words = states[row, :length].numpy()
        np.testing.assert_allclose(everything[row], reference_logits(head, words, range(7)), atol=1e-5)
        np.testing.assert_allclose(chosen[row], reference_logits(head, words, candidates[row]), atol=1e-5)
    assert float(alpha.sum()) == pytest.approx(1)
    assert (alpha[3:] == 0).all()


def test_max_pooling_ignores_padding():
    torch.manual_seed(2)
    head = MaxPooling(5, 4, (6,))
    states, mask = -1 - torch.rand(1, 8, 4), torch.arange(8)[None] < 3
    states[~mask] = 0  # padding is larger than every word's state
    with torch.no_grad():
        result = head(states, mask)
        w, m = {name: value.numpy() for name, value in head.named_parameters()}, states[0, :3].numpy().max(axis=0)
        hidden = np.maximum(0, w["hidden.0.weight"] @ m + w["hidden.0.bias"])
        np.testing.assert_allclose(result[0], w["output.weight"] @ hidden + w["output.bias"], atol=1e-6)
        weights = head.attribute_words(states, mask, 2)
    assert (weights[3:] == 0).all()


def test_loss_is_eq_6_or_sum_over_labels():
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(3, 4)), rng.random((3, 4)) < 0.5
    p = sigmoid(logits)
    expected = -(y * np.log(p) + (1 - y) * np.log(1 - p))
    result = binary_cross_entropy(torch.tensor(logits), torch.tensor(y, dtype=torch.float32))
    assert float(result) == pytest.approx(expected.sum() / 3, rel=1e-5)
    known = np.array([[1, 1, 0, 1]] * 3, np.float32)
    result = binary_cross_entropy(torch.tensor(logits), torch.tensor(y, dtype=torch.float32), torch.tensor(known))
    assert float(result) == pytest.approx((expected * known).sum() / 3, rel=1e-5)
    mean = binary_cross_entropy(torch.tensor(logits), torch.tensor(y, dtype=torch.float32), loss_reduction="mean")
    assert float(mean) == pytest.approx(expected.mean(), rel=1e-5)
    mean = binary_cross_entropy(torch.tensor(logits), torch.tensor(y, dtype=torch.float32), torch.tensor(known), "mean")
    assert float(mean) == pytest.approx((expected * known).sum() / 9, rel=1e-5)


def binary_tree(depth: int) -> LabelTree:
    """Return a tree with 2 ** depth leaves of two labels each."""
    levels = [[np.array([2 * i, 2 * i + 1]) for i in range(2**level)] for level in range(depth + 1)]
    return from_groups(levels)


@pytest.mark.parametrize(
    ("height", "shapes"),
    [
        (0, [(1, 64)]),
        (1, [(1, 32), (32, 64)]),
        (2, [(1, 8), (8, 32), (32, 64)]),
        (3, [(1, 2), (2, 8), (8, 32), (32, 64)]),
        (9, [(1, 2), (2, 8), (8, 32), (32, 64)]),
    ],
)
def test_algorithm_1_compresses_the_tree(height, shapes):
    tree = compress_tree(binary_tree(5), 2, height)
    assert [level.shape for level in tree.levels] == shapes
    members = tree.memberships(csr_array(np.eye(64, dtype=np.float32)))
    for level in members:  # Algorithm 2: every label belongs to one node of each level
        np.testing.assert_array_equal(level.sum(axis=1), np.ones(64))


def test_algorithm_3_selects_true_nodes_first():
    """The best three of the nodes 0 to 7 are 5, 2 and 7; the nodes 3 and 7 are true."""
    scores = torch.tensor([[0.01, 0.02, 0.5, 0.05, 0.04, 0.9, 0.03, 0.1]])
    is_true = torch.tensor([[False, False, False, True, False, False, False, True]])
    chosen = select_positives_first(scores, is_true, 3)
    assert chosen.tolist() == [[7, 3, 5]]
    np.testing.assert_allclose(scores.gather(1, chosen), [[0.1, 0.05, 0.9]])
    assert select_positives_first(scores, is_true, 1).tolist() == [[7]]  # more true nodes than k: the best is selected


def reference_positives_first(scores: np.ndarray, is_true: np.ndarray, k: int) -> np.ndarray:
    return np.array([np.lexsort((-own, ~true))[:k] for own, true in zip(scores, is_true, strict=True)])


@pytest.mark.parametrize("k", [1, 3, 8, 20, 30])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 1.0])
def test_algorithm_3_sorts_by_truth_and_score(k, share):
    rng = np.random.default_rng(k)
    scores, is_true = rng.permuted(np.arange(600.0)).reshape(30, 20) / 600, rng.random((30, 20)) < share
    result = select_positives_first(torch.tensor(scores), torch.tensor(is_true), k)
    np.testing.assert_array_equal(result, reference_positives_first(scores, is_true, k))


def test_child_scores_are_multiplied_by_parent_scores():
    """ẑ of a node is its probability times ẑ of its parent, also for true nodes outside the beam."""
    torch.manual_seed(3)
    loader = TokenLoader(make_planted_tokens(25, 6).tokens("words"), CPU)
    upper, lower = build_network(6, 30, 12, 4).eval(), build_network(12, 30, 12, 4).eval()
    all_nodes, pairs = np.arange(6, dtype=np.int32)[None], np.arange(12, dtype=np.int32).reshape(6, 2)
    Y = csr_array((np.random.default_rng(0).random((25, 12)) < 0.15).astype(np.float32))
    parents_Y = csr_array((Y.toarray().reshape(25, 6, 2).sum(2) > 0).astype(np.float32))

    parents = predict_training_candidates(upper, all_nodes, LevelData(loader, parents_Y), 3, ONE)
    predictions = predict_training_candidates(lower, pairs, LevelData(loader, Y, parents), 5, ONE)
    batch = loader.load_batch(np.arange(25))
    with torch.no_grad():
        of_parents, of_nodes = (network(batch).sigmoid().numpy()[np.argsort(batch.docs)] for network in (upper, lower))
    product = of_nodes * of_parents.repeat(2, axis=1)
    for doc in range(25):
        candidates = pairs[parents.labels[doc]].ravel()
        is_true = Y.toarray()[doc, candidates] > 0
        expected = candidates[reference_positives_first(product[doc, candidates][None], is_true[None], 5)[0]]
        assert predictions.labels[doc].tolist() == expected.tolist()
        np.testing.assert_allclose(predictions.scores[doc], product[doc, expected], rtol=1e-4)


def test_algorithm_4_multiplies_along_the_path():
    """All logits of the network are 0, so every P(node | parent) is ½."""
    network = build_network(5, 20, 3, 2).eval()
    torch.nn.init.zeros_(network.head.layers.output.weight)
    torch.nn.init.zeros_(network.head.layers.output.bias)
    children = build_children_table(
        csr_array(np.array([[1, 0, 0, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]], np.float32))
    )
    assert children.tolist() == [[0, 4], [1, 2], [3, NO_LABEL]]
    above = Predictions(np.array([[2, 1], [0, NO_LABEL]], np.int32), np.array([[0.8, 0.5], [0.4, 0]], np.float32))
    result = predict_level(network, children, TokenLoader(tokens([1, 2], [3]), CPU), above, 4, ONE)
    assert result.labels[0, 0] == 3
    assert sorted(result.labels[0, 1:]) == [NO_LABEL, 1, 2]
    np.testing.assert_allclose(result.scores[0], [0.4, 0.25, 0.25, 0])
    assert sorted(result.labels[1]) == [NO_LABEL, NO_LABEL, 0, 4]


def test_batches_contain_every_document_once():
    rng = np.random.default_rng(0)
    documents = [list(rng.integers(0, 20, n)) for n in rng.integers(1, 30, 157)]
    loader = TokenLoader(tokens(*documents), CPU)
    for batches in (loader.shuffled_batches(8, rng), loader.batches_by_length(8)):
        result = []
        for docs in batches:
            batch = loader.load_batch(docs)
            words = batch.pad_states(batch.ids[:, None].float() + 1)[..., 0].long() - 1
            assert batch.width % 8 == 0
            assert torch.equal(batch.pad_ids(-1), words)
            for row, number in enumerate(batch.docs):
                assert words[row][batch.make_mask()[row]].tolist() == documents[number]
            result += batch.docs.tolist()
        assert sorted(result) == list(range(157))


def test_candidate_targets():
    Y = csr_array(np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]], np.float32))
    labels = LabelLoader(Y, CPU)
    docs, candidates = np.array([2, 0, 1]), torch.tensor([[0, 1], [3, 0], [3, 3]])
    assert labels.candidate_targets(docs, candidates).tolist() == [[1, 0], [1, 0], [0, 0]]
    np.testing.assert_array_equal(labels.targets(docs).numpy(), Y.toarray()[docs])
    assert labels.candidate_targets(np.array([1]), torch.tensor([[2]])).tolist() == [[0]]


def test_gradients_are_clipped_relative_to_recent_norms():
    weight = torch.zeros(2, requires_grad=True)
    recent = torch.tensor([0.01, 0.01, 0.01, 0.01, 0.02])
    weight.grad = torch.tensor([3.0, 4.0])  # norm 5: clipped to 5 · 0.02, recorded as 2 · 0.02
    recent = clip_gradients([weight], recent)
    np.testing.assert_allclose(weight.grad.norm(), 0.1, rtol=1e-5)
    np.testing.assert_allclose(recent, [0.01, 0.01, 0.01, 0.02, 0.04])
    weight.grad = torch.tensor([0.03, 0.0])  # small enough
    recent = clip_gradients([weight], recent)
    np.testing.assert_allclose(weight.grad, [0.03, 0])
    np.testing.assert_allclose(recent[-1], 0.03)
    weight.grad = torch.tensor([900.0, 0.0])
    np.testing.assert_allclose(clip_gradients([weight], torch.tensor([1.0, 1, 1, 1, 1]))[-1], 1)  # never more than 1


def test_validation_every_n_steps():
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(network.weight)
    seen, scores = [], iter([0.1, 0.5, 0.2, 0.3])
    options = replace(PLAN, epochs=2, average_from=1, average_every=2, look_every=2, patience=3)

    def score():
        seen.append(round(network.weight.item(), 3))
        return next(scores)

    def batches(rng):
        return iter(np.arange(4)[:, None])

    training.run_training_loop(network, batches, lambda docs: -network.weight.sum(), score, options, n_docs=4)
    assert seen == [2, 4, 6, 7]  # in the second epoch, the average after 6 and 8 steps
    assert network.weight.item() == pytest.approx(4, rel=1e-4)
    few = replace(options, look_every=100)
    training.run_training_loop(network, batches, lambda docs: -network.weight.sum(), lambda: 1.0, few, n_docs=4)
    assert network.weight.item() == pytest.approx(8, rel=1e-4)  # validated once, after the first epoch


def test_best_averaged_weights_are_kept():
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(network.weight)
    state, seen = TrainingState(network, PLAN), []
    scores = iter([0.1, 0.5, 0.2])
    for _ in range(3):
        state.step(-network.weight.sum())  # a step of Adam at rate 1 adds 1
        state.finish_epoch(lambda: seen.append(network.weight.item()) or next(scores))
    np.testing.assert_allclose(seen, [1, 1.5, 2], rtol=1e-5)
    assert state.n_since_best == 1
    state.restore_best()
    assert network.weight.item() == pytest.approx(1.5, rel=1e-5)


def make_planted_tokens(n_docs: int, seed: int) -> Dataset:
    """Return documents with three of twelve labels; label l has word 1 + l."""
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(12, 3, replace=False) for _ in range(n_docs)]
    documents = [list(rng.permutation([*(1 + labels), *rng.integers(13, 30, rng.integers(2, 9))])) for labels in chosen]
    Y = np.zeros((n_docs, 12), np.float32)
    for row, labels in enumerate(chosen):
        Y[row, labels] = 1
    return Dataset({"words": tokens(*documents, n_words=30)}, csr_array(Y))


SMALL = AttentionXML(
    hidden=8, layers=(8,), dimension=12, batch=16, epochs=4, rate=0.02, average_from=2, height=1, arity=2, candidates=4,
    dropout=0.1,
)  # fmt: skip


@pytest.mark.parametrize(("sparse_from", "look_every"), [(50_000, 0), (5, 0), (50_000, 2)])
def test_resumed_training_equals_uninterrupted_training(sparse_from, look_every, tmp_path, monkeypatch):
    monkeypatch.setattr(family, "MAX_DENSE_NODES", sparse_from)
    data = make_planted_tokens(80, 1)
    method = replace(SMALL, average_every=2, look_every=look_every)
    whole = method.fit(data, run=ONE)
    step = TrainingState.step

    def interrupted_step(self, loss):
        if len(self.network.head.rows.weight) > 6 and (self.epoch, self.n_epoch_steps) == (3, 2):
            raise KeyboardInterrupt  # in the last epoch of the second level, during averaging
        step(self, loss)

    monkeypatch.setattr(TrainingState, "step", interrupted_step)
    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "parts", interval_seconds=0))
    with pytest.raises(KeyboardInterrupt):
        method.fit(data, run=run)
    monkeypatch.setattr(TrainingState, "step", step)
    resumed = method.fit(data, run=run)
    for one, other in zip(whole.levels, resumed.levels, strict=True):
        weights, same = one.network.weights.arrays, other.network.weights.arrays
        assert list(weights) == list(same)
        for name, array in weights.items():
            np.testing.assert_array_equal(array, same[name])
    run.checkpoint.remove()
    assert not (tmp_path / "parts").exists()


def test_checkpoint_with_other_vectors_is_rejected(tmp_path):
    """The vectors have changed in a file of the same name."""
    data, vocabulary = make_planted_tokens(40, 1), StringIndex.from_strings(f"word{i}" for i in range(1, 30))
    data = replace(data, views={"words": replace(data.tokens("words"), vocabulary=vocabulary)})
    method = replace(SMALL, vectors=str(tmp_path / "vectors.txt"), epochs=1)
    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "parts"))
    (tmp_path / "vectors.txt").write_text("word1 1 2 3\nword2 4 5 6\n")
    method.fit(data, run=run)
    method.fit(data, run=run)
    (tmp_path / "vectors.txt").write_text("word1 1 2 3\nword2 4 5 7\n")
    with pytest.raises(XmtcError, match="holds pieces of a training with other data or parameters"):
        method.fit(data, run=run)


def test_sparse_steps_update_only_candidates():
    network = build_network(10, 30, 12, 4, sparse=True)
    before = network.head.rows.weight.detach().clone()
    state = TrainingState(network, replace(PLAN, rate=0.1, average_from=9))
    batch = TokenLoader(make_planted_tokens(3, 2).tokens("words"), CPU).load_batch(np.arange(3))
    candidates = torch.tensor([[1, 4], [4, 7], [1, 7]])
    for _ in range(2):
        state.step(binary_cross_entropy(network(batch, candidates), torch.tensor([[1.0, 0], [0, 1], [1, 0]])))
    moved = (network.head.rows.weight != before).any(1)
    assert np.flatnonzero(moved).tolist() == [1, 4, 7]


@pytest.mark.parametrize("own_output", [False, True])
def test_training_with_sparse_gradients(own_output, monkeypatch):
    monkeypatch.setattr(family, "MAX_DENSE_NODES", 5)
    data = make_planted_tokens(200, 2)
    model = replace(SMALL, epochs=20, average_from=10, own_output=own_output).fit(data, run=ONE)
    result = model.predict(data, 3, ONE)
    assert data.Y.toarray()[np.arange(200)[:, None], result.labels].mean() > 0.6


DAMAGE = {
    "words": lambda m: replace(m, views={"words": 31}),
    "another view": lambda m: replace(m, views={"subwords": 30}),
    "another network": lambda m: with_level(m, network=replace(m.levels[1].network, design=AUTOENCODER_DESIGN)),
    "labels": lambda m: replace(m, n_labels=13),
    "no levels": lambda m: replace(m, levels=()),
    "pooling": lambda m: with_design(m, pooling="mean"),
    "no layers": lambda m: with_design(m, layers=()),
    "other words in a level": lambda m: with_design(m, n_words=31),
    "candidates": lambda m: replace(m, n_candidates=0),
    "a child too far": lambda m: with_children(m, lambda c: np.where(c == 3, 12, c)),
    "a child before": lambda m: with_children(m, lambda c: np.where(c == 3, -2, c)),
    "too few nodes": lambda m: with_children(m, lambda c: c[:-1]),
    "a shape": lambda m: with_design(m, hidden=2**40),
    "a kind of number": lambda m: with_weights(m, lambda a: a.astype(np.float64)),
    "a length": lambda m: with_weights(m, lambda a: a[:-1]),
}
AUTOENCODER_DESIGN = AutoencoderDesign(input="layers", n_inputs=30, n_labels=12, hidden=4, layer=4)


def with_level(model, **changes):
    """Return the model with changes to its second level."""
    return replace(model, levels=(model.levels[0], replace(model.levels[1], **changes)))


def with_children(model, change):
    return with_level(model, children=change(model.levels[1].children))


def with_design(model, **changes):
    network = model.levels[1].network
    return with_level(model, network=replace(network, design=replace(network.design, **changes)))


def with_weights(model, change):
    network = model.levels[1].network
    name, first = next(iter(network.weights.arrays.items()))
    arrays = network.weights.arrays | {name: change(first)}
    return with_level(model, network=replace(network, weights=replace(network.weights, arrays=arrays)))


@pytest.fixture(scope="module")
def valid_model():
    return replace(SMALL, epochs=1).fit(make_planted_tokens(40, 1), run=ONE)


@pytest.mark.parametrize("label", [0, 7])
def test_weights_of_words_are_the_attention_of_the_label(label, valid_model):
    """Fig. 2 of the first version, Fig. 1 of the appendix: words have the α of eq. 4."""
    document, network = make_planted_tokens(1, 5), valid_model.levels[-1].network.load_on(CPU)
    batch = TokenLoader(document.tokens("words"), CPU).load_batch(np.array([0]))
    with torch.no_grad():
        states = network.encoder(batch)[0, : batch.max_length].numpy()
    scores = np.array([np.exp(h @ network.head.rows.weight[label].detach().numpy()) for h in states])
    result = valid_model.explain(document, label).per_token
    assert np.ptp(result) > 0
    np.testing.assert_allclose(result, scores / scores.sum(), rtol=1e-4)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_network_is_rejected(damage, valid_model):
    valid_model.check()
    with pytest.raises((ValueError, RuntimeError)):
        damage(valid_model).check()


def test_unusable_validation_documents_are_rejected():
    data = make_planted_tokens(40, 1)
    unlabelled = replace(data, Y=csr_array(data.Y.shape, dtype=np.float32))
    with pytest.raises(XmtcError, match="No validation document has a label"):
        SMALL.fit(data, unlabelled, ONE)
    with pytest.raises(XmtcError, match="Found 1 documents with labels; expected at least two, one for training"):
        SMALL.fit(data.select_rows(np.array([0])), run=ONE)


@pytest.mark.parametrize(("n_labels", "height"), [(20_000, 0), (20_001, 1), (160_000, 1), (160_001, 2), (3_000_000, 3)])
def test_tree_height_depends_on_number_of_labels(n_labels, height):
    assert AttentionXML().choose_tree_height(n_labels) == height


def test_training_candidates_contain_true_nodes():
    data = make_planted_tokens(30, 3)
    network, loader = build_network(6, 30, 12, 4).eval(), TokenLoader(data.tokens("words"), CPU)
    children, Y = np.arange(6, dtype=np.int32)[None], csr_array(data.Y.toarray()[:, ::2])
    predictions = predict_training_candidates(network, children, LevelData(loader, Y), 4, ONE)
    for row in range(30):
        true_nodes = set(np.flatnonzero(Y.toarray()[row]))
        assert true_nodes == set(predictions.labels[row, : len(true_nodes)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttentionXML(arity=6), "arity=6 is invalid; expected a power of 2, such as 8"),
        (lambda: XMLRNN(layers=()), "layers=() is invalid; expected sizes such as 512,256"),
        (lambda: XMLRNN(layers="8"), "layers='8' is invalid; expected whole numbers of at least 1"),
        (
            lambda: build_method("xml_rnn", {"layers": UnparsedValue("a,b")}),
            "layers='a,b' is invalid; expected whole numbers",
        ),
        (lambda: build_method("xml_rnn", {"layers": UnparsedValue("0")}), "layers=(0,) is invalid"),
        (lambda: select_device(Run(device="cuda:77")), "The device 'cuda:77' cannot be used"),
        (lambda: select_device(Run(device="abacus")), "device='abacus' is invalid; expected auto, cpu"),
    ],
)
def test_invalid_settings_are_rejected(make, message):
    with pytest.raises(XmtcError) as error:
        make()
    assert message in str(error.value)


def test_preset_replaces_unset_parameters():
    recipe = AttentionXML(preset="Amazon-670K", candidates=80)
    assert (recipe.hidden, recipe.layers, recipe.height, recipe.candidates) == (512, (512, 256), 3, 80)
    assert (recipe.make_level_options(0).average_from, recipe.make_level_options(1).average_from) == (6, 2)
    assert AttentionXML(preset="Amazon-670K", hidden=256).hidden == 256  # equal to the default, but set
    assert replace(recipe, hidden=256).hidden == 256
    assert Classifier("attention_xml", preset="Amazon-670K", arity=4).get_params()["hidden"] == 512


# Published: LSTM units, fully connected layers, batch, epochs, and H, K, C of a tree. Those of the first version are in
# its "Experimental Settings", H, K and C in appendix A, the rest in the authors' code.
PUBLISHED = {
    "EUR-Lex": (256, (256,), 40, 30, 0),
    "Wiki10-31K": (256, (256,), 40, 30, 0),
    "AmazonCat-13K": (512, (512, 256), 200, 10, 0),
    "Amazon-670K": (512, (512, 256), 200, 10, 3, 8, 160),
    "Wiki-500K": (512, (512, 256), 200, 5, 1, 64, 15),
    "Amazon-3M": (512, (512, 256), 200, 5, 3, 8, 160),
    "RCV1": (256, (256,), 40, 50, 0),
    "EUR-Lex-2018": (256, (256,), 40, 50, 0),
    "Wiki10-31K-2018": (256, (256,), 40, 50, 0),
    "WikiLSHTC-325K": (512, (512, 256), 40, 10, 0),
    "AmazonCat-13K-2018": (512, (512, 256), 40, 10, 0),
}


@pytest.mark.parametrize("name", ATTENTION_XML_PRESETS)
def test_presets_are_the_settings_of_the_papers(name):
    recipe = AttentionXML(preset=name, vectors="glove-50d")
    names = ("hidden", "layers", "batch", "epochs", "height", "arity", "candidates")[: len(PUBLISHED[name])]
    assert tuple(getattr(recipe, parameter) for parameter in names) == PUBLISHED[name]
    assert (recipe.dropout, recipe.rate, recipe.dimension, recipe.loss) == (0.5, 0.001, 300, "mean")


def test_presets_set_all_published_settings():
    """Each preset sets everything that the papers and the authors' code specify."""
    ours = {"vectors", "preset", "seed", "average_every", "average_over", "average_below", "arity", "candidates"}
    for name, values in ATTENTION_XML_PRESETS.items():
        recipe = AttentionXML(preset=name, vectors="glove-50d")
        assert {parameter.name for parameter in fields(AttentionXML)} - set(values) <= ours, name
        assert (recipe.loss, recipe.init, recipe.rate, recipe.dimension) == ("mean", "xavier", 0.001, 300)
        assert recipe.height == 0 or {"arity", "candidates", "average_below"} <= set(values)
        assert recipe.make_level_options(0).average_from >= recipe.epochs or {"average_every", "average_over"} <= set(
            values
        )
    options = AttentionXML(preset="EUR-Lex", vectors="glove-50d").make_level_options(0)
    assert (options.average_every, options.average_over, options.look_every, options.patience) == (100, inf, 100, 50)
    assert [
        int(n * ATTENTION_XML_PRESETS[name]["held_out"]) for name, n in (("EUR-Lex", 15_449), ("Wiki10-31K", 14_146))
    ] == [200] * 2
    first = AttentionXML(preset="RCV1")
    assert (first.batch, first.epochs, first.make_level_options(0).average_from, first.make_level_options(0).clips) == (
        40,
        50,
        50,
        False,
    )


@pytest.mark.parametrize("name", ["EUR-Lex", "Wiki10-31K"])
def test_frozen_vectors_must_be_pretrained(name):
    with pytest.raises(
        XmtcError, match=rf"\(from preset={name}\).* set vectors to a file or one of glove-100d, glove-50d"
    ):
        AttentionXML(preset=name)
    with pytest.raises(XmtcError, match="train_vectors=false needs pretrained word vectors"):
        XMLRNN(train_vectors=False)
    assert not AttentionXML(preset=name, vectors="glove-100d").train_vectors
    assert AttentionXML(preset=name, train_vectors=True).dimension == 300


SMALL_CORPUS = "too few for"


def list_warnings(caplog) -> list[str]:
    """Return the messages, except that a linear method will be better."""
    return [message for message in caplog.messages if SMALL_CORPUS not in message]


@pytest.mark.parametrize(
    ("n_docs", "labels_per_doc", "n_labels", "is_small"),
    [(6132, 5, 4231, True), (21_000, 5, 47_000, True), (45_000, 5, 4000, False), (6000, 5, 100, False)],
)
def test_a_small_corpus_is_reported_before_training(n_docs, labels_per_doc, n_labels, is_small, caplog):
    indices = np.arange(n_docs * labels_per_doc) % n_labels
    Y = csr_array((np.ones(len(indices), np.float32), indices, np.arange(n_docs + 1) * labels_per_doc))
    words = Tokens(np.zeros(n_docs, np.int32), np.arange(n_docs + 1), 5)
    AttentionXML().warn_of_small_corpus(Dataset({"words": words}, Y))
    assert [SMALL_CORPUS in message for message in caplog.messages] == [True] * is_small
    if n_docs == 6132:
        assert caplog.messages == [
            "The corpus has 6,132 documents and 4,231 labels with 7.2 documents each, too few for AttentionXML: a "
            "linear method such as dismec will be better."
        ]


@pytest.mark.parametrize("method", [AttentionXML, XMLRNN])
def test_presets_need_the_word_vectors_of_the_papers(method, tmp_path, caplog):
    data, short = make_planted_tokens(60, 3), {"epochs": 1, "hidden": 4, "layers": (4,)}
    with pytest.raises(XmtcError, match=r"preset=RCV1 starts from GloVe 840B vectors of 300 numbers.*or dimension=300"):
        method(preset="RCV1", **short).fit(data, run=ONE)
    method(preset="RCV1", dimension=300, **short).fit(data, run=ONE)
    assert not list_warnings(caplog)
    method(preset="RCV1", dimension=20, **short).fit(data, run=ONE)
    assert list_warnings(caplog) == ["preset=RCV1 has GloVe 840B vectors of 300 numbers in the paper; these have 20."]


def test_xml_rnn_has_the_settings_of_attention_xml():
    for name in XML_RNN_PRESETS:
        one, other = XMLRNN(preset=name), AttentionXML(preset=name)
        ours = {field.name for field in fields(XMLRNN)} - {"preset"}
        assert all(getattr(one, parameter) == getattr(other, parameter) for parameter in ours)
    first = XMLRNN(preset="EUR-Lex-2018")
    assert (first.hidden, first.layers, first.dropout, first.rate, first.batch, first.epochs) == (
        256, (256,), 0.5, 0.001, 40, 50
    )  # fmt: skip
    large = XMLRNN(preset="WikiLSHTC-325K")
    assert (large.hidden, large.layers, large.epochs) == (512, (512, 256), 10)


@pytest.mark.parametrize(("n_labels", "max_height"), [(3956, 3), (30_938, 4), (9, 1)])
def test_height_of_the_tree_is_checked(n_labels, max_height, caplog):
    """With K = 8, the 3,956 labels of EUR-Lex make 512 nodes above the labels, 64, 8 and the root: H = 3 at most."""
    Y = csr_array((np.ones(n_labels, np.float32), np.arange(n_labels), np.arange(n_labels + 1)))
    words = Tokens((np.arange(n_labels) % 50).astype(np.int32), np.arange(n_labels + 1), 50)
    data = Dataset(views={"words": words}, Y=Y)
    assert len(AttentionXML(height=max_height).build_label_tree(data, ONE).levels) == max_height + 1
    expected = f"a tree of {n_labels:,} labels and arity=8 has a height of at most {max_height}, not"
    with pytest.raises(XmtcError, match=f"{expected} {max_height + 1}. Set height from 0 to {max_height}"):
        AttentionXML(height=max_height + 1).build_label_tree(data, ONE)
    if max_height < 3:
        assert len(AttentionXML(preset="Amazon-670K").build_label_tree(data, ONE).levels) == max_height + 1
        assert caplog.messages == [f"A{expected[1:]} 3; trained with height={max_height}."]


def test_few_labels_have_no_tree(caplog):
    """As many labels as K, or fewer, are children of the root whatever the height."""
    data = Dataset(
        {"words": Tokens(np.arange(8, dtype=np.int32), np.arange(9), 8)}, csr_array(np.eye(8, dtype=np.float32))
    )
    assert len(AttentionXML(height=1).build_label_tree(data, ONE).levels) == 1
    assert caplog.messages == [
        "A tree of 8 labels and arity=8 has a height of at most 0, not 1; trained with height=0."
    ]


def test_xavier_initialisation_of_the_head():
    method = AttentionXML(init="xavier", hidden=8, layers=(16,), dimension=4)
    vectors = np.zeros((30, 4), np.float32)
    network = method.build_network(method.build_design(vectors, 500), None, vectors, 0, ONE, CPU)
    for module, width in ((network.head.rows, 516), (network.head.layers.first, 32), (network.head.layers.output, 17)):
        limit = np.sqrt(6 / width)
        assert 0.8 * limit < module.weight.abs().max().item() <= limit


def test_batches_are_sharded_over_processes(monkeypatch):
    docs = np.arange(5)
    assert distributed.shard_batch(docs).tolist() == [0, 1, 2, 3, 4]
    parts = []
    for number in range(3):
        monkeypatch.setattr(distributed, "rank_and_size", lambda number=number: (number, 3))
        parts.append(distributed.shard_batch(docs).tolist())
        assert distributed.shard_batch(docs[:2]).tolist() == [0, 1]  # fewer documents than processes
    assert parts == [[0, 3], [1, 4], [2]]


def test_two_processes_train_one_model(tmp_path):
    """Run `torchrun -m xmtc train` on the CPU."""
    texts, tags = make_planted_corpus(120, seed=1)
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(texts, tags, strict=True)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    settings = [f"-p{name}" for name in ("hidden=8", "layers=8", "dimension=8", "epochs=2", "batch=16")]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "xmtc"]
    command += ["train", "corpus.jsonl", "-m", "attention_xml", "-o", "model", "--threads", "1", "--device", "cpu"]
    command += ["--log-json", "log.jsonl"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(3):  # PyTorch rarely aborts a process that has finished, when its threads are destroyed
        (tmp_path / "log.jsonl").unlink(missing_ok=True)
        done = subprocess.run([*command, *settings], cwd=tmp_path, env=environment, capture_output=True, timeout=300)
        if done.returncode == 0 or b"terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr.decode()
    together = Classifier.load(tmp_path / "model").tagger_
    assert together.about["n_docs"] == 120
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["model"]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    passes = [event for event in logged if event["event"] == "pass"]
    assert [event["pass"] for event in passes] == [1, 2]  # only the first process logs
    assert passes[1]["loss"] < passes[0]["loss"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_gpu_predicts_like_cpu():
    data = make_planted_tokens(200, 4)
    model = replace(SMALL, epochs=12, average_from=6).fit(data, run=Run(device="cuda"))
    gpu, cpu = (model.predict(data, 3, Run(device=device)) for device in ("cuda", "cpu"))
    assert (gpu.labels[:, 0] == cpu.labels[:, 0]).mean() > 0.95
    np.testing.assert_allclose(gpu.scores[:, 0], cpu.scores[:, 0], atol=0.05)

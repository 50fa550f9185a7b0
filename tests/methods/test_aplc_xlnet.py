"""APLC-XLNet on tiny encoders with random weights; nothing is downloaded."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from planted import make_planted_corpus, planted_words
from scipy.sparse import csr_array

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")
pytest.importorskip("transformers", reason="encoders need transformers: pip install 'xmtc[neural]'")

from tiny_encoders import tiny  # noqa: E402
from transformers import AutoModel, BertConfig, BertModel, MPNetConfig, MPNetModel  # noqa: E402

from xmtc import Classifier, Tagger  # noqa: E402
from xmtc.core.checkpoint import Checkpoint  # noqa: E402
from xmtc.core.dataset import Dataset, Tokens  # noqa: E402
from xmtc.core.hyperparameters import UnparsedValue  # noqa: E402
from xmtc.core.run import Run  # noqa: E402
from xmtc.data.document import Document  # noqa: E402
from xmtc.errors import XmtcError  # noqa: E402
from xmtc.evaluation import evaluate  # noqa: E402
from xmtc.features.encoders.configuration import UNLIMITED_POSITIONS, read_max_positions  # noqa: E402
from xmtc.features.encoders.model_loader import (  # noqa: E402
    build_encoder,
    choose_pooling,
    dump_config,
    enable_gradient_checkpointing,
    load_encoder,
)
from xmtc.features.encoders.mpnet import fuse_attention  # noqa: E402
from xmtc.features.subwords import FittedSubwords, Subwords  # noqa: E402
from xmtc.methods.attention.model import RecurrentDesign  # noqa: E402
from xmtc.methods.transformer.aplc_xlnet import PRESETS, APLCXLNet  # noqa: E402
from xmtc.methods.transformer.label_attention import LabelWiseAttention, SubwordStates  # noqa: E402
from xmtc.methods.transformer.model import restore_label_ids  # noqa: E402
from xmtc.methods.transformer.network import TransformerNetwork  # noqa: E402
from xmtc.nn.batches import LabelLoader, TokenLoader  # noqa: E402
from xmtc.nn.cuda_graphs import CudaGraphs  # noqa: E402
from xmtc.nn.devices import mixed_precision  # noqa: E402
from xmtc.nn.label_clusters import ClusterLayout, LabelClusters  # noqa: E402
from xmtc.nn.network import (  # noqa: E402
    Weights,
    predict_with_network,
)
from xmtc.nn.text_encoder import TextEncoder  # noqa: E402
from xmtc.nn.training import TrainingOptions, TrainingState  # noqa: E402
from xmtc.parameters import build_method  # noqa: E402
from xmtc.pipeline import Pipeline, train  # noqa: E402

CPU, ONE = torch.device("cpu"), Run(threads=1, device="cpu")
PLAN = TrainingOptions(epochs=1, rate=1.0, average_from=1, average_every=1, patience=1, seed=0)
KINDS = ["bert", "xlnet"]
TEXTS = ["noise1 noise2 word3alpha", "word5beta", "noise7 strange noise9 noise1 word3alpha noise2"]
SMALL = APLCXLNet(batch=16, epochs=3, encoder_rate=2e-3, hidden_rate=1e-2, head_rate=1e-2, clusters=3, loss="sum")


def subwords(kind: str, texts: list[str], most: int = 60) -> tuple[FittedSubwords, Tokens]:
    return Subwords(tiny(kind), most).fit(texts, ONE)


def make_labelled(kind: str, n_docs: int, seed: int = 1) -> Dataset:
    texts, tags = make_planted_corpus(n_docs, seed)
    Y = np.array([[f"label-{label:02d}" in own for label in range(40)] for own in tags], np.float32)
    return Dataset({"subwords": subwords(kind, texts)[1]}, csr_array(Y))


def assert_same_weights(one, other, atol: float = 0.0):
    weights, same = one.network.weights.arrays, other.network.weights.arrays
    assert list(weights) == list(same)
    for name, array in weights.items():
        np.testing.assert_allclose(array, same[name], rtol=1e-7 if atol else 0, atol=atol)


@pytest.mark.parametrize("kind", KINDS)
def test_subwords_have_special_tokens(kind):
    view, tokens = subwords(kind, [*TEXTS, ""])
    words = [[view.term(number) for number in tokens.select_rows(np.array([i])).ids] for i in range(4)]
    if kind == "bert":
        assert words[1] == ["<cls>", "word5beta", "<sep>"]
        assert words[2][2:9] == ["s", "##t", "##r", "##a", "##n", "##g", "##e"]
        assert words[3] == ["<cls>", "<sep>"]
    else:
        assert words[1] == ["▁word5beta", "<sep>", "<cls>"]
        assert words[3] == ["<sep>", "<cls>"]
    assert tokens.encoder == tiny(kind)
    assert tokens.size == view.size
    short, _ = subwords(kind, TEXTS, most=4)
    assert short.transform(TEXTS).lengths.tolist() == [4, 3, 4]
    assert short.transform(TEXTS).ids[-1] == tokens.select_rows(np.array([2])).ids[-1]  # keeps the last special token


@pytest.mark.parametrize("kind", KINDS)
def test_subwords_are_mapped_to_words(kind):
    view, _ = subwords(kind, TEXTS)
    text = "  strange word3alpha,\n noise1 zz"
    spans = view.spans(text)
    words = ["strange", "word3alpha", ",", "noise1", "zz"]
    if kind == "xlnet":
        words[1:3] = ["word3alpha,"]  # XLNet splits words only at spaces
    assert [span.word for span in spans] == words
    assert [text[span.begin : span.end] for span in spans] == words
    n = len(view.transform([text]).ids)
    numbers = [number for span in spans for number in span.numbers]
    assert set(numbers) <= set(range(n)) - ({0, n - 1} if kind == "bert" else {n - 2, n - 1})  # special tokens
    assert all(span.numbers for span in spans)
    assert (np.diff(numbers) > 0).all()


def test_lone_surrogates_are_accepted():
    view, _ = subwords("bert", TEXTS)
    assert view.transform(["noise1 \ud800"]).lengths.tolist() == [4]
    assert [span.word for span in view.spans("noise1 \ud800")] == ["noise1", "\ud800"]


def test_texts_without_words_are_rejected():
    with pytest.raises(XmtcError, match="None of the 2 documents holds a word"):
        subwords("bert", ["", " "])


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_pooling_ignores_padding(kind, pooling):
    """Pooling in a padded batch equals pooling of each text without padding."""
    _, tokens = subwords(kind, TEXTS)
    encoder = TextEncoder(load_encoder(tiny(kind)), pooling).eval()
    batch = TokenLoader(tokens, CPU).load_batch(np.arange(3))
    with torch.no_grad():
        together = encoder(batch.pad_ids(encoder.padding), batch.make_mask())
    assert together.shape == (3, 32)
    for row, doc in enumerate(batch.docs):
        ids = torch.from_numpy(tokens.select_rows(np.array([doc])).ids.astype(np.int64))[None]
        segments = torch.zeros_like(ids)
        if kind == "xlnet":
            segments[0, -1] = 2
        with torch.no_grad():
            states = encoder.model(ids, token_type_ids=segments).last_hidden_state[0]
        expected = {"first": states[0], "last": states[-1], "mean": states.mean(0)}[pooling]
        np.testing.assert_allclose(together[row], expected, atol=1e-5)


def test_fused_attention_of_mpnet_is_equivalent():
    """States and gradients are the same, except for the relative position biases, which are not trained."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    usual = MPNetModel(MPNetConfig(vocab_size=50, **sizes, initializer_range=0.5)).eval()
    fused = copy.deepcopy(usual)
    assert fuse_attention(fused) == 2
    ids = torch.randint(4, 50, (3, 9))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    result = [model(ids, attention_mask=mask).last_hidden_state for model in (usual, fused)]
    np.testing.assert_allclose(*(states[mask > 0].detach() for states in result), atol=1e-5)
    enable_gradient_checkpointing(fused.train())
    for module in fused.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    np.testing.assert_allclose(
        result[1].detach(), fused(ids, attention_mask=mask).last_hidden_state.detach(), atol=1e-5
    )
    result[1] = fused(ids, attention_mask=mask).last_hidden_state
    for states in result:
        states[mask > 0].square().sum().backward()
    usual.encoder.relative_attention_bias.weight.grad = None
    for one, other in zip(usual.parameters(), fused.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        assert one.grad is None or torch.allclose(one.grad, other.grad, atol=1e-3, rtol=1e-3)
    assert fuse_attention(load_encoder(tiny("bert"))) == 0


def test_xlnet_is_independent_of_the_side_of_padding():
    model = load_encoder(tiny("xlnet")).eval()
    ids = torch.tensor([[7, 8, 9, 3, 2]])
    right, left = torch.nn.functional.pad(ids, (0, 3)), torch.nn.functional.pad(ids, (3, 0))
    with torch.no_grad():
        at_end = model(right, attention_mask=(right > 0).long()).last_hidden_state[0, :5]
        before = model(left, attention_mask=(left > 0).long()).last_hidden_state[0, 3:]
    np.testing.assert_allclose(at_end, before, atol=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, "mpnet"])
def test_encoder_has_the_pretrained_weights(kind):
    """Section 3.1 and eq. 1: the encoder is the pretrained one, whose states transformers computes."""
    pretrained, ours = AutoModel.from_pretrained(tiny(kind)).eval(), load_encoder(tiny(kind)).eval()
    weights = pretrained.state_dict()
    assert len(ours.state_dict()) > 10
    assert all(torch.equal(array, weights[name]) for name, array in ours.state_dict().items())
    ids = torch.tensor([[7, 8, 9, 3, 2]])
    with torch.no_grad():
        torch.testing.assert_close(ours(ids).last_hidden_state, pretrained(ids).last_hidden_state)


@pytest.mark.parametrize("kind", [*KINDS, "mpnet"])
def test_encoder_is_rebuilt_from_its_configuration(kind):
    model = load_encoder(tiny(kind))
    again = build_encoder(dump_config(model))
    assert {name: tuple(t.shape) for name, t in again.state_dict().items()} == {
        name: tuple(t.shape) for name, t in model.state_dict().items()
    }
    assert "pooler.dense.weight" not in model.state_dict()
    assert tiny(kind) not in dump_config(model)


def test_automatic_pooling(tmp_path):
    bert, xlnet = load_encoder(tiny("bert")), load_encoder(tiny("xlnet"))
    assert (choose_pooling(tiny("xlnet"), xlnet), choose_pooling(tiny("bert"), bert)) == ("last", "first")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    assert choose_pooling(str(tmp_path), bert) == "mean"


@pytest.mark.parametrize("kind", [*KINDS, "mpnet"])
def test_step_lowers_the_loss(kind):
    data = make_labelled(kind, 32)
    network, _ = SMALL.build_network(data, ONE)
    labels, batch = LabelLoader(data.Y, CPU), TokenLoader(data.tokens("subwords"), CPU).load_batch(np.arange(32))
    state = TrainingState(
        network.eval(), SMALL.make_training_options(32)
    )  # without dropout, so that the losses are comparable
    losses = []
    for _ in range(2):
        loss = network(batch, *labels.label_pairs(batch.docs))
        losses.append(loss.item())
        state.step(loss)
    assert losses[1] < losses[0]


def test_discriminative_slanted_triangular_rates():
    network, _ = SMALL.build_network(make_labelled("bert", 32), ONE)
    recipe = replace(SMALL, warm_up=0.2, epochs=5, batch=8, hidden_rate=3e-3)
    state = TrainingState(network, recipe.make_training_options(32))  # 20 steps, 4 of warm-up
    names = {id(p): name for name, p in network.named_parameters()}
    groups = [[names[id(p)].partition(".")[0] for p in group["params"]] for group in state.optimisers[0].param_groups]
    assert [set(group) for group in groups] == [{"encoder"}, {"head"}, {"hidden"}]
    seen = []
    for _ in range(20):
        state.step(sum(p.sum() for p in network.parameters()))
        seen.append([group["lr"] for group in state.optimisers[0].param_groups])
    triangle = [0, 0.25, 0.5, 0.75, *(np.arange(16, 0, -1) / 16)]
    np.testing.assert_allclose(np.array(seen), np.outer(triangle, [2e-3, 1e-2, 3e-3]), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (PLAN, [1, 1, 1]),
        (replace(PLAN, n_steps=4), [1, 0.75, 0.5, 0.25, 0, 0]),
        (replace(PLAN, n_steps=4, warmup_steps=2), [0, 0.5, 1, 0.5, 0]),
        (replace(PLAN, n_steps=4, warmup_steps=4), [0, 0.25, 0.5, 0.75]),
        (replace(PLAN, n_steps=10, warmup_steps=4), [0, 1 / 4, 2 / 4, 3 / 4, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0]),
    ],
)
def test_rate_factor_is_eq_15(options, expected):
    """Eq. 15: rates rise by t / t_w and fall by (t_a − t) / (t_a − t_w)."""
    assert [options.rate_factor(step) for step in range(len(expected))] == pytest.approx(expected, abs=1e-12)


def test_gradients_are_clipped_at_a_norm():
    weight = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(weight.weight)
    state = TrainingState(weight, replace(PLAN, max_gradient_norm=1.0))
    state.step((weight.weight * torch.tensor([[30.0, 40.0]])).sum())
    np.testing.assert_allclose(weight.weight.grad, [[0.6, 0.8]], rtol=1e-4)


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_gradient_accumulation_is_equivalent(loss):
    data, recipe = make_labelled("bert", 40), replace(SMALL, epochs=1, dropout=0.0, loss=loss)
    whole, in_parts = (replace(recipe, accumulation_steps=steps).fit(data, run=ONE) for steps in (1, 5))
    assert_same_weights(whole, in_parts, atol=2e-4)


def test_frozen_encoder_encodes_each_text_once(monkeypatch):
    data, valid = make_labelled("bert", 200), make_labelled("bert", 50, seed=2)
    n_read, forward = [], TextEncoder.forward
    monkeypatch.setattr(
        TextEncoder, "forward", lambda self, *given: n_read.append(len(given[0])) or forward(self, *given)
    )
    recipe = replace(SMALL, encoder_rate=0.0, epochs=40, patience=40, pooling="mean", clusters=1, head_rate=3e-2)
    model = recipe.fit(data, valid, ONE)
    assert sum(n_read) == 250
    pretrained_weights = load_encoder(tiny("bert")).state_dict()
    for name, array in pretrained_weights.items():
        np.testing.assert_array_equal(model.network.weights.arrays[f"encoder.model.{name}"], array)
    answers = model.predict(valid, 5, ONE)  # 40 labels and an untrained encoder
    assert evaluate(answers, valid.Y, ["P@1"])["P@1"] > 0.2


def test_states_of_frozen_encoder_are_checkpointed(tmp_path, monkeypatch):
    data, recipe = make_labelled("bert", 80), replace(SMALL, encoder_rate=0.0)
    whole = recipe.fit(data, run=ONE)
    monkeypatch.setattr(APLCXLNet, "make_training_options", lambda self, n_docs: pytest.fail("killed"))
    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "parts"))
    with pytest.raises(pytest.fail.Exception):
        recipe.fit(data, run=run)
    monkeypatch.undo()
    monkeypatch.setattr(TextEncoder, "forward", lambda self, *given: pytest.fail("a text was read again"))
    assert_same_weights(whole, recipe.fit(data, run=run))


def test_gradient_checkpointing_is_equivalent():
    data = make_labelled("bert", 40)
    kept, computed = (
        replace(SMALL, epochs=1, gradient_checkpointing=checkpointing).fit(data, run=ONE)
        for checkpointing in (False, True)
    )
    assert_same_weights(kept, computed, atol=2e-4)
    with pytest.raises(XmtcError, match="Encoders of type xlnet do not support gradient checkpointing"):
        replace(SMALL, gradient_checkpointing=True).fit(make_labelled("xlnet", 40), run=ONE)


def test_resumed_training_equals_uninterrupted_training(tmp_path, monkeypatch):
    data, recipe = make_labelled("bert", 80), replace(SMALL, patience=9)
    whole = recipe.fit(data, run=ONE)
    step = TrainingState.step

    def interrupted_step(self, loss):
        if (self.epoch, self.n_epoch_steps) == (1, 2):
            raise KeyboardInterrupt
        step(self, loss)

    monkeypatch.setattr(TrainingState, "step", interrupted_step)
    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "parts", interval_seconds=0))
    with pytest.raises(KeyboardInterrupt):
        recipe.fit(data, run=run)
    monkeypatch.setattr(TrainingState, "step", step)
    assert_same_weights(whole, recipe.fit(data, run=run))
    with pytest.raises(XmtcError, match="pieces of a training with other data or parameters"):
        recipe.fit(from_encoder(data, tiny("bert", 16)), run=run)


def from_encoder(data: Dataset, encoder: str) -> Dataset:
    return replace(data, views={"subwords": replace(data.tokens("subwords"), encoder=encoder)})


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    """Train on a corpus whose labels have distinctive words, which tiny encoders learn in seconds."""
    texts, tags = make_planted_corpus(600, seed=3)
    documents = [Document(str(i), text, own) for i, (text, own) in enumerate(zip(texts, tags, strict=True))]
    rates = {"head_rate": 2e-2, "epochs": 9, "patience": 9}
    recipe = replace(SMALL, **rates, precision="fp16", hidden=96, pooling="mean")
    return train(documents, recipe, run=ONE, encoder=tiny("xlnet", 128), max_subwords=40)


def test_model_folder_contains_the_encoder(tagger, tmp_path, monkeypatch):
    tagger.save(tmp_path / "model")
    texts = make_planted_corpus(30, seed=4)[0]
    monkeypatch.setattr(AutoModel, "from_pretrained", None)
    loaded = Tagger.load(tmp_path / "model", verify=True)
    assert loaded.predict_labels(texts, 7, run=ONE) == tagger.predict_labels(texts, 7, run=ONE)
    assert {array.dtype for array in loaded.model.network.weights.arrays.values()} == {np.dtype(np.float16)}
    assert tagger.model.network.design.hidden == 96
    about = (tmp_path / "model" / "about.json").read_text()
    assert json.loads(about)["sizes"] == {"subwords": tagger.views["subwords"].size}


def test_clusters_are_sorted_by_frequency(tagger):
    frequencies = tagger.frequencies[tagger.model.order]
    assert len(tagger.model.network.design.sizes) == 3
    assert frequencies[:5].mean() > frequencies[-5:].mean()
    texts, tags = make_planted_corpus(100, seed=5)
    best = [row[0].label for row in tagger.predict_labels(texts, 1, run=ONE)]
    assert np.mean([label in own for label, own in zip(best, tags, strict=True)]) > 0.8


def test_integrated_gradients_sum_to_the_difference(tagger):
    """With many points, contributions sum to the difference of the logits of text and padding."""
    network = tagger.model.network.load_on(CPU).double()
    ids = torch.from_numpy(tagger.transform([Document("", TEXTS[0], [])]).tokens("subwords").ids.astype(np.int64))
    label = 3
    result, by_eight = (network.compute_integrated_gradients(ids, label, steps).sum().item() for steps in (500, 8))
    without = torch.where(network.encoder.mask_special_tokens(len(ids)), ids, network.encoder.padding)
    with torch.no_grad():
        vectors, padding = (network.encoder.embed_subwords(each)[None] for each in (ids, without))
        mask = torch.ones(1, len(ids), dtype=torch.bool)
        text, nothing = (
            network.head.compute_logit(network.apply_hidden_layer(network.encoder.encode(mask, inputs_embeds=v)), label)
            for v in (vectors, padding)
        )
    network.float()
    assert result == pytest.approx((text - nothing).item(), rel=0.01)
    assert by_eight == pytest.approx(result, rel=0.2)


def test_highlight_covers_the_text(tagger):
    text = f"{planted_words(3)[0]} noise1, unheard-of {planted_words(3)[1]}"
    result = tagger.highlight(text, "label-03")[0]
    assert "".join(piece.text for piece in result.pieces) == text
    words = [piece.text for piece in result.pieces if piece.weight]
    assert words == [planted_words(3)[0], "noise1,", "unheard-of", planted_words(3)[1]]
    assert {word for word, _ in result.words} == set(words)
    assert dict(tagger.explain(text, "label-03"))["noise1,"] == pytest.approx(result.pieces[2].weight)


DAMAGE = {
    "labels": lambda m: replace(m, n_labels=41),
    "sizes": lambda m: with_design(m, sizes=(40,)),
    "no sizes": lambda m: with_design(m, sizes=()),
    "a size": lambda m: with_design(m, sizes=(41, -1)),
    "pooling": lambda m: with_design(m, pooling="most"),
    "hidden": lambda m: with_design(m, hidden=2**40),
    "factor": lambda m: with_design(m, factor=0),
    "points": lambda m: replace(m, gradient_points=0),
    "subwords": lambda m: replace(m, views={"subwords": 10**6}),
    "another view": lambda m: replace(m, views={"words": m.views["subwords"]}),
    "order": lambda m: replace(m, order=np.zeros_like(m.order)),
    "another network": lambda m: replace(m, network=replace(m.network, design=ATTENTION_DESIGN)),
    "no encoder": lambda m: with_design(m, encoder="{"),
    "an encoder that nobody knows": lambda m: with_design(m, encoder='{"model_type": "tower"}'),
    "an encoder without type": lambda m: with_design(m, encoder="{}"),
    "another encoder": lambda m: with_design(m, encoder='{"model_type": "bert"}'),
    "a kind of number": lambda m: with_weights(m, lambda a: a.astype(np.float64)),
    "two kinds of numbers": lambda m: with_weights(m, lambda a: a.astype(np.float32)),
    "a length": lambda m: with_weights(m, lambda a: a[..., :-1]),
}
ATTENTION_DESIGN = RecurrentDesign(n_words=30, dimension=2, hidden=2, layers=(2,), pooling="max", n_labels=40)


def with_design(model, **changes):
    return replace(model, network=replace(model.network, design=replace(model.network.design, **changes)))


def with_weights(model, change):
    name, first = next(iter(model.network.weights.arrays.items()))
    weights = Weights(model.network.weights.arrays | {name: change(first)})
    return replace(model, network=replace(model.network, weights=weights))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_model_is_rejected(damage, tagger):
    tagger.model.check()
    with pytest.raises((ValueError, RuntimeError, KeyError, TypeError)):
        damage(tagger.model).check()


def test_damaged_tokenizer_is_rejected(tagger):
    view = tagger.views["subwords"]
    view.check()
    with pytest.raises(ValueError, match=r"^its tokenizer is not valid JSON"):
        replace(view, json=view.json[:-1]).check()
    with pytest.raises(ValueError, match="its maximum number of subwords, 0, is out of range"):
        replace(view, max_subwords=0).check()


def test_one_cluster_is_a_flat_output_layer():
    model = replace(SMALL, clusters=1, epochs=1).fit(make_labelled("bert", 40), run=ONE)
    assert model.network.design.sizes == (40,)
    assert not any("tails" in name for name in model.network.weights.arrays)
    assert model.predict(make_labelled("bert", 5), 40, ONE).labels.shape == (5, 40)


def test_predictions_equal_the_network(tagger):
    data = tagger.transform([Document("", text, []) for text in TEXTS])
    network, loader = tagger.model.network.load_on(CPU), TokenLoader(data.tokens("subwords"), CPU)
    result = restore_label_ids(predict_with_network(network, loader, 9, ONE), tagger.model.order)
    again = tagger.model.predict(data, 9, ONE)
    np.testing.assert_array_equal(again.labels, result.labels)
    np.testing.assert_array_equal(again.scores, result.scores)
    batch = loader.load_batch(np.arange(3))
    with torch.no_grad():
        features = network.apply_hidden_layer(network.compute_document_states(batch))
        for row, doc in enumerate(batch.docs):
            for label, score in zip(result.labels[doc], result.scores[doc], strict=True):
                rank = int(np.flatnonzero(tagger.model.order == label)[0])
                assert network.head.compute_logit(features, rank)[row].sigmoid().item() == pytest.approx(
                    score, rel=1e-3
                )


# Tables 2 and 3: d, number of clusters; length, rates, batch, epochs.
TABLES = {
    "EURLex-4k": (768, 2, 512, 5e-5, 1e-4, 2e-3, 12, 8),
    "AmazonCat-13k": (768, 2, 192, 5e-5, 1e-4, 2e-3, 48, 8),
    "Wiki10-31k": (768, 2, 512, 1e-5, 1e-4, 1e-3, 12, 6),
    "Wiki-500k": (768, 3, 256, 5e-5, 1e-4, 2e-3, 64, 12),
    "Amazon-670k": (512, 4, 128, 5e-5, 1e-4, 2e-3, 32, 25),
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_tables_2_and_3(name):
    pipeline = Pipeline.from_parameters("aplc_xlnet", parameters={"preset": name})
    result = {key: value for key, (_, value) in pipeline.parameters.items()}
    keys = "hidden", "clusters", "max_subwords", "encoder_rate", "hidden_rate", "head_rate", "batch", "epochs"
    assert tuple(result[key] for key in keys) == TABLES[name]
    assert [result[key] for key in ("factor", "biases", "loss", "held_out", "warm_up")] == [2, False, "mean", 0, 0]
    assert len(pipeline.method.cluster_shares) == result["clusters"]
    assert APLCXLNet(preset="Wiki-500k").cluster_shares == (0.33, 0.33, 0.34)


def test_preset_replaces_unset_parameters_of_views():
    amazon = {"preset": "Amazon-670k"}
    assert Pipeline.from_parameters("aplc_xlnet", parameters=amazon).views["subwords"].max_subwords == 128
    assert (
        Pipeline.from_parameters("aplc_xlnet", parameters=amazon | {"max_subwords": 60}).views["subwords"].max_subwords
        == 60
    )
    within = {"members": ("parabel", "aplc_xlnet"), "aplc_xlnet.preset": "Amazon-670k"}
    assert Pipeline.from_parameters("consensus", parameters=within).views["subwords"].max_subwords == 128
    other = Pipeline.from_parameters("aplc_xlnet", parameters=amazon).with_parameters({"preset": "Wiki-500k"})
    assert other.views["subwords"].max_subwords == 256
    given = Pipeline.from_parameters("aplc_xlnet", parameters={"max_subwords": 60}).with_parameters(amazon)
    assert given.views["subwords"].max_subwords == 60
    classifier = Classifier("aplc_xlnet", **amazon)
    assert classifier.get_params()["max_subwords"] == 128
    assert "max_subwords" not in classifier.get_params(deep=False)


def test_saved_model_keeps_only_set_parameters(tmp_path):
    tiny_one = {"encoder": tiny("bert"), "hidden": 8, "epochs": 1, "preset": "Amazon-670k", "max_subwords": 128}
    texts, tags = make_planted_corpus(30, 1)
    Classifier("aplc_xlnet", **tiny_one).fit(texts, tags, run=ONE).save(tmp_path / "model")
    again = Classifier.load(tmp_path / "model").get_params(deep=False)
    assert again == {"method": "aplc_xlnet", "encoder": tiny("bert"), "hidden": 8, "epochs": 1, "preset": "Amazon-670k"}


SHARES = r"shares such as 0\.7,0\.2,0\.1"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (UnparsedValue("a,b"), "numbers"),
        (UnparsedValue("0.5,0"), SHARES),
        ((0.5, 0), SHARES),
        ((0.5, -1), SHARES),
        ((0.5, inf), "numbers"),
        ((nan,), "numbers"),
        ("0.5,0.5", "numbers"),
    ],
)
def test_invalid_proportions_are_rejected(wrong, expected):
    with pytest.raises(XmtcError, match=rf"proportions=.* is invalid; expected {expected}\.$"):
        build_method("aplc_xlnet", {"proportions": wrong})


@pytest.mark.parametrize(
    ("message", "positions"),
    [
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 0}, 512),
        ({"model_type": "xlnet"}, UNLIMITED_POSITIONS),
        ({"model_type": "any", "max_position_embeddings": -1}, UNLIMITED_POSITIONS),
    ],
)
def test_maximum_positions_of_encoders(message, positions, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(message))
    assert read_max_positions(str(tmp_path)) == positions


@pytest.mark.parametrize("content", ["{", "[]"])
def test_damaged_configuration_is_rejected(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(XmtcError, match=r"cannot be loaded \(config.json: .*\); give the folder of an encoder"):
        read_max_positions(str(tmp_path))


def test_texts_of_maximum_length_are_encoded():
    """The maximum length is not a multiple of 8, to which batches are padded."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertModel(BertConfig(vocab_size=50, max_position_embeddings=13, **sizes))
    tokens = Tokens(np.arange(26, dtype=np.int32), np.array([0, 13, 26]), 50)
    network = TransformerNetwork(TextEncoder(model, "mean"), LabelClusters(ClusterLayout((4,), 16, 2)))
    assert network.compute_document_states(TokenLoader(tokens, CPU).load_batch(np.arange(2))).shape == (2, 16)


def test_texts_above_maximum_length_are_rejected():
    texts = [" ".join(["noise1"] * 100), "noise2"]
    view, tokens = subwords("bert", texts, 80)
    assert (view.max_subwords, tokens.lengths.max()) == (64, 64)  # the maximum length of the encoder
    long = replace(replace(view, max_subwords=80).transform(texts), encoder=tokens.encoder)
    data = Dataset({"subwords": long}, csr_array(np.ones((2, 2), np.float32)))
    with pytest.raises(XmtcError, match="up to 80 subwords, but the encoder has positions for 64; set max_subwords=64"):
        SMALL.fit(data, data, run=ONE)


def test_two_processes_train_one_model(tmp_path):
    """Two processes of torchrun give the same model as one.

    Some steps have no label in a tail, and some parts are too small to be sharded.
    """
    texts, tags = make_planted_corpus(62, seed=1)
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(texts, tags, strict=True)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    names = "epochs=1", "batch=7", "accumulation_steps=3", "dropout=0", "clusters=8", "head_rate=1e-4"
    command = ["train", "corpus.jsonl", "-m", "aplc_xlnet", "--threads", "1", "--device", "cpu"]
    command += [f"-p{name}" for name in (*names, f"encoder={tiny('bert')}")]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, how in {"one": [], "two": together}.items():
        whole = [sys.executable, *how, "-m", "xmtc", *command, "-o", name]
        done = subprocess.run(whole, cwd=tmp_path, env=environment, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode()
    one, two = (Tagger.load(tmp_path / name) for name in ("one", "two"))
    assert one.about["n_docs"] == two.about["n_docs"] == 62
    assert_same_weights(one.model, two.model, atol=2e-5)


@pytest.mark.parametrize(
    ("others", "views"),
    [
        (("parabel",), ["tfidf", "subwords"]),
        (("xml_rnn",), ["words", "subwords"]),
        (("parabel", "xml_rnn"), ["tfidf", "words", "subwords"]),
        (("rank_ae",), ["tfidf", "subwords"]),
        (("rank_ae", "xml_rnn"), ["tfidf", "words", "subwords"]),
    ],
)
def test_member_of_a_consensus(others, views, tmp_path):
    small = {
        "aplc_xlnet": {"epochs": 1},
        "xml_rnn": {"epochs": 1, "hidden": 8, "layers": (8,)},
        "rank_ae": {"epochs": 1, "layer": 8, "hidden": 8},
    }
    members = "aplc_xlnet", *others
    settings = {f"{name}.{key}": value for name in members for key, value in small.get(name, {}).items()}
    consensus = Classifier("consensus", members=members, encoder=tiny("bert"), max_subwords=40, **settings)
    consensus.fit(*make_planted_corpus(60, seed=1), run=ONE)
    texts = make_planted_corpus(5, seed=2)[0]
    consensus.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    assert list(loaded.tagger_.about["views"]) == list(loaded.tagger_.views) == views
    assert loaded.predict_labels(texts, run=ONE) == consensus.predict_labels(texts, run=ONE)
    result = loaded.highlight(texts[0], k=1)[0]
    assert "".join(piece.text for piece in result.pieces) == texts[0]
    assert result.words


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("kind", [*KINDS, "mpnet"])
def test_gpu_predicts_like_cpu(kind):
    data = make_labelled(kind, 200)
    model = replace(SMALL, epochs=8).fit(data, run=Run(device="cuda"))
    gpu, cpu = (model.predict(data, 3, Run(device=device)) for device in ("cuda", "cpu"))
    assert (gpu.labels[:, 0] == cpu.labels[:, 0]).mean() > 0.95
    np.testing.assert_allclose(gpu.scores[:, 0], cpu.scores[:, 0], atol=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_fused_attention_in_bf16_has_the_gradients_of_float32():
    usual, gpu = MPNetModel(MPNetConfig(vocab_size=50, num_hidden_layers=2)).eval(), torch.device("cuda")
    fused = copy.deepcopy(usual).to(gpu)
    fuse_attention(fused)
    ids, mask = torch.randint(4, 50, (3, 64)), torch.ones(3, 64, dtype=torch.long)
    mask[1, 40:] = 0
    expected = torch.randn(768)
    (usual(ids, attention_mask=mask).last_hidden_state[mask > 0] @ expected).square().sum().backward()
    with mixed_precision(gpu):
        states = fused(ids.to(gpu), attention_mask=mask.to(gpu)).last_hidden_state
    (states.float()[mask.to(gpu) > 0] @ expected.to(gpu)).square().sum().backward()
    for (name, one), other in zip(usual.named_parameters(), fused.parameters(), strict=True):
        if other.grad is not None and not name.endswith("k.bias"):  # softmax is invariant to this bias
            assert torch.linalg.vector_norm(one.grad - other.grad.cpu()) < 0.1 * torch.linalg.vector_norm(one.grad), (
                name
            )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize(("kind", "is_captured"), [("bert", True), ("mpnet", True), ("xlnet", False)])
def test_cuda_graphs_are_equivalent(kind, is_captured, monkeypatch):
    """Weights after a few epochs are the same up to bf16 precision."""
    capture, captured = CudaGraphs.capture, []
    monkeypatch.setattr(CudaGraphs, "capture", lambda self, ids, mask: captured.append(ids) or capture(self, ids, mask))
    data = make_labelled(kind, 300)
    recipe = replace(SMALL, epochs=3, dropout=0.0, encoder_rate=1e-4, head_rate=1e-3, batch=16)
    result = [replace(recipe, cuda_graphs=graphs).fit(data, run=Run(device="cuda")) for graphs in (True, False)]
    assert bool(captured) == is_captured
    assert_same_weights(*result, atol=1e-3)


BY_LABEL = replace(SMALL, pooling="attention", clusters=1)


def test_label_attention_equals_reference():
    """Compare logits, loss, one label's logit and the best labels with reference loops."""
    torch.manual_seed(0)
    head = LabelWiseAttention(ClusterLayout((5,), 6, 2), biases=True)
    torch.nn.init.normal_(head.bias)
    states, mask = torch.randn(3, 4, 6), torch.arange(4) < torch.tensor([[4], [2], [1]])
    u, w, b = (x.detach().numpy() for x in (head.attention.weight, head.labels.weight, head.bias))
    expected = np.zeros((3, 5))
    for doc, length in enumerate([4, 2, 1]):
        H = states[doc, :length].numpy()
        for label in range(5):
            alpha = np.exp(H @ u[label])
            expected[doc, label] = alpha @ (H @ w[label]) / alpha.sum() + b[label]
    features = SubwordStates(states, mask)
    np.testing.assert_allclose(head.logits(features).detach(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(head.compute_logit(features, 3).detach(), expected[:, 3], rtol=1e-4, atol=1e-5)
    rows, labels = torch.tensor([0, 0, 2]), torch.tensor([1, 4, 0])
    loss = np.log1p(np.exp(expected)).sum() - expected[rows, labels].sum()
    assert head(features, rows, labels).item() == pytest.approx(loss, rel=1e-5)
    result = head.predict_top_k(features, 2)
    np.testing.assert_array_equal(result[0], np.argsort(-expected)[:, :2])
    with torch.autocast("cpu", torch.bfloat16):
        in_bf16 = head.logits(features)
    assert in_bf16.dtype == torch.float32
    np.testing.assert_allclose(in_bf16.detach(), expected, atol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_label_attention_learns_and_loads_and_explains(kind, tmp_path):
    texts, tags = make_planted_corpus(300, 1)
    settings = {"encoder": tiny(kind), "epochs": 8, "batch": 16, "encoder_rate": 2e-3, "hidden_rate": 1e-2, "seed": 3}
    learnt = Classifier("aplc_xlnet", pooling="attention", clusters=1, head_rate=2e-2, **settings).fit(
        texts, tags, run=ONE
    )
    new, truth = make_planted_corpus(50, 2)
    answers = learnt.predict(new, k=1)
    assert np.mean([answer[0] in own for answer, own in zip(answers, truth, strict=True)]) > 0.9
    learnt.save(tmp_path / "model")
    again = Tagger.load(tmp_path / "model", verify=True)
    assert again.predict_labels(new[:9], 3, run=ONE) == learnt.tagger_.predict_labels(new[:9], 3, run=ONE)
    network, mask = again.model.network.load_on(CPU).double(), torch.ones(1, 5, dtype=torch.bool)
    ids = torch.from_numpy(
        again.transform([Document("", "noise1 word3alpha noise2", [])]).tokens("subwords").ids
    ).long()
    padding = torch.where(network.encoder.mask_special_tokens(5), ids, network.encoder.padding)
    with torch.no_grad():
        read = (network.as_head_input(network.encoder(each[None], mask), mask) for each in (ids, padding))
        text, nothing = (network.head.compute_logit(network.apply_hidden_layer(each), 3) for each in read)
    assert network.compute_integrated_gradients(ids, 3, 400).sum().item() == pytest.approx(
        (text - nothing).item(), rel=0.01
    )


@pytest.mark.parametrize("wrong", [{"clusters": 2}, {"encoder_rate": 0.0}, {"proportions": (0.5, 0.5)}])
def test_label_attention_needs_one_cluster_and_trained_encoder(wrong):
    with pytest.raises(XmtcError, match=r"pooling=attention does not fit .* expected clusters=1 and an encoder"):
        replace(BY_LABEL, **wrong)


def test_label_attention_has_the_rate_of_the_hidden_layer():
    network, design = BY_LABEL.build_network(make_labelled("bert", 32), ONE)
    assert BY_LABEL.make_training_options(32).get_rate("head.attention.weight") == BY_LABEL.hidden_rate
    assert BY_LABEL.make_training_options(32).get_rate("head.labels.weight") == BY_LABEL.head_rate
    assert {name.partition(".")[0] for name, _ in network.named_parameters()} == {"encoder", "hidden", "head"}
    with pytest.raises(ValueError, match="pooling=attention and 2 clusters; expected 1 cluster"):
        replace(design, sizes=(20, 20)).check()

"""Networks of XML-CNN and Bow-CNN against reference loops for the papers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array
from training_stop import TrainingStop, stop_at_pass

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")

from xmtc import Classifier  # noqa: E402
from xmtc.core.checkpoint import Checkpoint  # noqa: E402
from xmtc.core.dataset import Dataset, Tokens  # noqa: E402
from xmtc.core.run import Run  # noqa: E402
from xmtc.data.in_memory import to_documents  # noqa: E402
from xmtc.errors import XmtcError  # noqa: E402
from xmtc.methods.convolution.bow_cnn import BowCNN, BowCNNDesign  # noqa: E402
from xmtc.methods.convolution.model import ConvolutionalModel  # noqa: E402
from xmtc.methods.convolution.network import NetworkWithLoss, compute_chunk_offsets  # noqa: E402
from xmtc.methods.convolution.xml_cnn import PRESETS, XMLCNN, XMLCNNDesign  # noqa: E402
from xmtc.nn.batches import LabelLoader, TokenLoader  # noqa: E402
from xmtc.nn.layers import BatchNorm  # noqa: E402
from xmtc.nn.network import (  # noqa: E402
    TrainedNetwork,
    Weights,
)
from xmtc.tagger import Tagger  # noqa: E402

CPU, ONE = torch.device("cpu"), Run(threads=1, device="cpu")
DOCUMENTS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8, 9], [7, 9, 3, 2, 3, 8, 4], [6]
FILTERS = XMLCNNDesign(n_words=20, n_labels=6, dimension=5, filters=(1, 2, 4), maps=3, chunks=3, bottleneck=7)
BAGS = BowCNNDesign(n_words=20, n_labels=6, vocabulary=7, maps=4, region=3, stride=2, chunks=3, pooling="mean")
NORMED = replace(FILTERS, batch_norm=True, output_norm=True)
NORMED_BAGS = replace(BAGS, output_norm=True)
DESIGNS = FILTERS, NORMED, BAGS, replace(BAGS, pooling="max"), NORMED_BAGS


def tokens(*documents: list[int], n_words: int = 20) -> Tokens:
    offsets = np.cumsum([0, *map(len, documents)])
    return Tokens(np.array([word for words in documents for word in words], np.int32), offsets, n_words)


def logits(network, *documents: list[int]) -> np.ndarray:
    """Return the logits in the order of the documents."""
    batch = TokenLoader(tokens(*documents), CPU).load_batch(np.arange(len(documents)))
    with torch.no_grad():
        return network.eval()(batch).numpy()[np.argsort(batch.docs)]


def build_random(design):
    torch.manual_seed(0)
    network = design.build()
    torch.nn.init.normal_(network.embedding.weight)
    for norm in (module for module in network.modules() if isinstance(module, BatchNorm)):
        for values in (norm.weight, norm.bias, norm.mean):
            torch.nn.init.normal_(values)
        torch.nn.init.uniform_(norm.variance, 0.5, 2.0)
    return network, {name: value.detach().numpy() for name, value in network.state_dict().items()}


def reference_norm(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Apply the batch normalisation of this name, if the network has it."""
    if f"{name}.mean" not in w:
        return x
    spread = np.sqrt(w[f"{name}.variance"] + 1e-5)
    return (x - w[f"{name}.mean"]) / spread * w[f"{name}.weight"] + w[f"{name}.bias"]


def reference_chunks(regions: np.ndarray, n_chunks: int, pool) -> np.ndarray:
    """Return pooled regions (n_chunks, n_maps); region i of T belongs to chunk i · p // T."""
    of = np.arange(len(regions)) * n_chunks // len(regions)
    return np.array([pool(regions[of == c], 0) if (of == c).any() else 0 * regions[0] for c in range(n_chunks)])


@pytest.mark.parametrize("design", [FILTERS, NORMED])
def test_xml_cnn_equals_reference(design):
    network, w = build_random(design)
    result = logits(network, *DOCUMENTS)
    for row, words in enumerate(DOCUMENTS):
        x = np.vstack([w["embedding.weight"][words], np.zeros((4, 5))])
        maps = []
        for number, width in enumerate(FILTERS.filters):
            kernel, bias = w[f"filters.{number}.weight"], w[f"filters.{number}.bias"]
            maps.append(
                [[(kernel[m] * x[i : i + width].T).sum() + bias[m] for m in range(3)] for i in range(len(words))]
            )
        pooled = reference_chunks(np.maximum(0, np.concatenate(maps, 1)), 3, np.max).T.ravel()
        narrow = w["bottleneck.weight"] @ pooled + w.get("bottleneck.bias", 0)
        hidden = reference_norm(np.maximum(0, reference_norm(narrow, w, "norm")), w, "output_norm")
        np.testing.assert_allclose(result[row], w["output.weight"] @ hidden + w["output.bias"], atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("output_norm", [True, False])
def test_bow_cnn_equals_reference(pooling, output_norm):
    network, w = build_random(replace(BAGS, pooling=pooling, output_norm=output_norm))
    result = logits(network, *DOCUMENTS)
    for row, words in enumerate(DOCUMENTS):
        regions = []
        for begin in range(0, len(words), BAGS.stride):
            words_here = np.array(words[begin : begin + BAGS.region])
            bag = np.bincount(np.where(words_here > BAGS.vocabulary, 0, words_here), minlength=8)
            regions.append(np.maximum(0, bag @ w["embedding.weight"] + w["bias"]))
        pooled = reference_chunks(np.array(regions), 3, np.mean if pooling == "mean" else np.max)
        pooled /= np.sqrt(1 + (pooled**2).sum(1, keepdims=True))
        hidden = reference_norm(pooled.ravel(), w, "output_norm")
        np.testing.assert_allclose(result[row], w["output.weight"] @ hidden + w["output.bias"], atol=1e-5)


def test_chunks_are_shares_of_each_text():
    batch = TokenLoader(tokens(*DOCUMENTS), CPU).load_batch(np.arange(4))
    assert batch.count_tokens().tolist() == [11, 7, 2, 1]
    assert compute_chunk_offsets(batch.count_tokens(), 3).tolist() == [
        [0, 4, 8, 11],
        [0, 3, 5, 7],
        [0, 1, 2, 2],
        [0, 1, 1, 1],
    ]


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: type(design).__name__)
def test_prediction_is_independent_of_the_batch(design):
    network, _ = build_random(design)
    together = logits(network, *DOCUMENTS)
    for row, words in enumerate(DOCUMENTS):
        np.testing.assert_allclose(logits(network, words)[0], together[row], atol=1e-5)


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: type(design).__name__)
def test_loss_and_gradient_are_summed_over_labels(design):
    network, _ = build_random(design)
    Y = np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 1]])
    loader, labels = TokenLoader(tokens(*DOCUMENTS), CPU), LabelLoader(csr_array(Y), CPU)
    batch = loader.load_batch(np.arange(4))
    loss = NetworkWithLoss(network)(batch, *labels.label_pairs(batch.docs))
    loss.backward()
    gradients = [p.grad.clone() for p in network.parameters()]
    network.zero_grad()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        network(batch), torch.tensor(Y[batch.docs], dtype=torch.float32), reduction="sum"
    )
    (expected / 4).backward()
    assert loss.item() == pytest.approx(expected.item() / 4, rel=1e-5)
    for result, p in zip(gradients, network.parameters(), strict=True):
        np.testing.assert_allclose(result, p.grad, atol=1e-6)


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: type(design).__name__)
def test_initial_biases_predict_label_frequencies(design):
    network, _ = build_random(design)
    torch.nn.init.zeros_(network.output.weight)
    network.initialise_biases(csr_array(np.array([[1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0]])))
    p = 1 / (1 + np.exp(-logits(network, [1, 2])[0]))
    np.testing.assert_allclose(p, (np.array([3, 1, 1, 0, 0, 0]) + 0.5) / 4, rtol=1e-5)


@pytest.mark.parametrize("design", [FILTERS, NORMED])
def test_explanation_sums_to_the_logit_without_biases(design):
    network, _ = build_random(design)
    for name, values in network.state_dict().items():
        if name.endswith(("bias", "norm.mean")):
            torch.nn.init.zeros_(values)
    trained = TrainedNetwork(design=design, weights=Weights.from_network(network))
    model = ConvolutionalModel(n_labels=6, views={"words": 20}, network=trained)
    model.check()
    for words in DOCUMENTS:
        explained = model.explain(Dataset({"words": tokens(words)}), 4)
        assert explained.per_token.sum() == pytest.approx(logits(network, words)[0, 4], abs=1e-5)
        assert len(explained.per_token) == len(words)


def test_batch_normalisation_keeps_bottleneck_units_alive():
    """Without normalisation, the first steps of Adam leave units that are zero for all documents."""
    texts, tags = make_planted_corpus(300, seed=1)
    alive = {}
    for batch_norm in (True, False):
        small = {"maps": 64, "bottleneck": 128, "batch": 10, "epochs": 1, "batch_norm": batch_norm}
        tagger = Classifier("xml_cnn", **small).fit(texts, tags, run=ONE).tagger_
        network, words = tagger.model.network(), tagger.transform(to_documents(texts)).tokens("words")
        batch = TokenLoader(words, CPU).load_batch(np.arange(len(texts)))
        alive[batch_norm] = (network.pool_features(network.embed_words(batch), batch) > 0).any(0).float().mean()
    assert alive[True] == 1
    assert alive[False] < 0.8


@pytest.mark.parametrize(("maps", "size"), [(4, 1.0), (200, 1.0), (512, 1 / 3)])
def test_wide_output_inputs_are_scaled_down(maps, size):
    """Inputs have mean 0 and deviation 1; above 512 features they are scaled down."""
    torch.manual_seed(0)
    network = replace(NORMED_BAGS, maps=maps, chunks=1 if maps == 200 else 3, vocabulary=19).build().train()
    rng = np.random.default_rng(0)
    loader = TokenLoader(tokens(*(rng.integers(1, 20, 12).tolist() for _ in range(40))), CPU)
    batch = loader.load_batch(np.arange(40))
    with torch.no_grad():
        hidden = network.encode(network.embed_words(batch), batch)
    np.testing.assert_allclose(hidden.mean(0), 0, atol=1e-4)
    assert float(hidden.std(0).median()) == pytest.approx(size, rel=0.05)


def make_rare_labels(n_labels: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Return three documents of each label with three words of the label and thirty random words."""
    rng, texts = np.random.default_rng(seed), []
    labels = [number % n_labels for number in range(3 * n_labels)]
    for label in labels:
        words = [*(f"any{i}" for i in rng.integers(300, size=30)), f"one{label}", f"two{label}", f"one{label}"]
        texts.append(" ".join(rng.permutation(words)))
    return texts, [[f"label{label}"] for label in labels]


def test_output_normalisation_helps_rare_labels():
    """Without normalisation, a step of Adam moves a rare label equally in all texts.

    The loss then stays above that of the label frequencies, with which training starts.
    """
    n_labels = 200
    texts, tags = make_rare_labels(n_labels, seed=1)
    small = {"maps": 300, "chunks": 1, "batch": 20, "epochs": 2, "dropout": 0.2, "held_out": 0.0, "calibrate": False}
    losses = {True: [], False: []}
    for output_norm, result in losses.items():
        run = replace(ONE, callbacks=lambda event, result=result: result.append(getattr(event, "loss", None)))
        Classifier("bow_cnn", **small, output_norm=output_norm).fit(texts, tags, run=run)
    last = {key: [loss for loss in result if loss is not None][-1] for key, result in losses.items()}
    p = 1 / n_labels
    of_frequencies = -np.log(p) - (n_labels - 1) * np.log(1 - p)
    assert last[True] < of_frequencies / 2
    assert last[False] > of_frequencies - 1


def test_old_folder_without_batch_normalisation_loads(tmp_path):
    texts, tags = make_planted_corpus(60, seed=1)
    before = (
        Classifier("xml_cnn", **XMLCNN.quick_parameters | {"batch_norm": False, "output_norm": False})
        .fit(texts, tags, run=ONE)
        .tagger_
    )
    before.save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / "about.json").read_text())
    design = about["parts"]["model"]["network"]["design"]
    assert design.pop("batch_norm") is design.pop("output_norm") is False
    (tmp_path / "model" / "about.json").write_text(json.dumps(about))
    assert Tagger.load(tmp_path / "model").predict_labels(texts) == before.predict_labels(texts)
    del design["maps"]
    (tmp_path / "model" / "about.json").write_text(json.dumps(about))
    with pytest.raises(XmtcError, match=r"model is damaged: .*maps.*; copy or train it again"):
        Tagger.load(tmp_path / "model")


def test_damaged_models_are_rejected():
    network, _ = build_random(FILTERS)
    trained = TrainedNetwork(design=FILTERS, weights=Weights.from_network(network))
    for wrong in (
        ConvolutionalModel(n_labels=5, views={"words": 20}, network=trained),
        ConvolutionalModel(n_labels=6, views={"words": 21}, network=trained),
        ConvolutionalModel(
            n_labels=6, views={"words": 20}, network=replace(trained, design=replace(FILTERS, chunks=0))
        ),
        ConvolutionalModel(n_labels=6, views={"words": 20}, network=replace(trained, design=replace(FILTERS, maps=4))),
        ConvolutionalModel(n_labels=6, views={"words": 20}, network=replace(trained, design=BAGS)),
    ):
        with pytest.raises(ValueError, match=r"its (network|weights)"):
            wrong.check()


def test_preset_replaces_unset_parameters():
    assert XMLCNN(preset="large").maps == 32
    assert XMLCNN(preset="small", maps=7).maps == 7
    assert XMLCNN().output_norm
    assert not XMLCNN(preset="small").output_norm  # not in the paper
    assert set(PRESETS) == {"small", "large"}
    with pytest.raises(XmtcError, match=r"filters=\(\) is invalid"):
        XMLCNN(filters=())


@pytest.mark.parametrize("method", [XMLCNN, BowCNN])
def test_resumed_training_equals_uninterrupted_training(method, tmp_path):
    train = make_planted_corpus(60, seed=1)
    small = method.quick_parameters | {"epochs": 3, "average_from": 1}
    name = {"XMLCNN": "xml_cnn", "BowCNN": "bow_cnn"}[method.__name__]
    whole = Classifier(name, **small).fit(*train, run=ONE)

    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "kept", interval_seconds=0))
    with pytest.raises(TrainingStop):
        Classifier(name, **small).fit(*train, run=replace(run, callbacks=stop_at_pass(2)))
    resumed = Classifier(name, **small).fit(*train, run=run)
    for one, two in zip(
        whole.tagger_.model.network.weights.arrays.values(),
        resumed.tagger_.model.network.weights.arrays.values(),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("field", "value"), [("region", 10**30), ("stride", 0), ("stride", 10**30)])
def test_invalid_region_sizes_are_rejected(field, value):
    with pytest.raises(ValueError, match=f"its network has {field}={value}; expected at"):
        replace(BAGS, **{field: value}).check()

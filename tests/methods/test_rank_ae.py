"""Rank-AE, BCE-AE and C2AE against reference loops for their equations; gradients against finite differences."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from planted import make_planted_corpus, planted_label, planted_words
from recorded_progress import RecordedProgress
from rich.console import Console
from scipy.sparse import csr_array, random_array

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")

from torch import nn  # noqa: E402

from xmtc import Classifier  # noqa: E402
from xmtc.core.checkpoint import Checkpoint  # noqa: E402
from xmtc.core.dataset import Bag, Dataset, Tokens  # noqa: E402
from xmtc.core.run import Run  # noqa: E402
from xmtc.data.in_memory import to_documents  # noqa: E402
from xmtc.data.splits import train_valid_split  # noqa: E402
from xmtc.errors import XmtcError  # noqa: E402
from xmtc.evaluation import evaluate  # noqa: E402
from xmtc.explain.html import render_page  # noqa: E402
from xmtc.explain.terminal import render_terminal  # noqa: E402
from xmtc.methods.attention.model import RecurrentDesign  # noqa: E402
from xmtc.methods.autoencoder import base as family  # noqa: E402
from xmtc.methods.autoencoder.bce_ae import BCEAE  # noqa: E402
from xmtc.methods.autoencoder.c2ae import C2AE, canonical_correlation_loss  # noqa: E402
from xmtc.methods.autoencoder.network import (  # noqa: E402
    Autoencoder,
    BagFeatures,
    Decoder,
    FullyConnectedFeatures,
    HiddenActivation,
    LabelEncoder,
    Objective,
    Predictor,
    SequenceFeatures,
)
from xmtc.methods.autoencoder.rank_ae import RankAE, mean_squared_distance  # noqa: E402
from xmtc.nn.batches import (  # noqa: E402
    BagLoader,
    LabelLoader,
    TokenLoader,
)
from xmtc.nn.layers import BatchNorm  # noqa: E402
from xmtc.nn.network import Weights  # noqa: E402
from xmtc.nn.output_losses import (  # noqa: E402
    CrossEntropyLoss,
    ExponentialPairLoss,
    PositiveLabels,
    RankingLoss,
    compute_output_loss,
)
from xmtc.nn.training import TrainingOptions, TrainingState, fit_label_network  # noqa: E402
from xmtc.text.string_index import StringIndex  # noqa: E402

CPU, ONE = torch.device("cpu"), Run(threads=1, device="cpu")
N_LABELS = 9
# Documents with some labels, one, none, all but one, and all.
LABELS = [[1, 4, 7], [0], [], [0, 1, 2, 3, 4, 5, 6, 7], list(range(9)), [8, 2]]


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread, which is faster for small products."""
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference_ranking_loss(y: np.ndarray, labels: list[int], m: float, averaged: bool = False) -> float:
    """Compute eqs. 2–4 pair by pair."""
    others = [n for n in range(len(y)) if n not in labels]
    if not labels or not others:
        return 0.0
    L_P = sum(max(max(0.0, m + y[n] - y[p]) for p in labels) for n in others)
    L_N = sum(max(max(0.0, m + y[n] - y[p]) for n in others) for p in labels)
    return L_P / len(others) + L_N / len(labels) if averaged else L_P + L_N


def reference_cross_entropy(y: np.ndarray, labels: list[int]) -> float:
    return -sum(log(sigmoid(y[i])) if i in labels else log(1 - sigmoid(y[i])) for i in range(len(y)))


def reference_exponential_loss(y: np.ndarray, labels: list[int]) -> float:
    """Compute Γ of one document pair by pair."""
    others = [n for n in range(len(y)) if n not in labels]
    if not labels or not others:
        return 0.0
    return sum(exp(-(y[p] - y[n])) for p in labels for n in others) / (len(labels) * len(others))


LOSSES = {
    "ranking": (RankingLoss(0.7, uses_sigmoid=False), lambda y, labels: reference_ranking_loss(y, labels, 0.7)),
    "ranking, bounded": (
        RankingLoss(0.4, uses_sigmoid=True),
        lambda y, labels: reference_ranking_loss(sigmoid(y), labels, 0.4),
    ),
    "averaged": (
        RankingLoss(0.7, False, N_LABELS),
        lambda y, labels: reference_ranking_loss(y, labels, 0.7, averaged=True),
    ),
    "averaged, bounded": (
        RankingLoss(0.4, True, N_LABELS),
        lambda y, labels: reference_ranking_loss(sigmoid(y), labels, 0.4, averaged=True),
    ),
    "margin 0": (RankingLoss(0.0, uses_sigmoid=False), lambda y, labels: reference_ranking_loss(y, labels, 0.0)),
    "bce": (CrossEntropyLoss(), reference_cross_entropy),
    "pairs": (ExponentialPairLoss(N_LABELS), reference_exponential_loss),
}


def random_layer(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return inner, weight and bias in double precision."""
    rng = np.random.default_rng(seed)
    shapes = (len(LABELS), 4), (N_LABELS, 4), (N_LABELS,)
    return tuple(torch.tensor(rng.normal(size=shape), requires_grad=True) for shape in shapes)


def positives(documents=LABELS) -> PositiveLabels:
    rows = [row for row, labels in enumerate(documents) for _ in labels]
    return PositiveLabels.from_pairs(
        torch.tensor(rows), torch.tensor([i for labels in documents for i in labels]), len(documents)
    )


@pytest.mark.parametrize("block", [1, 2, 5, N_LABELS, 100, None])
@pytest.mark.parametrize(("loss", "reference"), LOSSES.values(), ids=LOSSES)
def test_losses_equal_reference_for_any_block_size(loss, reference, block):
    inner, weight, bias = random_layer()
    result = compute_output_loss(loss, inner, weight, bias, positives(), block)
    logits = (inner @ weight.T + bias).detach().numpy()
    expected = np.mean([reference(y, labels) for y, labels in zip(logits, LABELS, strict=True)])
    assert result.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("block", [2, 100])
@pytest.mark.parametrize("loss", [loss for loss, _ in LOSSES.values()], ids=LOSSES)
def test_gradients_equal_finite_differences(loss, block):
    tensors, step = random_layer(1), 1e-6
    (3 * compute_output_loss(loss, *tensors, positives(), block)).backward()
    for tensor in tensors:
        numbers, gradient = tensor.data.view(-1), tensor.grad.view(-1)
        for i in range(len(numbers)):
            values, middle = [], numbers[i].item()
            for moved in (middle + step, middle - step):
                numbers[i] = moved
                values.append(compute_output_loss(loss, *(t.detach() for t in tensors), positives(), block).item())
            numbers[i] = middle
            assert gradient[i].item() == pytest.approx(3 * (values[0] - values[1]) / (2 * step), abs=1e-6)


def test_ties_share_the_gradient_of_the_lowest_label():
    inner, bias = torch.ones(1, 1, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    weight = torch.tensor([[1.0], [1.0], [3.0], [0.9], [-9.0]], dtype=torch.float64, requires_grad=True)
    # Positive labels 0, 1 (equal) and 2; only the negative label 3 is within the margin of the lowest.
    compute_output_loss(RankingLoss(0.5, False), inner, weight, bias, positives([[0, 1, 2]])).backward()
    # L_P: 1 for label 3, half of -1 for each of the lowest; L_N: -1 for 0 and 1 each, 2 for 3
    np.testing.assert_allclose(weight.grad[:, 0], [-1.5, -1.5, 0, 3, 0])


def test_large_logits_do_not_overflow():
    inner, bias = torch.full((1, 1), 200.0), torch.zeros(3)
    for signs in ([1.0, -1, 0], [-1.0, 1, 0]):
        weight = torch.tensor(signs)[:, None].requires_grad_()
        for loss in (ExponentialPairLoss(3), CrossEntropyLoss(), RankingLoss(1.0, True)):
            value = compute_output_loss(loss, inner, weight, bias, positives([[0]]))
            value.backward()
            assert torch.isfinite(value)
            assert torch.isfinite(weight.grad.square()).all()  # otherwise Adam would stop updating them


def make_features(*documents: dict[int, float], n_features: int = 7) -> csr_array:
    X = np.zeros((len(documents), n_features), np.float32)
    for row, features in enumerate(documents):
        for feature, value in features.items():
            X[row, feature] = value
    return csr_array(X)


DOCUMENTS = make_features({0: 0.5, 3: 2.0, 6: -1.0}, {}, {3: 0.25}, {1: 1.0, 2: 1.5})


def get_arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


@pytest.mark.parametrize(("reduction", "averages"), [(0, True), (3, True), (3, False)])
def test_bag_features_equal_reference(reduction, averages):
    """Section 2.4 and eq. 5, word by word."""
    torch.manual_seed(0)
    features = BagFeatures(7, 6, reduction, averages, 5).eval()
    w, dense = get_arrays(features), DOCUMENTS.toarray()
    with torch.no_grad():
        result = features(BagLoader(DOCUMENTS, CPU).load_batch(np.array([2, 0, 1]))).numpy()
    for row, number in enumerate([2, 0, 1]):
        words = np.flatnonzero(dense[number])
        M = []
        for word in words:
            v = dense[number, word] * w["embedding.weight"][word]
            a = np.ones(6)
            if reduction:
                a = sigmoid(w["attention.excite.weight"] @ np.maximum(0, w["attention.squeeze.weight"] @ v))
            M.append(v * a)
        pooled = np.sum(M, axis=0) / (len(M) if averages else 1) if M else np.zeros(6)
        np.testing.assert_allclose(result[row], w["output.weight"] @ pooled + w["output.bias"], atol=1e-6)


@pytest.mark.parametrize("averages", [True, False])
def test_sequence_features_equal_reference(averages):
    torch.manual_seed(1)
    features = SequenceFeatures(9, 3, 6, 2, averages, 5).eval()
    tokens = Tokens(np.array([1, 2, 3, 4, 5, 1], np.int32), np.array([0, 4, 6]), 9)
    batch = TokenLoader(tokens, CPU).load_batch(np.array([0, 1]))
    w = get_arrays(features)
    with torch.no_grad():
        states, result = features.encoder(batch).numpy(), features(batch).numpy()
    squeeze = w["attention.squeeze.weight"]
    for row, length in enumerate([4, 2]):
        M = [v * sigmoid(w["attention.excite.weight"] @ np.maximum(0, squeeze @ v)) for v in states[row, :length]]
        pooled = np.sum(M, axis=0) / (length if averages else 1)
        np.testing.assert_allclose(result[row], w["output.weight"] @ pooled + w["output.bias"], atol=1e-6)


def test_c2ae_features_equal_reference():
    torch.manual_seed(2)
    features = FullyConnectedFeatures(7, 4, 3).eval()
    w = get_arrays(features)
    x = DOCUMENTS.toarray() @ w["rows.weight"] + w["bias"]
    x = np.where(x > 0, x, 0.1 * x) @ w["further.weight"].T + w["further.bias"]
    expected = np.where(x > 0, x, 0.1 * x) @ w["output.weight"].T + w["output.bias"]
    with torch.no_grad():
        np.testing.assert_allclose(features(BagLoader(DOCUMENTS, CPU).load_batch(np.arange(4))), expected, atol=1e-6)


def dense_labels() -> np.ndarray:
    Y = np.zeros((len(LABELS), N_LABELS), np.float32)
    for row, labels in enumerate(LABELS):
        Y[row, labels] = 1
    return Y


def test_label_encoder_equals_dense_layers():
    torch.manual_seed(3)
    encoder = LabelEncoder(N_LABELS, 5, 3, HiddenActivation(5, has_batch_norm=True))
    nn.init.normal_(encoder.bias)
    pairs = LabelLoader(csr_array(dense_labels()), CPU).label_pairs(np.arange(len(LABELS)))
    result = encoder(*pairs, len(LABELS)).detach().numpy()
    w = get_arrays(encoder)
    x = dense_labels() @ w["rows.weight"] + w["bias"]
    x = np.maximum(0, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5))
    np.testing.assert_allclose(result, x @ w["output.weight"].T + w["output.bias"], atol=1e-5)


def test_batch_norm_equals_pytorch():
    ours, theirs, x = BatchNorm(4), nn.BatchNorm1d(4), torch.randn(8, 4)
    for batch in (x, 2 * x + 1):
        torch.testing.assert_close(ours(batch), theirs(batch))
    theirs.eval()
    torch.testing.assert_close(ours(x[:1]), theirs(x[:1]))
    ours.eval()
    torch.testing.assert_close(ours(x), theirs(x))


def test_batch_norm_of_several_batches():
    ours, theirs = BatchNorm(4), nn.BatchNorm1d(4)
    documents, labels = torch.randn(8, 4), torch.randn(8, 4) + 3
    result = ours(torch.cat([documents, labels]), 8)
    torch.testing.assert_close(result[:8], theirs(documents))
    torch.testing.assert_close((ours.mean, ours.variance), (theirs.running_mean, theirs.running_var))
    torch.testing.assert_close(result[8:], nn.BatchNorm1d(4)(labels))
    alone = ours(torch.cat([documents[:1], labels[:1]]), 1)
    torch.testing.assert_close(alone, theirs.eval()(torch.cat([documents[:1], labels[:1]])))


@pytest.mark.parametrize("n_docs", [3, 8])
def test_canonical_correlation_loss(n_docs):
    rng = np.random.default_rng(0)
    x_h, y_h = rng.normal(size=(2, n_docs, 5))
    expected = np.sum((x_h - y_h) ** 2) / n_docs
    for h in (x_h, y_h):
        expected += 0.3 * np.sum((h.T @ h / n_docs - np.eye(5)) ** 2)
    assert canonical_correlation_loss(torch.tensor(x_h), torch.tensor(y_h), 0.3).item() == pytest.approx(expected)


def test_objective_is_eq_1_plus_prediction_loss():
    torch.manual_seed(4)
    X = random_array((len(LABELS), 7), density=0.5, dtype=np.float32, format="csr", rng=np.random.default_rng(0))
    aim = Objective(
        distance=mean_squared_distance,
        distance_weight=0.5,
        reconstruction=RankingLoss(0.7, False),
        balance=2.0,
        prediction=CrossEntropyLoss(),
        prediction_weight=3.0,
    )
    sizes = (N_LABELS, 5, 3)
    predictor = Predictor(BagFeatures(7, 4, 2, True, 3), Decoder(*sizes, HiddenActivation(5, True)), width=4)
    network = Autoencoder(predictor, LabelEncoder(*sizes, HiddenActivation(5, True)), aim)
    pairs = LabelLoader(csr_array(dense_labels()), CPU).label_pairs(np.arange(len(LABELS)))
    bag = BagLoader(X, CPU).load_batch(np.arange(len(LABELS)))
    result = network(bag, *pairs).item()
    with torch.no_grad():
        x_h, y_h = network.predictor.features(bag), network.encoder(*pairs, len(LABELS))
        inner = network.predictor.decoder.apply_hidden_layer(torch.cat([x_h, y_h]), len(LABELS))
        of_documents, of_labels = network.predictor.decoder.output(inner).numpy().reshape(2, -1, N_LABELS)
        expected = 0.5 * ((x_h - y_h) ** 2).mean().item()
    n = len(LABELS)
    expected += 2 * sum(reference_ranking_loss(y, labels, 0.7) for y, labels in zip(of_labels, LABELS, strict=True)) / n
    expected += 3 * sum(reference_cross_entropy(y, labels) for y, labels in zip(of_documents, LABELS, strict=True)) / n
    assert result == pytest.approx(expected, rel=1e-5)


def reference_preset_loss(w: dict[str, np.ndarray], X: np.ndarray, m: float, balance: float) -> float:
    """Compute eqs. 1 to 5 document by document, from the features and labels to the loss."""

    def normalize(x: np.ndarray, name: str) -> np.ndarray:
        scaled = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
        return np.maximum(0, scaled * w[f"{name}.norm.weight"] + w[f"{name}.norm.bias"])

    x_h = []
    for values in X:
        V = [v * w["predictor.features.embedding.weight"][j] for j, v in enumerate(values) if v]
        squeeze, excite = (w[f"predictor.features.attention.{name}.weight"] for name in ("squeeze", "excite"))
        M = [v * sigmoid(excite @ np.maximum(0, squeeze @ v)) for v in V]
        x_h.append(w["predictor.features.output.weight"] @ np.sum(M, axis=0) + w["predictor.features.output.bias"])
    inner = normalize(dense_labels() @ w["encoder.rows.weight"] + w["encoder.bias"], "encoder.inner")
    y_h = inner @ w["encoder.output.weight"].T + w["encoder.output.bias"]
    first = y_h @ w["predictor.decoder.first.weight"].T + w["predictor.decoder.first.bias"]
    inner = normalize(first, "predictor.decoder.inner")
    outputs = sigmoid(inner @ w["predictor.decoder.output.weight"].T + w["predictor.decoder.output.bias"])
    L_ae = [reference_ranking_loss(y, labels, m) for y, labels in zip(outputs, LABELS, strict=True)]
    return float(np.mean((np.array(x_h) - y_h) ** 2) + balance * np.mean(L_ae))


def test_preset_trains_eqs_1_to_5():
    method = RankAE(preset="paper", layer=6, word_dropout=0)
    X = random_array((len(LABELS), 7), density=0.9, dtype=np.float32, format="csr", rng=np.random.default_rng(3))
    data = Dataset.from_matrix(X, csr_array(dense_labels()))
    network = method.build_network(method.build_design(data, None), None, data, ONE)
    pairs = LabelLoader(csr_array(dense_labels()), CPU).label_pairs(np.arange(len(LABELS)))
    result = network(BagLoader(X, CPU).load_batch(np.arange(len(LABELS))), *pairs).item()
    expected = reference_preset_loss(get_arrays(network), X.toarray(), method.margin, method.balance)
    assert result == pytest.approx(expected, rel=1e-5)


def test_prediction_of_a_preset_is_d_of_f():
    """Section 2.2: F maps the features to the common space, D decodes it, and E is not used."""
    data, test = make_planted_features(60, 1), make_planted_features(9, 2)
    model = RankAE(preset="paper", layer=6, hidden=5, epochs=2).fit(data, run=ONE)
    w, expected = model.network.weights.arrays, []
    for values in test.X.toarray():
        V = [v * w["features.embedding.weight"][j] for j, v in enumerate(values) if v]
        squeeze, excite = (w[f"features.attention.{name}.weight"] for name in ("squeeze", "excite"))
        M = [v * sigmoid(excite @ np.maximum(0, squeeze @ v)) for v in V]
        x_h = w["features.output.weight"] @ np.sum(M, axis=0) + w["features.output.bias"]
        first = w["decoder.first.weight"] @ x_h + w["decoder.first.bias"]
        scaled = (first - w["decoder.inner.norm.mean"]) / np.sqrt(w["decoder.inner.norm.variance"] + 1e-5)
        inner = np.maximum(0, scaled * w["decoder.inner.norm.weight"] + w["decoder.inner.norm.bias"])
        expected.append(sigmoid(w["decoder.output.weight"] @ inner + w["decoder.output.bias"]))
    result = model.predict(test, 12, ONE)
    np.testing.assert_allclose(result.scores, np.take_along_axis(np.array(expected), result.labels, axis=1), rtol=1e-3)
    assert (np.diff(result.scores) <= 0).all()


@pytest.mark.parametrize("method", [RankAE(layer=16, hidden=8, channels=8, inner_dropout=0.0), C2AE(layer=16)])
def test_bf16_loss_is_close_to_float32(method):
    """Compare autocast to bf16, as on a GPU, with float32."""
    data = make_planted_features(40, 1)
    design = method.build_design(data, None)
    bag, pairs = BagLoader(data.X, CPU).load_batch(np.arange(40)), LabelLoader(data.Y, CPU).label_pairs(np.arange(40))
    losses, gradients = [], []
    for half in (False, True):
        network = method.build_network(design, None, data, ONE)
        torch.manual_seed(0)  # the same words are dropped out
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = network(bag, *pairs)
        loss.backward()
        assert all(p.grad.dtype == torch.float32 for p in network.parameters())
        losses.append(loss.item())
        gradients.append(network.predictor.decoder.output.weight.grad)
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[1] != losses[0]
    assert nn.functional.cosine_similarity(*(g.flatten() for g in gradients), dim=0) > 0.99


def make_planted_features(n_docs: int, seed: int) -> Dataset:
    """Return documents with three of twelve labels; label l has a large feature l, others are small."""
    rng = np.random.default_rng(seed)
    X = rng.normal(0, 0.1, (n_docs, 30)) * (rng.random((n_docs, 30)) < 0.3)
    Y = np.zeros((n_docs, 12), np.float32)
    for row in range(n_docs):
        chosen = rng.choice(12, 3, replace=False)
        X[row, chosen], Y[row, chosen] = rng.uniform(0.5, 2, 3), 1
    return Dataset.from_matrix(csr_array(X.astype(np.float32)), csr_array(Y))


SIZES = {"batch": 16, "rate": 0.01, "layer": 24}
OURS = RankAE(epochs=20, channels=16, hidden=12, **SIZES)
LIKE_THE_PAPER = {"prediction_weight": 0.0, "spread": 1.0, "schedule": "decay", "average_from": 5, "held_out": 0.05}
SMALL = RankAE(epochs=10, channels=16, hidden=12, balance=5.0, **LIKE_THE_PAPER, **SIZES)
METHODS = {
    "ours": OURS,
    "rank_ae": SMALL,
    "preset": RankAE(preset="Delicious", batch=16, balance=0.1, epochs=20),
    "not normalised": replace(SMALL, batch_norm=False),
    "bounded": replace(SMALL, bounded=True, margin=1.0),
    "averaged": replace(SMALL, pooling="mean"),
    "no attention": replace(SMALL, attention=False),
    "no ranking": replace(SMALL, loss="bce", balance=BCEAE().balance),
    "prediction": replace(SMALL, prediction_weight=1.0, margin=1.0, word_dropout=0.1, dropout=0.1),
    "ranking of predictions": replace(SMALL, prediction_weight=1.0, prediction_loss="ranking", balance=0.1),
    "prediction alone": replace(SMALL, prediction_weight=1.0, distance_weight=0.0, balance=0.0),
    "bce_ae": BCEAE(epochs=10, channels=16, hidden=12, **LIKE_THE_PAPER, **SIZES),
    "c2ae": C2AE(epochs=10, **SIZES),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_training_on_real_valued_features(method):
    """The data contain documents without features, without labels and with all labels."""
    data, test = make_planted_features(300, 1), make_planted_features(100, 2)
    X, Y = data.X.toarray(), data.Y.toarray()
    X[0], Y[1], Y[2] = 0, 0, 1
    model = method.fit(Dataset.from_matrix(csr_array(X), csr_array(Y)), run=ONE)
    result = model.predict(test, 5, ONE)
    assert ((result.scores >= 0) & (result.scores <= 1)).all()
    assert evaluate(result, test.Y, ["nDCG@5"])["nDCG@5"] > 0.85
    model.check()


def test_presets_are_the_settings_of_the_paper():
    """Sections 2.3, 2.4 and 3.1."""
    of_paper = {name: RankAE(preset=name) for name in RankAE.presets}
    assert set(of_paper) == {"paper", "Delicious", "Mediamill", "RCV", "IMDb", "EUR-Lex", "Wiki10"}
    for recipe in of_paper.values():
        assert (recipe.channels, recipe.reduction, recipe.held_out) == (100, 4, 0)
        assert (recipe.bounded, recipe.averaged, recipe.loss) == (True, False, "ranking")
        assert 0 <= recipe.margin <= 1
        assert (recipe.prediction_weight, recipe.distance_weight, recipe.dropout, recipe.inner_dropout) == (0, 1, 0, 0)
    large = {name for name, recipe in of_paper.items() if recipe.hidden != 100}
    assert large == {"Delicious", "RCV", "EUR-Lex", "Wiki10"}
    assert {recipe.hidden for recipe in of_paper.values()} == {100, 200}
    assert {name for name, recipe in of_paper.items() if recipe.vectors} == {"IMDb"}
    assert not RankAE(preset="Delicious", batch_norm=False).batch_norm
    assert BCEAE(preset="Delicious").loss == "bce"


@pytest.mark.parametrize("preset", ["paper", "Delicious", "Mediamill", "RCV", "EUR-Lex", "Wiki10"])
def test_presets_train_on_feature_matrices(preset):
    """The paper's Rank-AE reads texts of IMDb only."""
    data = make_planted_features(60, 1)
    model = RankAE(preset=preset, epochs=1).fit(data, run=ONE)
    assert model.network.design.channels == 100


def test_description_names_the_added_loss():
    assert "added cross-entropy; preset=paper" in RankAE.__doc__


def test_default_schedule_is_a_cosine():
    options = RankAE().make_training_options(12_920)
    assert (options.epochs, options.n_steps, options.decay) == (20, 20 * 101, 1)
    assert [options.rate_factor(step) for step in (0, 1010, 2020)] == pytest.approx([1, 0.5, 0])
    assert options.rate_factor(505) == pytest.approx((1 + np.cos(np.pi / 4)) / 2)
    assert RankAE().make_training_options(600).epochs == 400
    assert RankAE(epochs=3).make_training_options(600).n_steps == 15
    falling = RankAE(schedule="decay", epochs=7, average_from=2, patience=3).make_training_options(600)
    assert (falling.n_steps, falling.decay, falling.average_from, falling.patience) == (0, 0.97, 2, 3)


def test_initial_biases_are_log_odds():
    data = make_planted_features(60, 1)
    network = OURS.build_network(OURS.build_design(data, None), None, data, ONE)
    counts = data.Y.toarray().sum(0)
    result = network.predictor.decoder.output.bias.detach().numpy()
    np.testing.assert_allclose(result, np.log((counts + 0.5) / (60 - counts + 0.5)), rtol=1e-5)
    network = SMALL.build_network(
        SMALL.build_design(data, None), None, data, ONE
    )  # a ranking loss has no initial biases
    assert np.abs(network.predictor.decoder.output.bias.detach().numpy()).max() < 1


def test_bce_ae_equals_rank_ae_with_bce():
    data = make_planted_features(60, 1)
    one, other = METHODS["no ranking"].fit(data, run=ONE), METHODS["bce_ae"].fit(data, run=ONE)
    assert_same_weights(one, other)


def assert_same_weights(one, other):
    weights, same = one.network.weights.arrays, other.network.weights.arrays
    assert list(weights) == list(same)
    for name, array in weights.items():
        np.testing.assert_array_equal(array, same[name])


@pytest.mark.parametrize("kind", ["rank_ae", "prediction", "c2ae", "sparse", "lstm"])
def test_resumed_training_equals_uninterrupted_training(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(family, "AVERAGING_INTERVAL_STEPS", 2)
    if kind == "sparse":
        monkeypatch.setattr(family, "MAX_DENSE_ROWS", 5)
    method = replace(SMALL, input="lstm", dimension=7) if kind == "lstm" else METHODS.get(kind, SMALL)
    method = replace(method, epochs=4, average_from=2, decay=0.9, weight_decay=0.01)
    data = as_tokens(make_planted_features(60, 1)) if kind == "lstm" else make_planted_features(60, 1)
    whole = method.fit(data, run=ONE)
    finish = TrainingState.finish_epoch

    def interrupted_finish(self, score):
        if self.epoch == 3:  # weights are being averaged
            raise KeyboardInterrupt
        finish(self, score)

    monkeypatch.setattr(TrainingState, "finish_epoch", interrupted_finish)
    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "parts", interval_seconds=0))
    with pytest.raises(KeyboardInterrupt):
        method.fit(data, run=run)
    monkeypatch.setattr(TrainingState, "finish_epoch", finish)
    assert_same_weights(whole, method.fit(data, run=run))
    with pytest.raises(XmtcError, match="holds pieces of a training with other data or parameters"):
        replace(method, seed=1).fit(data, run=run)


def as_tokens(data: Dataset) -> Dataset:
    """Return the columns as words; word 0 is the unknown word."""
    tokens = Tokens(data.X.indices.astype(np.int32) + 1, data.X.indptr.astype(np.int64), data.bag.size + 1)
    return Dataset({"words": tokens}, data.Y)


@pytest.mark.parametrize("input", ["bag", "lstm"])
def test_checkpoint_with_other_vectors_is_rejected(input, tmp_path):
    """The vectors have changed in a file of the same name."""
    data, vocabulary = make_planted_features(40, 1), StringIndex.from_strings(f"word{i}" for i in range(30))
    views = {"tfidf": Bag(data.X, vocabulary)}
    if input == "lstm":
        views = {"words": replace(as_tokens(data).tokens("words"), vocabulary=vocabulary)}
    data, file = replace(data, views=views), tmp_path / "vectors.txt"
    method = replace(SMALL, input=input, vectors=str(file), epochs=1)
    run = replace(ONE, checkpoint=Checkpoint(tmp_path / "parts"))
    file.write_text("word1 1 2 3\nword2 4 5 6\n")
    method.fit(data, run=run)
    method.fit(data, run=run)
    file.write_text("word1 1 2 3\nword2 4 5 7\n")
    with pytest.raises(XmtcError, match="holds pieces of a training with other data or parameters"):
        method.fit(data, run=run)


def test_training_with_sparse_gradients(monkeypatch):
    monkeypatch.setattr(family, "MAX_DENSE_ROWS", 5)
    data = make_planted_features(300, 1)
    network = SMALL.build_network(SMALL.build_design(data, None), None, data, ONE)
    assert network.predictor.features.embedding.sparse
    assert network.encoder.rows.sparse
    result = SMALL.fit(data, run=ONE).predict(data, 3, ONE)
    assert data.Y.toarray()[np.arange(300)[:, None], result.labels].mean() > 0.8


def test_training_without_validation_uses_all_documents():
    data, progress = make_planted_features(40, 1), RecordedProgress()
    method = replace(SMALL, held_out=0.0, epochs=3, average_from=9)
    model = method.fit(data, run=replace(ONE, progress=progress))
    assert progress.steps == 3 * 40
    design = method.build_design(data, None)
    last = method.build_network(design, None, data, ONE)
    kept = {}

    def keep(self, score):
        kept.update({name: array.clone() for name, array in self.network.predictor.state_dict().items()})
        return original(self, score)

    original, TrainingState.finish_epoch = TrainingState.finish_epoch, keep
    try:
        options = method.make_training_options(data.n_docs)
        fit_label_network(last, last.predictor, design, data, None, options=options, batch=method.batch, run=ONE)
    finally:
        TrainingState.finish_epoch = original
    assert list(model.network.weights.arrays) == list(kept)
    for name, array in model.network.weights.arrays.items():
        np.testing.assert_array_equal(array, kept[name])
    parts = train_valid_split(data, None, seed=0, share=0.5)
    assert sum(len(part.X.data) for part in parts) == len(data.X.data)
    with pytest.raises(XmtcError, match="No validation document has a label"):
        method.fit(data, replace(data, Y=csr_array(data.Y.shape, dtype=np.float32)), ONE)


def test_batch_norm_statistics_are_averaged():
    network = nn.Sequential(nn.Linear(1, 1), BatchNorm(1))
    state = TrainingState(
        network, TrainingOptions(epochs=9, rate=0.1, average_from=0, average_every=1, patience=9, seed=0)
    )
    means = []
    for scores in (0.5, 0.1):
        state.step(network.train()(torch.randn(8, 1)).square().sum())
        means.append(network[1].mean.item())
        state.finish_epoch(lambda scores=scores: scores)
    assert state.average_tensors[4].item() == pytest.approx(np.mean(means))
    state.restore_best()
    assert network[1].mean.item() == means[0] != means[1]


TRAIN = make_planted_corpus(300, seed=1)
QUICK = {"channels": 24, "hidden": 24, "layer": 48, "batch": 16, "epochs": 12, "rate": 0.01, "average_from": 6}
TEXT = " ".join([*planted_words(3)[:2], "noise1", "noise2", "noise3", planted_words(3)[0]])


@pytest.fixture(scope="module")
def lstm() -> Classifier:
    settings = QUICK | {"channels": 32, "hidden": 32, "rate": 0.02, "epochs": 16}
    return Classifier("rank_ae", input="lstm", dimension=24, **settings).fit(*TRAIN, run=ONE)


def test_lstm_input_learns(lstm):
    assert list(lstm.tagger_.about["views"]) == list(lstm.tagger_.views) == ["words"]
    assert lstm.evaluate(*make_planted_corpus(100, seed=2), ["P@1"], ONE)["P@1"] > 0.5  # of 40 labels


def test_lstm_explanation_is_channel_attention(lstm):
    tagger = lstm.tagger_
    document = tagger.transform([next(iter(to_documents([TEXT])))])
    explanation = tagger.model.explain(document, 3)
    network = tagger.model.network.design.build()
    weights = tagger.model.network.weights.arrays
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    with torch.no_grad():
        batch = TokenLoader(document.tokens("words"), CPU).load_batch(np.array([0]))
        states = network.eval().features.encoder(batch)[0, :6]
        A = network.features.attention.weights(states).sum(1).numpy()
    np.testing.assert_allclose(explanation.per_token, A - A.min(), atol=1e-5)
    assert explanation.per_token.min() == 0 < explanation.per_token.max()
    other = tagger.model.explain(document, 5)
    np.testing.assert_array_equal(other.per_token, explanation.per_token)
    assert explanation.view == "words"
    assert len(explanation.ids) == 5  # one word occurs twice
    highlight = lstm.highlight(TEXT, planted_label(3))[0]
    assert [piece.text for piece in highlight.pieces if piece.text.strip()] == TEXT.split()
    np.testing.assert_allclose([p.weight for p in highlight.pieces if p.text.strip()], explanation.per_token, atol=1e-6)
    assert planted_words(3)[0] in render_page([highlight])
    assert planted_words(3)[0] in render_terminal(highlight, Console(file=io.StringIO()))


def get_embedding(model) -> np.ndarray:
    """Return the word vectors of a bag model."""
    return model.network.weights.arrays["features.embedding.weight"]


def test_bag_explanation_is_contribution_to_the_logit():
    classifier = Classifier("rank_ae", **QUICK).fit(*TRAIN, run=ONE)
    document = classifier.tagger_.transform(to_documents([TEXT]))
    model = classifier.tagger_.model
    explanation = model.explain(document, 3)
    without = {}
    for i, feature in enumerate(document.X.indices):  # finite difference of the word's contribution
        network, bag = model.network.load_on(CPU), BagLoader(document.X, CPU).load_batch(np.array([0]))
        with torch.no_grad():
            parts = network.features.compute_contributions(bag)
            pooled = parts.sum(0, keepdim=True)
            hidden = network.features.project_pooled(torch.cat([pooled, pooled - 1e-2 * parts[i]]))
            logits = network.decoder(hidden)[:, 3]
        without[int(feature)] = float(logits[0] - logits[1]) / 1e-2
    expected = [without[int(feature)] for feature in explanation.ids]
    np.testing.assert_allclose(explanation.weights, expected, rtol=0.05, atol=0.02)
    view = classifier.tagger_.views[explanation.view]
    assert {view.term(number) for number in explanation.ids[:2]} == set(planted_words(3)[:2])


def test_training_starts_from_pretrained_vectors(tmp_path):
    words = sorted({word for text in TRAIN[0] for word in text.split()})
    table = {word: np.random.default_rng(i).normal(size=6).round(3) for i, word in enumerate(words)}
    lines = [" ".join([word, *map(str, table[word])]) for word in words[:-1]]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")
    settings = QUICK | {"epochs": 1, "rate": 1e-8}
    given = Classifier("rank_ae", vectors=str(tmp_path / "vectors.txt"), **settings).fit(*TRAIN, run=ONE)
    embedding, view = get_embedding(given.tagger_.model), given.tagger_.views["tfidf"]
    assert list(given.tagger_.about["views"]) == ["tfidf"]
    assert given.tagger_.about["parameters"]["vectors"] == str(tmp_path / "vectors.txt")
    assert embedding.shape == (view.size, 6)
    for column in range(view.size):
        if view.term(column) != words[-1]:
            np.testing.assert_allclose(embedding[column], table[view.term(column)], atol=1e-5)
    members = "rank_ae", "xml_rnn", "bce_ae"
    settings = {f"{name}.vectors": str(tmp_path / "vectors.txt") for name in members}
    settings |= {f"{name}.epochs": 1 for name in members} | {"rank_ae.rate": 1e-8, "xml_rnn.hidden": 4}
    both = Classifier("consensus", members=members, **settings).fit(*TRAIN, run=ONE)
    assert list(both.tagger_.about["views"]) == ["tfidf", "words"]
    embedding, view = get_embedding(both.tagger_.model.models[0]), both.tagger_.views["tfidf"]
    for column in range(0, len(embedding), 7):
        if view.term(column) != words[-1]:
            np.testing.assert_allclose(embedding[column], table[view.term(column)], atol=1e-5)
    assert both.tagger_.model.models[1].levels[0].network.design.dimension == 6
    assert len(both.predict(TRAIN[0][:2], k=3, run=ONE)[0]) == 3


@pytest.mark.parametrize("bound", [1, 30])
def test_batch_size_does_not_change_predictions(bound, monkeypatch):
    data = make_planted_features(50, 1)
    model = SMALL.fit(data, run=ONE)
    whole = model.predict(data, 12, ONE)
    monkeypatch.setattr("xmtc.methods.autoencoder.network.MAX_TENSOR_ELEMENTS", {"cpu": bound})
    parts = model.predict(data, 12, ONE)
    np.testing.assert_array_equal(whole.labels[:, :4], parts.labels[:, :4])
    np.testing.assert_allclose(whole.scores, parts.scores, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RankAE(input="lstm", channels=25),
            "RankAE: channels=25 does not fit input=lstm; expected an even number.",
        ),
        (
            lambda: BCEAE(balance=0.0, prediction_weight=0.0),
            "BCEAE: balance=0 and prediction_weight=0 leave the decoder untrained; set one of them above 0.",
        ),
        (
            lambda: RankAE(distance_weight=0.0, prediction_weight=0.0),
            "RankAE: distance_weight=0 and prediction_weight=0 leave F untrained; set one of them above 0.",
        ),
        (
            lambda: replace(SMALL, bounded=True, margin=10.0).fit(make_planted_features(9, 0), run=ONE),
            "RankAE: margin=10 does not fit bounded=true, outputs between 0 and 1; expected at most 1.",
        ),
        (lambda: RankAE(loss="hinge"), "loss='hinge' is invalid; expected one of 'ranking', 'bce'"),
        (
            lambda: SMALL.fit(make_planted_features(1, 0), run=ONE),
            "Found 1 documents with labels; expected at least two, one for training",
        ),
        (
            lambda: Classifier("rank_ae", input="lstm").fit(np.eye(4), [["a"]] * 4, run=ONE),
            "RankAE reads words, but the corpus holds features",
        ),
    ],
)
def test_invalid_settings_are_rejected(make, message):
    with pytest.raises(XmtcError) as error:
        make()
    assert message in str(error.value)


def test_latent_space_of_c2ae_is_bounded():
    data = make_planted_features(4, 0)
    assert C2AE().build_design(data, None).hidden == 10
    assert C2AE(most_latent=7).build_design(data, None).hidden == 7
    assert C2AE(latent=1e-3).build_design(data, None).hidden == 1


DAMAGE = {
    "features": lambda m: replace(m, views={"columns": 31}),
    "words": lambda m: replace(m, views={"words": 30}),
    "words and features": lambda m: replace(m, views={"columns": 30, "words": 3}),
    "nothing to read": lambda m: replace(m, views={}),
    "labels": lambda m: replace(m, n_labels=13),
    "another network": lambda m: replace(m, network=replace(m.network, design=ATTENTION_DESIGN)),
    "input": lambda m: with_design(m, input="cnn"),
    "another input": lambda m: with_design(m, input="lstm"),
    "no layer": lambda m: with_design(m, layer=0),
    "negative": lambda m: with_design(m, channels=-16),
    "another reduction": lambda m: with_design(m, reduction=0),
    "a shape": lambda m: with_design(m, hidden=2**40),
    "a kind of number": lambda m: with_first_weights(m, lambda a: a.astype(np.float64)),
    "a length": lambda m: with_first_weights(m, lambda a: a[:-1]),
}
ATTENTION_DESIGN = RecurrentDesign(n_words=30, dimension=2, hidden=2, layers=(2,), pooling="max", n_labels=12)


def with_design(model, **changes):
    return replace(model, network=replace(model.network, design=replace(model.network.design, **changes)))


def with_first_weights(model, change):
    name, first = next(iter(model.network.weights.arrays.items()))
    weights = Weights(model.network.weights.arrays | {name: change(first)})
    return replace(model, network=replace(model.network, weights=weights))


@pytest.fixture(scope="module")
def valid_model():
    return replace(SMALL, epochs=1).fit(make_planted_features(40, 1), run=ONE)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_network_is_rejected(damage, valid_model):
    valid_model.check()
    with pytest.raises((ValueError, RuntimeError)):
        damage(valid_model).check()


def test_damaged_folder_is_rejected(tmp_path):
    Classifier("rank_ae", **QUICK | {"epochs": 1}).fit(*TRAIN, run=ONE).save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / "about.json").read_text())
    about["parts"]["model"]["network"]["design"]["hidden"] += 1
    (tmp_path / "model" / "about.json").write_text(json.dumps(about))
    with pytest.raises(XmtcError, match=r"is damaged: its weights do not fit its network: .*; copy or train it again"):
        Classifier.load(tmp_path / "model").predict(["text"], run=ONE)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_gpu_trains_and_predicts_like_cpu(method):
    data = make_planted_features(300, 1)
    model = method.fit(data, run=Run(device="cuda"))
    gpu, cpu = (model.predict(data, 3, Run(device=device)) for device in ("cuda", "cpu"))
    assert (gpu.labels[:, 0] == cpu.labels[:, 0]).mean() > 0.95
    np.testing.assert_allclose(gpu.scores[:, 0], cpu.scores[:, 0], atol=0.05)
    assert data.Y.toarray()[np.arange(300), gpu.labels[:, 0]].mean() > 0.85

"""Output layer of APLC against reference loops for eqs. 2–14, and with encoders of other methods."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

torch = pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")

from xmtc.core.dataset import Tokens  # noqa: E402
from xmtc.methods.autoencoder.network import BagFeatures  # noqa: E402
from xmtc.nn import output_losses  # noqa: E402
from xmtc.nn.batches import (  # noqa: E402
    BagLoader,
    LabelLoader,
    TokenLoader,
)
from xmtc.nn.label_clusters import (  # noqa: E402
    ClusterLayout,
    LabelClusters,
    ProductCrossEntropy,
    compute_cluster_sizes,
    count_loss_terms,
    order_by_frequency,
)
from xmtc.nn.lstm import RecurrentEncoder  # noqa: E402

CPU = torch.device("cpu")
THREE = ClusterLayout((5, 4, 6), 8, 2)


def sigmoid(x):
    return 1 / (1 + np.exp(-np.float64(x)))


def reference_probabilities(head: LabelClusters, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of labels and tails by eq. 2 for one document."""
    w = {name: value.detach().numpy() for name, value in head.named_parameters()}
    n_head, *n_tails = head.clusters.sizes
    logits = w["head.weight"] @ x + w.get("head.bias", 0)
    result = [sigmoid(logit) for logit in logits[:n_head]]
    tails = [sigmoid(logit) for logit in logits[n_head : n_head + len(n_tails)]]
    for i, n in enumerate(n_tails):
        inner = w[f"tails.{i}.narrow.weight"] @ x
        inner = (inner - inner.mean()) / np.sqrt(inner.var() + 1e-5)
        inner = np.maximum(0, inner * w[f"tails.{i}.norm.weight"] + w[f"tails.{i}.norm.bias"])
        logits = w[f"tails.{i}.labels.weight"] @ inner + w.get(f"tails.{i}.labels.bias", 0)
        result += [tails[i] * sigmoid(logit) for logit in logits[:n]]
    return np.array(result), np.array(tails)


def reference_loss(head: LabelClusters, X: np.ndarray, Y: np.ndarray, untouched: bool) -> tuple[float, int]:
    """Return the sum and the number of loss terms of eqs. 3–5."""
    total, n_terms = 0.0, 0
    clusters = np.split(np.arange(Y.shape[1]), np.cumsum(head.clusters.sizes)[:-1])
    for x, y in zip(X, Y, strict=True):
        p, p_tails = reference_probabilities(head, x)
        for number, members in enumerate(clusters):
            if number == 0 or y[members].any():
                for j in members:
                    total -= np.log(p[j]) if y[j] else np.log(1 - p[j])
                    n_terms += 1
            elif untouched:
                total -= np.log(1 - p_tails[number - 1])
                n_terms += 1
    return total, n_terms


def make_problem(clusters: ClusterLayout, n_docs: int = 12, seed: int = 0, spread: float = 2.0, biases: bool = False):
    """Return a head with large weights, features and labels; some documents have no label in a cluster."""
    torch.manual_seed(seed)
    head = LabelClusters(clusters, biases)
    for weight in head.parameters():
        torch.nn.init.normal_(weight, std=spread)
    X = torch.randn(n_docs, clusters.width)
    Y = np.random.default_rng(seed).random((n_docs, clusters.n_labels)) < 0.12
    Y[0] = False
    Y[1] = True
    rows, labels = (torch.from_numpy(index) for index in np.nonzero(Y))
    return head, X, Y, rows, labels


@pytest.mark.parametrize("untouched", [False, True])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("clusters", [THREE, ClusterLayout((15,), 8, 2), ClusterLayout((2, 13), 8, 3)])
def test_loss_is_eqs_2_to_5(clusters, biases, untouched):
    head, X, Y, rows, labels = make_problem(clusters, spread=0.7, biases=biases)
    head.untouched_tails = untouched
    total, n_terms = reference_loss(head, X.numpy().astype(np.float64), Y, untouched)
    assert head(X, rows, labels).item() == pytest.approx(total, rel=1e-5)
    assert count_loss_terms(clusters, csr_array(Y), untouched).sum() == n_terms


@pytest.mark.parametrize("biases", [False, True])
def test_flat_loss_in_blocks_is_equivalent(biases, monkeypatch):
    head, X, _, rows, labels = make_problem(ClusterLayout((13,), 8, 2), spread=0.7, biases=biases)
    X.requires_grad_()
    whole = head(X, rows, labels)
    expected = torch.autograd.grad(whole, [X, *head.parameters()])
    monkeypatch.setitem(output_losses.MAX_BLOCK_OUTPUTS, "cpu", 5 * len(X))  # blocks of five labels
    in_blocks = head(X, rows, labels)
    assert in_blocks.grad_fn.next_functions[0][0].name().startswith("FusedLoss")
    torch.testing.assert_close(in_blocks, whole)
    for result, right in zip(torch.autograd.grad(in_blocks, [X, *head.parameters()]), expected, strict=True):
        torch.testing.assert_close(result, right)


def test_one_cluster_is_a_flat_linear_layer():
    head, X, Y, rows, labels = make_problem(ClusterLayout((15,), 8, 2))
    assert [name for name, _ in head.named_parameters()] == ["head.weight"]
    logits, truth = X @ head.head.weight[:15].detach().T, torch.from_numpy(Y).float()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
    assert head(X, rows, labels).item() == pytest.approx(expected.item(), rel=1e-6)
    result = head.predict_top_k(X, 4)
    np.testing.assert_array_equal(result[0], logits.topk(4).indices)
    np.testing.assert_allclose(result[1], logits.sigmoid().topk(4).values, rtol=1e-5)


def test_flat_layer_in_bf16_has_float32_gradients():
    head, X, Y, rows, labels = make_problem(ClusterLayout((15,), 8, 2), spread=0.7)
    with torch.autocast("cpu", torch.bfloat16):
        loss = head(X, rows, labels)
        ranked = head.compute_head_logits(X)[0]
    loss.backward()
    assert (loss.dtype, ranked.dtype, head.head.weight.grad.dtype) == (torch.float32,) * 3
    logits = X @ head.head.weight[:15].detach().T
    expected = (logits.sigmoid() - torch.from_numpy(Y).float()).T @ X
    np.testing.assert_allclose(head.head.weight.grad[:15], expected, atol=0.3)
    assert not head.head.weight.grad[15:].any()


def test_gradients_equal_finite_differences():
    head, X, _, rows, labels = make_problem(THREE, n_docs=5, spread=0.7)
    head, X = head.double(), X.double().requires_grad_()
    weights = list(head.parameters())

    def loss(X, *values):
        named = dict(zip([name for name, _ in head.named_parameters()], values, strict=True))
        return torch.func.functional_call(head, named, (X, rows, labels))

    assert torch.autograd.gradcheck(loss, (X, *weights))


@pytest.mark.parametrize(("a", "b"), [(90, 90), (-90, 90), (90, -90), (-90, -90), (20, 0), (0, 30)])
def test_extreme_logits_have_finite_loss_and_gradient(a, b):
    logits = torch.tensor([[float(a)], [float(b)]], requires_grad=True)
    p_is_true = np.log1p(np.exp(-a)) + np.log1p(np.exp(-b))
    p_is_false = np.log1p(np.exp(a)) + np.log1p(np.exp(b)) - np.log(1 + np.exp(a) + np.exp(b))
    for true, expected, sign in ([0], p_is_true, -1), ([], p_is_false, 1):
        loss = ProductCrossEntropy.apply(logits[:1], logits[1:], torch.tensor([true, true], dtype=torch.long))
        assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-5)
        gradients = torch.autograd.grad(loss, logits)[0]
        assert torch.isfinite(gradients).all()
        assert (sign * gradients >= 0).all()
        if a == b == 90:
            np.testing.assert_allclose(gradients, 0 if true else 0.5, atol=1e-6)


def test_tail_runs_only_on_documents_with_its_labels():
    head, X, Y, rows, labels = make_problem(THREE)
    seen = []
    for tail in head.tails:
        tail.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))
    head(X, rows, labels)
    assert seen == [Y[:, 5:9].any(1).sum(), Y[:, 9:].any(1).sum()]
    in_head = labels < 5
    head.zero_grad()
    head(X, rows[in_head], labels[in_head]).backward()
    assert all(weight.grad is None for weight in head.tails.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_step_does_not_synchronise_with_the_gpu():
    head, X, _, rows, labels = make_problem(THREE)
    expected = head(X, rows, labels)
    head, X = head.cuda(), X.cuda()
    head(X, rows, labels).backward()
    with warnings.catch_warnings(action="ignore"):  # the feature is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        result = head(X, rows, labels)
        result.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("spread", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("k", [1, 5, 7, 40, 60])
def test_pruning_does_not_change_predictions(k, spread):
    head, X, *_ = make_problem(ClusterLayout((10, 15, 20), 16, 2), n_docs=200, spread=spread)
    seen = []
    for tail in head.tails:
        tail.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))
    pruned, whole = head.predict_top_k(X, k), head.predict_top_k(X, k, prune=False)
    np.testing.assert_allclose(pruned[1], whole[1], rtol=1e-5)
    apart = np.abs(np.diff(whole[1].numpy(), prepend=2, append=-1)) > 1e-6
    apart = apart[:, 1:] & apart[:, :-1]
    np.testing.assert_array_equal(pruned[0].numpy()[apart], whole[0].numpy()[apart])
    for row in range(10):
        p, _ = reference_probabilities(head, X[row].numpy())
        np.testing.assert_allclose(whole[1][row], -np.sort(-p)[:k], rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(p[whole[0][row]], whole[1][row], rtol=1e-3, atol=1e-6)
    if spread == 3.0 and k <= 5:
        assert sum(seen[: len(seen) // 2]) < 300, "nothing was pruned"


def test_initial_biases_predict_label_frequencies():
    Y = np.random.default_rng(0).random((2000, 15)) < np.geomspace(0.5, 0.01, 15)
    head = LabelClusters(THREE, biases=True)
    head.initialise_biases(csr_array(Y))
    for tail in head.tails:
        torch.nn.init.zeros_(tail.labels.weight)
    p, tails = reference_probabilities(head, np.zeros(8, np.float32))
    np.testing.assert_allclose(p, Y.mean(0), rtol=0.1)
    np.testing.assert_allclose(tails, [Y[:, 5:9].any(1).mean(), Y[:, 9:].any(1).mean()], rtol=0.01)
    head.initialise_biases(csr_array((1, 15), dtype=np.float32))  # no document has a label
    assert all(torch.isfinite(weight).all() for weight in head.parameters())


@pytest.mark.parametrize("biases", [False, True])
def test_logit_matches_probability(biases):
    head, X, *_ = make_problem(THREE, spread=0.7, biases=biases)
    for label in range(15):
        p = np.array([reference_probabilities(head, x.numpy())[0][label] for x in X])
        np.testing.assert_allclose(head.compute_logit(X, label).detach(), np.log(p / (1 - p)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("n_labels", "proportions", "sizes"),
    [
        (3956, (0.5, 0.5), (1978, 1978)),
        (501_069, (0.33, 0.33, 0.34), (165_353, 165_353, 170_363)),
        (670_091, (1, 1, 1, 1), (167_523, 167_523, 167_522, 167_523)),
        (10, (1,), (10,)),
        (1, (0.5, 0.5), (1,)),
        (2, (0.1, 0.1, 0.8), (1, 1)),
        (3, (0.01, 0.01, 0.98), (1, 1, 1)),
        (10, (0.98, 0.01, 0.01), (8, 1, 1)),
        (5, (0.9, 0.05, 0.05), (3, 1, 1)),
    ],
)
def test_cluster_sizes(n_labels, proportions, sizes):
    assert compute_cluster_sizes(n_labels, proportions) == sizes


def test_labels_are_sorted_by_frequency():
    assert order_by_frequency(np.array([2, 9, 2, 0, 9])).tolist() == [1, 4, 0, 2, 3]


N_LABELS = 12


def make_planted(n_docs: int, seed: int):
    """Return documents with three of twelve labels; label l has word 1 + l."""
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(N_LABELS, 3, replace=False) for _ in range(n_docs)]
    documents = [rng.permutation([*(1 + labels), *rng.integers(13, 30, 4)]) for labels in chosen]
    Y = np.zeros((n_docs, N_LABELS), np.float32)
    for row, labels in enumerate(chosen):
        Y[row, labels] = 1
    tokens = Tokens(np.concatenate(documents).astype(np.int32), 7 * np.arange(n_docs + 1), 30)
    return tokens, csr_array(Y)


class Pooled(torch.nn.Module):
    """LSTM of AttentionXML with max pooling."""

    def __init__(self):
        super().__init__()
        self.encoder = RecurrentEncoder(30, 16, 16, 0.0, 0.0)

    def forward(self, batch):
        return self.encoder(batch).masked_fill(~batch.make_mask()[..., None], -torch.inf).amax(1)


ENCODERS = {
    "the LSTM of AttentionXML": (Pooled, lambda tokens: TokenLoader(tokens, CPU)),
    "a bag of words": (
        lambda: BagFeatures(30, 32, 0, False, 32),
        lambda tokens: BagLoader(tokens.to_count_matrix(), CPU),
    ),
}


@pytest.mark.parametrize(("make", "read"), ENCODERS.values(), ids=ENCODERS)
def test_clusters_work_with_other_encoders(make, read):
    torch.manual_seed(0)
    tokens, Y = make_planted(150, 0)
    encoder, head, loader, truth = (
        make(),
        LabelClusters(ClusterLayout((4, 4, 4), 32, 2)),
        read(tokens),
        LabelLoader(Y, CPU),
    )
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], 0.02)
    rng = np.random.default_rng(0)
    for _ in range(25):
        for docs in loader.shuffled_batches(30, rng):
            batch = loader.load_batch(docs)
            optimiser.zero_grad()
            head(encoder(batch), *truth.label_pairs(batch.docs)).backward()
            optimiser.step()
    batch = loader.load_batch(np.arange(150))
    result, _ = head.predict_top_k(encoder(batch), 3)
    assert Y.toarray()[batch.docs[:, None], result].mean() > 0.9


# Products are padded to multiples of 8 rows; these sizes need no padding.
UNPADDED = ClusterLayout((14, 8, 16), 32, 2)


def count_parameters(d: int, q: int, sizes: tuple[int, ...]) -> float:
    """Return N_par of eq. 6."""
    l_h, *tails = sizes
    return d * (l_h + len(tails)) + sum(d / q**i * (d + l_i) for i, l_i in enumerate(tails, 1))


def count_operations(d: int, q: int, sizes: tuple[int, ...], n_docs: int, p: list[float]) -> float:
    """Return C of eqs. 10 and 11, in multiplications."""
    l_h, *tails = sizes
    head = n_docs * d * (l_h + len(tails))
    return head + sum(p_i * n_docs * d / q**i * (l_i + d) for i, (l_i, p_i) in enumerate(zip(tails, p, strict=True), 1))


def test_size_is_eq_6():
    """Layer normalisation, which is only in the authors' code, has 2 d / q^i parameters more per tail."""
    for clusters in (UNPADDED, ClusterLayout((13, 8, 24, 16), 64, 2), ClusterLayout((16,), 8, 2)):
        d, q, sizes = clusters.width, clusters.factor, clusters.sizes
        extra = sum(2 * d // q**i for i in range(1, len(sizes)))
        n_parameters = sum(weight.numel() for weight in LabelClusters(clusters).parameters())
        assert n_parameters == count_parameters(d, q, sizes) + extra


@pytest.mark.parametrize("touched", [(), (1,), (1, 2)])
def test_cost_is_eqs_10_and_11(touched):
    """A tail costs only where a document of the batch has a label in it: p_i is 0 or 1 here."""
    from torch.utils.flop_counter import FlopCounterMode

    n_docs, starts = 6, np.cumsum((0, *UNPADDED.sizes))
    rows, labels = (torch.from_numpy(np.array(index)) for index in zip(
        *[(doc, starts[tail]) for doc in range(n_docs) for tail in (0, *touched)], strict=True
    ))  # fmt: skip
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        LabelClusters(UNPADDED)(torch.randn(n_docs, UNPADDED.width), rows, labels)
    expected = count_operations(32, 2, UNPADDED.sizes, n_docs, [float(tail in touched) for tail in (1, 2)])
    assert counter.get_total_flops() == 2 * expected


@pytest.mark.parametrize("batch", [1, 12, 256])
def test_ratios_are_eqs_7_to_9_and_12_to_14(batch, monkeypatch):
    """`python experiments/aplc.py equations`: against a flat layer of d L parameters, for K << l_h and d << l_i."""
    root = Path(__file__).parents[2]
    if not (root / "experiments").exists():
        pytest.skip("the experiments are in the checkout alone")
    monkeypatch.syspath_prepend(str(root / "experiments"))
    predict_cost = runpy.run_path(str(root / "experiments" / "aplc.py"))["predict_cost"]
    sizes, shares, d, q = (4000, 3000, 2000), np.array([1.0, 0.3, 0.02]), 512, 2
    p = [1 - (1 - share) ** batch for share in shares[1:]]
    n_par = d * sum(l_i / q**i for i, l_i in enumerate(sizes))  # eq. 7
    cost = (
        batch * d * (sizes[0] + sum(p_i * l_i / q**i for i, (l_i, p_i) in enumerate(zip(sizes[1:], p, strict=True), 1)))
    )
    found = predict_cost(sizes, shares, batch)
    assert found["eq. 9"] == round(d * sum(sizes) / n_par, 2)  # eq. 8 over eq. 7
    assert found["eq. 14"] == round(batch * d * sum(sizes) / cost, 2)  # eq. 13 over eq. 12

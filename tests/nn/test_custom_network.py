"""A custom network needs only its layers, design, loss and training options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import binary_cross_entropy_with_logits  # noqa: E402

from xmtc import Classifier, Dataset, Explanation, Method, Run, XmtcError, param  # noqa: E402
from xmtc.core.checkpoint import Checkpoint  # noqa: E402
from xmtc.nn.batches import LabelLoader, TokenLoader  # noqa: E402
from xmtc.nn.devices import use_torch_settings  # noqa: E402
from xmtc.nn.initial_vectors import load_token_vectors  # noqa: E402
from xmtc.nn.network import (  # noqa: E402
    Design,
    LabelNetwork,
    NetworkModel,
    TrainedNetwork,
    Weights,
)
from xmtc.nn.training import (  # noqa: E402
    TrainingOptions,
    Validation,
    fit_network,
    prepare_training,
)
from xmtc.testing import check_method, make_planted_corpus  # noqa: E402


# --- begin of the custom network ---
class Convolution(LabelNetwork):
    def __init__(self, n_words: int, dimension: int, filters: int, n_labels: int):
        super().__init__()
        self.n_labels = n_labels
        self.embedding = nn.Embedding(n_words, dimension)
        self.filters = nn.Conv1d(dimension, filters, kernel_size=3, padding=1)
        self.output = nn.Linear(filters, n_labels)

    def words(self, batch) -> Tensor:
        return batch.pad_states(self.embedding(batch.ids)).transpose(1, 2)

    def logits(self, words: Tensor, mask: Tensor) -> Tensor:
        return self.output(self.filters(words).masked_fill(~mask[:, None], -torch.inf).amax(2).relu())

    def forward(self, batch) -> Tensor:
        return self.logits(self.words(batch), batch.make_mask())


@dataclass(frozen=True, kw_only=True)
class ConvolutionDesign(Design):
    n_words: int
    dimension: int
    filters: int
    n_labels: int

    def build(self) -> Convolution:
        return Convolution(self.n_words, self.dimension, self.filters, self.n_labels)

    def loader(self, data: Dataset, device: torch.device) -> TokenLoader:
        return TokenLoader(data.tokens("words"), device)


@dataclass(frozen=True, kw_only=True)
class ConvolutionModel(NetworkModel):
    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Attribute a score to the words by input × gradient."""
        tokens, device = document.tokens("words"), torch.device("cpu")
        network, batch = self.network.load_on(device), TokenLoader(tokens, device).load_batch(np.array([0]))
        with torch.enable_grad():
            words = network.words(batch).detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(network.logits(words, batch.make_mask())[0, label], words)
        weights = (words * gradient).sum(1)[0, : batch.max_length].detach().numpy()
        return Explanation.from_occurrences("words", tokens.ids, weights, per_token=True)


@dataclass(frozen=True)
class TinyCNN(Method):
    """Convolution over words with max pooling (after Kim, 2014)."""

    required_views: ClassVar[tuple[str, ...]] = ("words",)
    is_exact: ClassVar[bool] = False
    quick_parameters: ClassVar[dict[str, Any]] = {}

    dimension: int = param(32, "Length of word vectors.", low=1)
    filters: int = param(64, "Number of filters.", low=1)
    batch: int = param(32, "Batch size.", low=1)
    epochs: int = param(20, "Maximum number of epochs.", low=1)
    rate: float = param(0.01, "Learning rate of Adam.", low=1e-8)
    seed: int = param(0, "Seed of all random numbers.", low=0)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> ConvolutionModel:
        vectors = load_token_vectors(data.tokens("words"), dimension=self.dimension, run=run)
        data, valid, device = prepare_training(self, data, valid, run, seed=self.seed)
        design = ConvolutionDesign(
            n_words=len(vectors), dimension=self.dimension, filters=self.filters, n_labels=data.n_labels
        )
        with use_torch_settings(run, device, self.seed):
            network = design.build()
        network.embedding.weight.data = torch.from_numpy(vectors)
        network.to(device)
        loader, labels = design.loader(data, device), LabelLoader(data.Y, device)

        def loss(docs: np.ndarray) -> Tensor:
            batch = loader.load_batch(docs)
            return binary_cross_entropy_with_logits(network(batch), labels.targets(batch.docs), reduction="sum")

        options = TrainingOptions(
            epochs=self.epochs, rate=self.rate, average_from=8, average_every=20, patience=20, seed=self.seed
        )
        fit_network(
            network,
            loader=loader,
            loss=loss,
            validation=Validation.from_network(network, design.loader(valid, device), valid.Y),
            options=options,
            batch=self.batch,
            run=run,
        )
        trained = TrainedNetwork(design=design, weights=Weights.from_network(network))
        return ConvolutionModel(n_labels=data.n_labels, views=data.sizes, network=trained)


# --- end of the custom network ---


def test_custom_method_passes_the_contract():
    check_method(TinyCNN())


def test_custom_network_is_short():
    with open(__file__, encoding="utf-8") as file:
        source = file.read()
    network = source[source.index("# --- begin of") : source.index("# --- end of")]
    assert network.count("\n") <= 120


def test_damaged_weights_are_rejected(tmp_path):
    from test_damaged_models import set_array

    Classifier(TinyCNN(epochs=1)).fit(*make_planted_corpus(60, seed=1)).save(tmp_path / "model")
    set_array(tmp_path / "model", "model.network.weights.arrays.output.bias", lambda bias: bias[:-1])
    with pytest.raises(XmtcError, match=r"is damaged: its weights do not fit its network: output\.bias has shape"):
        Classifier.load(tmp_path / "model").predict(["text"])


def test_training_is_resumed(tmp_path):
    texts, tags = make_planted_corpus(100, seed=1)
    run = Run(threads=1, device="cpu", checkpoint=Checkpoint(tmp_path / "parts"))
    uninterrupted = Classifier(TinyCNN(epochs=3)).fit(texts, tags, run=Run(threads=1, device="cpu"))
    checkpointed = Classifier(TinyCNN(epochs=3)).fit(texts, tags, run=run)
    resumed = Classifier(TinyCNN(epochs=3)).fit(texts, tags, run=run)  # all epochs are done
    for other in (checkpointed, resumed):
        np.testing.assert_array_equal(other.rank(texts).scores, uninterrupted.rank(texts).scores)
    with pytest.raises(XmtcError, match="pieces of a training with other data or parameters"):
        Classifier(TinyCNN(epochs=4)).fit(texts, tags, run=run)

"""What Rank-AE, BCE-AE and C2AE share: how F, E and D are trained together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from torch import Tensor

from xmtc.base.dataset import Dataset
from xmtc.base.method import Method
from xmtc.base.params import param
from xmtc.base.run import Run
from xmtc.data.splits import train_valid_split
from xmtc.evaluation import evaluate
from xmtc.methods.autoencoder.model import AutoencoderModel, Layout, predict_with
from xmtc.methods.autoencoder.network import Autoencoder, LabelEncoder, Objective, Predictor
from xmtc.nn import distributed
from xmtc.nn.batches import LabelRows
from xmtc.nn.devices import device_of, mixed, working
from xmtc.nn.training import Plan, train
from xmtc.nn.weights import Weights

AVERAGE_EVERY = 20  # steps
SPARSE = 100_000  # words or labels of which a step moves only those it has seen, where there are more


@dataclass(frozen=True)
class LabelAutoencoder(Method):
    """Documents and labels in one hidden space, and labels read off it. A subclass says what F is and what is
    minimised."""

    dropout: float = param(
        0.0,
        "share of the numbers of a document, before its last layer, that a step leaves out",
        low=0.0,
        high=0.99,
        search=(0.0, 0.6),
    )
    batch: int = param(128, "documents of a step", low=1)
    epochs: int = param(60, "passes over the documents at most", low=1)
    rate: float = param(0.001, "learning rate of Adam", low=1e-8, search=(1e-4, 1e-2), log=True)
    decay: float = param(0.97, "what the learning rate is multiplied by after every pass", low=0.01, high=1.0)
    weight_decay: float = param(0.01, "share of the weights that a step takes away, times the rate", low=0.0)
    average_from: int = param(5, "pass from which on weights are averaged", low=0)
    patience: int = param(10, "passes without a better nDCG@5 after which training ends", low=1)
    held_out: float = param(
        0.05,
        "share of documents that decide when to stop, where no others are given; 0: learn from all, to the last pass",
        low=0.0,
        high=0.9,
    )
    minutes: float = param(0.0, "begin no further pass after so many minutes (0: no limit)", low=0.0)
    seed: int = param(0, "seed of the first weights and the order of documents", low=0, high=2**32 - 1)

    @abstractmethod
    def layout(self, data: Dataset) -> Layout:
        """The sizes of the network for this data."""

    @abstractmethod
    def predictor(self, layout: Layout, data: Dataset, sparse: bool) -> Predictor:
        """F and D before training."""

    @abstractmethod
    def objective(self, data: Dataset) -> Objective:
        """What is minimised."""

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> AutoencoderModel:
        if valid is not None or self.held_out:
            data, valid = train_valid_split(data, valid, self.seed, share=self.held_out, max_valid=data.n_docs)
        distributed.join(device_of(run))
        if run.checkpoint.folder:
            with distributed.first_alone():
                run.checkpoint.claim(f"{self} {data.fingerprint()} {valid.fingerprint() if valid else ''}")
        layout = self.layout(data)
        network = self.network(layout, data, run)
        self.train(network, layout, data, valid, run)
        weights = Weights.of(network.predictor)
        return AutoencoderModel(data.n_labels, data.n_features, data.n_words, layout, weights)

    def network(self, layout: Layout, data: Dataset, run: Run) -> Autoencoder:
        """F, E and D before training."""
        device = device_of(run)
        with working(run, device, self.seed):
            alone = distributed.place()[1] == 1  # NCCL does not add up sparse gradients
            predictor = self.predictor(layout, data, sparse=alone and layout.n_inputs > SPARSE)
            sizes = layout.n_labels, layout.layer, layout.hidden, layout.normalised
            encoder = LabelEncoder(*sizes, sparse=alone and layout.n_labels > SPARSE)
        return Autoencoder(predictor, encoder, self.objective(data)).to(device)

    def train(self, network: Autoencoder, layout: Layout, data: Dataset, valid: Dataset | None, run: Run) -> None:
        assert data.Y is not None
        device = device_of(run)
        corpus, labels = layout.read(data, device), LabelRows(data.Y, device)
        forward = distributed.shared(network)

        def batches(rng: np.random.Generator) -> Iterator[np.ndarray]:
            return corpus.shuffled(self.batch, rng)

        def loss(docs: np.ndarray) -> Tensor:
            batch = corpus.batch(distributed.share(docs))
            with mixed(device):
                return forward(batch, *labels.pairs(batch.docs))

        def score() -> float:
            if valid is None:
                return 0.0  # of equal scores the last stays
            found = predict_with(network.predictor, layout, valid, 5, replace(run, progress=Run().progress))
            return evaluate(found, valid.Y, ["nDCG@5"])["nDCG@5"]

        with working(run, device, self.seed):
            train(network, batches, loss, score, self.plan, data.n_docs, run, "network")

    @property
    def plan(self) -> Plan:
        seconds = 60 * self.minutes or inf
        averages = self.average_from, AVERAGE_EVERY
        decays = self.decay, self.weight_decay
        # No clipping: it is of all gradients together, and would leave F, whose gradients are by far the smallest, with
        # so little that Adam's epsilon holds it back.
        return Plan(self.epochs, self.rate, *averages, self.patience, self.seed, seconds, *decays, clips=False)

"""What Rank-AE, BCE-AE and C2AE share: how F, E and D are trained together."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil, inf
from typing import ClassVar

import numpy as np
from torch import Tensor

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Method
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.methods.autoencoder.model import AutoencoderDesign, AutoencoderModel
from xmtc.methods.autoencoder.network import Autoencoder, LabelEncoder, Objective, Predictor
from xmtc.nn import distributed
from xmtc.nn.batches import LabelLoader
from xmtc.nn.devices import mixed_precision, select_device, use_torch_settings
from xmtc.nn.network import TrainedNetwork, Weights, predict_with_network
from xmtc.nn.training import HELD_OUT_HELP, TrainingOptions, fit_network, prepare_training, select_stopping_rows

AVERAGING_INTERVAL_STEPS = 20  # steps
MIN_EPOCHS, MIN_STEPS = 20, 2000  # of a training, where nothing else is said
SCHEDULES = DECAY, COSINE = "decay", "cosine"
MAX_DENSE_ROWS = 100_000  # words or labels of which a step moves only those it has seen, where there are more


@dataclass(frozen=True)
class LabelAutoencoder(Method):
    """Documents and labels in one hidden space, and labels read off it. A subclass says what F is and what is
    minimised."""

    is_exact: ClassVar[bool] = False
    has_cluster_support: ClassVar[bool] = True
    has_multiprocess_support: ClassVar[bool] = True
    # Clipping is of all gradients together, and would leave F, whose gradients are by far the smallest, with so little
    # that Adam's epsilon holds it back.
    clips: ClassVar[bool] = False

    dropout: float = param(
        0.0,
        "share of the numbers of a document, before its last layer, that a step leaves out",
        low=0.0,
        high=0.99,
        search=(0.0, 0.6),
    )
    batch: int = param(128, "documents of a step", low=1)
    epochs: int = param(
        0, "passes over the documents; 0: 20, and more where documents are few, for 2,000 steps in all", low=0
    )
    rate: float = param(0.001, "learning rate of Adam", low=1e-8, high=10.0, search=(3e-4, 1e-2), log=True)
    schedule: str = param(
        "cosine",
        "the learning rate falls along a cosine, to 0 at the end of the last pass; or after every pass (decay)",
        choices=SCHEDULES,
    )
    decay: float = param(
        0.97, "with schedule=decay, what the learning rate is multiplied by after every pass", low=0.01, high=1.0
    )
    weight_decay: float = param(0.0, "share of the weights that a step takes away, times the rate", low=0.0, high=1e9)
    average_from: int = param(5, "with schedule=decay, pass from which on weights are averaged", low=0)
    patience: int = param(10, "with schedule=decay, passes without a better nDCG@5 after which training ends", low=1)
    held_out: float = param(0.0, HELD_OUT_HELP, low=0.0, high=0.9)
    minutes: float = param(0.0, "begin no further pass after so many minutes (0: no limit)", low=0.0)
    seed: int = param(0, "seed of the first weights and the order of documents", low=0, high=2**32 - 1)

    @abstractmethod
    def build_design(self, data: Dataset, vectors: np.ndarray | None) -> AutoencoderDesign:
        """The sizes of the network for this data, and for the word vectors that it starts from, if any."""

    @abstractmethod
    def build_objective(self, data: Dataset) -> Objective:
        """What is minimised."""

    def load_initial_vectors(self, data: Dataset, run: Run) -> np.ndarray | None:
        """Of words, to start from; None where the network has its own."""
        return None

    def build_predictor(self, design: AutoencoderDesign, vectors: np.ndarray | None, sparse: bool) -> Predictor:
        """F and D before training."""
        return design.build(0.0, self.dropout, sparse)

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        return select_stopping_rows(data, self.seed, self.held_out)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> AutoencoderModel:
        vectors = self.load_initial_vectors(data, run)
        data, valid, _ = prepare_training(self, data, valid, run, seed=self.seed, share=self.held_out, vectors=vectors)
        design = self.build_design(data, vectors)
        network = self.build_network(design, vectors, data, run)
        self.train(network, design, data, valid, run)
        trained = TrainedNetwork(design=design, weights=Weights.from_network(network.predictor))
        return AutoencoderModel(n_labels=data.n_labels, views=data.sizes, network=trained)

    def build_network(
        self, design: AutoencoderDesign, vectors: np.ndarray | None, data: Dataset, run: Run
    ) -> Autoencoder:
        """F, E and D before training."""
        device = select_device(run)
        design.check_memory(device)
        with use_torch_settings(run, device, self.seed):
            alone = distributed.rank_and_size()[1] == 1  # NCCL does not add up sparse gradients
            predictor = self.build_predictor(design, vectors, sparse=alone and design.n_inputs > MAX_DENSE_ROWS)
            encoder = LabelEncoder(
                design.n_labels,
                design.layer,
                design.hidden,
                design.build_hidden_activation(),
                sparse=alone and design.n_labels > MAX_DENSE_ROWS,
            )
        return Autoencoder(predictor, encoder, self.build_objective(data)).to(device)

    def train(
        self, network: Autoencoder, design: AutoencoderDesign, data: Dataset, valid: Dataset | None, run: Run
    ) -> None:
        assert data.Y is not None
        device = select_device(run)
        loader, labels = design.loader(data, device), LabelLoader(data.Y, device)
        held_out = None if valid is None else design.loader(valid, device)
        forward = distributed.wrap_network(network)

        def loss(docs: np.ndarray) -> Tensor:
            batch = loader.load_batch(distributed.shard_batch(docs))
            with mixed_precision(device):
                return forward(batch, *labels.label_pairs(batch.docs))

        def answer(run: Run) -> Predictions:
            assert held_out is not None
            return predict_with_network(network.predictor, held_out, 5, run)

        fit_network(
            network,
            loader=loader,
            loss=loss,
            predict=answer,
            Y=None if valid is None else valid.Y,
            plan=self.make_training_options(data.n_docs),
            batch=self.batch,
            run=run,
        )

    def make_training_options(self, n_docs: int) -> TrainingOptions:
        falls, n_steps = self.schedule == COSINE, ceil(n_docs / self.batch)  # of a pass
        epochs = self.epochs or max(MIN_EPOCHS, ceil(MIN_STEPS / n_steps))
        return TrainingOptions(
            epochs=epochs,
            rate=self.rate,
            decay=1.0 if falls else self.decay,
            n_steps=epochs * n_steps if falls else 0,
            has_cosine_decay=falls,
            weight_decay=self.weight_decay,
            patience=epochs if falls else self.patience,
            max_seconds=60 * self.minutes or inf,
            # The end of a cosine needs no average, and is to be reached.
            average_from=epochs if falls else self.average_from,
            average_every=AVERAGING_INTERVAL_STEPS,
            clips=self.clips,
            seed=self.seed,
        )

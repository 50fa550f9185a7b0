"""Base class of Rank-AE, BCE-AE and C2AE: joint training of feature network F, label encoder E and decoder D."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, ClassVar

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.methods.autoencoder.model import AutoencoderDesign, AutoencoderModel
from xmtc.methods.autoencoder.network import Autoencoder, LabelEncoder, Objective, Predictor
from xmtc.nn import distributed
from xmtc.nn.devices import select_device, use_torch_settings
from xmtc.nn.network import TrainedNetwork, Weights
from xmtc.nn.training import (
    HELD_OUT_HELP,
    TrainingOptions,
    fit_label_network,
    prepare_training,
    select_stopping_rows,
)

AVERAGING_INTERVAL_STEPS = 20
MIN_EPOCHS, MIN_STEPS = 20, 2000  # length of a training if epochs=0
COSINE = "cosine"
SCHEDULES = ("decay", COSINE)
MAX_DENSE_ROWS = 100_000  # more words or labels use sparse gradients: a step updates only those it has seen


@dataclass(frozen=True)
class LabelAutoencoder(Method):
    """Documents and labels in a common hidden space; a subclass defines F and the objective."""

    is_exact: ClassVar[bool] = False
    view_defaults: ClassVar[dict[str, Any]] = {"unit_length": True}  # the scale of its learning rates
    has_cluster_support: ClassVar[bool] = True
    has_multiprocess_support: ClassVar[bool] = True
    # Clipping scales all gradients together. The gradients of F are by far the smallest; clipped, they would fall below
    # Adam's epsilon.
    has_gradient_clipping: ClassVar[bool] = False

    dropout: float = param(
        0.0,
        "Dropout rate before the last layer of F.",
        low=0.0,
        high=0.99,
        search=(0.0, 0.6),
    )
    batch: int = param(128, "Batch size (documents per step).", low=1)
    epochs: int = param(0, "Number of epochs; 0 uses 20, or more for at least 2,000 steps.", low=0)
    rate: float = param(0.001, "Learning rate of Adam.", low=1e-8, high=10.0, search=(3e-4, 1e-2), log=True)
    schedule: str = param(
        "cosine",
        "Learning rate schedule: a cosine that ends at 0 after the last epoch, or a factor per epoch (decay).",
        choices=SCHEDULES,
    )
    decay: float = param(
        0.97, "Factor of the learning rate after every epoch, with schedule=decay.", low=0.01, high=1.0
    )
    weight_decay: float = param(0.0, "Weight decay of AdamW.", low=0.0, high=1e9)
    average_from: int = param(5, "Epoch from which weights are averaged, with schedule=decay.", low=0)
    patience: int = param(10, "Epochs without a better nDCG@5 before training stops, with schedule=decay.", low=1)
    held_out: float = param(0.0, HELD_OUT_HELP, low=0.0, high=0.9)
    minutes: float = param(0.0, "Minutes after which no further epoch begins; 0 sets no limit.", low=0.0)
    seed: int = param(0, "Seed of all random numbers.", low=0, high=2**32 - 1)

    @abstractmethod
    def build_design(self, data: Dataset, vectors: np.ndarray | None) -> AutoencoderDesign:
        """Return the design of the network for the data and the initial word vectors."""

    @abstractmethod
    def build_objective(self, data: Dataset) -> Objective:
        """Return the training objective."""

    def load_initial_vectors(self, data: Dataset, run: Run) -> np.ndarray | None:
        """Return initial word vectors, or None if the network initialises its own."""
        return None

    def build_predictor(self, design: AutoencoderDesign, vectors: np.ndarray | None, sparse: bool) -> Predictor:
        """Return F and D before training."""
        return design.build(0.0, self.dropout, sparse)

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        return select_stopping_rows(data, self.seed, self.held_out)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> AutoencoderModel:
        vectors = self.load_initial_vectors(data, run)
        data, valid, _ = prepare_training(self, data, valid, run, seed=self.seed, share=self.held_out, vectors=vectors)
        design = self.build_design(data, vectors)
        network = self.build_network(design, vectors, data, run)
        options = self.make_training_options(data.n_docs)
        fit_label_network(network, network.predictor, design, data, valid, options=options, batch=self.batch, run=run)
        trained = TrainedNetwork(design=design, weights=Weights.from_network(network.predictor))
        return AutoencoderModel(n_labels=data.n_labels, views=data.sizes, network=trained)

    def build_network(
        self, design: AutoencoderDesign, vectors: np.ndarray | None, data: Dataset, run: Run
    ) -> Autoencoder:
        """Return F, E and D before training."""
        device = select_device(run)
        design.check_memory(device)
        with use_torch_settings(run, device, self.seed):
            can_be_sparse = distributed.supports_sparse_gradients()
            predictor = self.build_predictor(design, vectors, can_be_sparse and design.n_inputs > MAX_DENSE_ROWS)
            encoder = LabelEncoder(
                design.n_labels,
                design.layer,
                design.hidden,
                design.build_hidden_activation(),
                sparse=can_be_sparse and design.n_labels > MAX_DENSE_ROWS,
            )
        return Autoencoder(predictor, encoder, self.build_objective(data)).to(device)

    def make_training_options(self, n_docs: int) -> TrainingOptions:
        uses_cosine, steps_per_epoch = self.schedule == COSINE, ceil(n_docs / self.batch)
        epochs = self.epochs or max(MIN_EPOCHS, ceil(MIN_STEPS / steps_per_epoch))
        return TrainingOptions(
            epochs=epochs,
            rate=self.rate,
            decay=1.0 if uses_cosine else self.decay,
            n_steps=epochs * steps_per_epoch if uses_cosine else 0,
            has_cosine_decay=uses_cosine,
            weight_decay=self.weight_decay,
            patience=epochs if uses_cosine else self.patience,
            max_seconds=60 * self.minutes or inf,
            # A cosine schedule runs to its end and needs no averaging.
            average_from=epochs if uses_cosine else self.average_from,
            average_every=AVERAGING_INTERVAL_STEPS,
            clips=self.has_gradient_clipping,
            seed=self.seed,
        )

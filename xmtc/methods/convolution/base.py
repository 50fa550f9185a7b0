"""Base class of XML-CNN and Bow-CNN: training of a convolutional network."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.methods.convolution.model import ConvolutionalDesign, ConvolutionalModel
from xmtc.methods.convolution.network import NetworkWithLoss
from xmtc.nn.devices import use_torch_settings
from xmtc.nn.method import WordNetworkMethod
from xmtc.nn.network import TrainedNetwork, Weights
from xmtc.nn.training import fit_label_network, prepare_training


@dataclass(frozen=True)
class ConvolutionalMethod(WordNetworkMethod):
    """Convolutional network over words; a subclass defines its design."""

    batch: int = param(100, "Batch size (documents per step).", low=1)
    average_from: int = param(5, "Epoch from which weights are averaged.", low=0)
    word_dropout: float = param(0.2, "Dropout rate of the word vectors.", low=0.0, high=0.99)
    dropout: float = param(0.5, "Dropout rate before the output layer.", low=0.0, high=0.99, search=(0.2, 0.7))
    output_norm: bool = param(
        True, "Batch normalisation before the output layer; without it, as in the papers, rare labels learn poorly."
    )

    def load_initial_vectors(self, data: Dataset, run: Run) -> np.ndarray | None:
        """Return initial word vectors, or None if the network initialises its own."""
        return None

    @abstractmethod
    def build_design(self, data: Dataset, vectors: np.ndarray | None) -> ConvolutionalDesign:
        """Return the design of the network for the data and the initial word vectors."""

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> ConvolutionalModel:
        self.warn_of_small_corpus(data)
        vectors = self.load_initial_vectors(data, run)
        data, valid, device = prepare_training(
            self, data, valid, run, seed=self.seed, share=self.held_out, vectors=vectors
        )
        assert data.Y is not None
        design = self.build_design(data, vectors)
        design.check_memory(device)
        with use_torch_settings(run, device, self.seed):
            network = design.build(self.word_dropout, self.dropout)
        if vectors is not None:
            network.embedding.weight.data = torch.from_numpy(np.array(vectors, np.float32))
        network.initialise_biases(data.Y)
        network.to(device)
        options = self.make_training_options()
        fit_label_network(
            NetworkWithLoss(network), network, design, data, valid, options=options, batch=self.batch, run=run
        )
        trained = TrainedNetwork(design=design, weights=Weights.from_network(network))
        return ConvolutionalModel(n_labels=data.n_labels, views=data.sizes, network=trained)

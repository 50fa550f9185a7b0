"""Model of Rank-AE, BCE-AE and C2AE: feature network F and decoder D (the label encoder E is used only in training)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation
from xmtc.core.run import Run
from xmtc.methods.autoencoder.network import (
    LEAKY_RELU_SLOPE,
    BagFeatures,
    Decoder,
    FullyConnectedFeatures,
    HiddenActivation,
    Predictor,
    SequenceFeatures,
)
from xmtc.nn.batches import BagBatch, BagLoader, TokenLoader
from xmtc.nn.devices import use_torch_settings
from xmtc.nn.network import Design, NetworkModel, check_positive

INPUTS = BAG, LSTM, LAYERS = "bag", "lstm", "layers"
WORD_VIEW = "words"  # view of input=lstm


@dataclass(frozen=True, kw_only=True)
class AutoencoderDesign(Design):
    """Design of F and D."""

    input: str  # one of INPUTS
    n_inputs: int  # number of features or words
    n_labels: int  # L
    hidden: int  # h: size of the common space
    layer: int  # width of the hidden layers
    dimension: int = 0  # length of the word vectors, input=lstm
    channels: int = 0  # C: channels of a word; 0 for C2AE
    reduction: int = 0  # r of channel attention; 0 without attention
    averages: bool = False  # words are averaged, otherwise summed
    batch_norm: bool = True  # in E and D of Rank-AE; unused by C2AE

    def build_hidden_activation(self) -> HiddenActivation:
        """Return the activation after the first layer of E and D."""
        if self.input == LAYERS:
            return HiddenActivation(self.layer, False, LEAKY_RELU_SLOPE)
        return HiddenActivation(self.layer, self.batch_norm)

    def build(self, word_dropout: float = 0.0, dropout: float = 0.0, sparse: bool = False) -> Predictor:
        features: BagFeatures | SequenceFeatures | FullyConnectedFeatures
        words = self.channels, self.reduction, self.averages, self.hidden
        if self.input == BAG:
            features = BagFeatures(self.n_inputs, *words, word_dropout, dropout, sparse)
        elif self.input == LSTM:
            features = SequenceFeatures(self.n_inputs, self.dimension, *words, word_dropout, dropout)
        else:
            features = FullyConnectedFeatures(self.n_inputs, self.layer, self.hidden, dropout, sparse)
        decoder = Decoder(self.n_labels, self.layer, self.hidden, self.build_hidden_activation())
        return Predictor(features, decoder, width=self.channels or self.layer)

    def loader(self, data: Dataset, device: torch.device) -> BagLoader | TokenLoader:
        return TokenLoader(data.tokens(WORD_VIEW), device) if self.input == LSTM else BagLoader(data.X, device)

    def check(self) -> None:
        if self.input not in INPUTS:
            raise ValueError(f"its network has input={self.input!r}; expected one of {', '.join(INPUTS)}")
        check_positive(n_inputs=self.n_inputs, n_labels=self.n_labels, hidden=self.hidden, layer=self.layer)
        sizes = {"dimension": self.dimension, "channels": self.channels, "reduction": self.reduction}
        for name, size in sizes.items():
            if size < 0:
                raise ValueError(f"its network has {name}={size}; expected at least 0")


@dataclass(frozen=True, kw_only=True)
class AutoencoderModel(NetworkModel):
    """Model that scores labels by σ(D(F(x)))."""

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return each feature's contribution to the label's logit: its part of the pooled vector times the gradient.

        With input=lstm, return the sum of the channel attention of each word, which is the same for all labels.
        """
        (view,), device = self.views, torch.device("cpu")
        network = self.network.load_on(device)
        batch = self.network.design.loader(document, device).load_batch(np.array([0]))
        with torch.no_grad(), use_torch_settings(Run(device="cpu"), device):
            if isinstance(batch, BagBatch):
                return Explanation.from_occurrences(
                    view, document.X.indices, attribute_logit(network, batch, label).numpy()
                )
            weights = network.features.attribute_words(batch).numpy()
            return Explanation.from_occurrences(view, document.tokens(view).ids, weights, per_token=True)

    def check(self) -> None:
        design = self.network.design_as(AutoencoderDesign)
        (view, size), *others = self.views.items()
        if others or size != design.n_inputs or (view == WORD_VIEW) != (design.input == LSTM):
            raise ValueError(
                f"its network reads {design.n_inputs} inputs ({design.input}); expected the views {self.views}"
            )
        if design.n_labels != self.n_labels:
            raise ValueError(f"its network has {design.n_labels} labels; expected {self.n_labels}")
        super().check()


def attribute_logit(network: Predictor, batch: BagBatch, label: int) -> Tensor:
    """Return each feature's first-order contribution to a label's logit, for one document."""
    features = network.features
    assert not isinstance(features, SequenceFeatures)
    with torch.enable_grad():
        pooled = features.pool_features(batch).detach().requires_grad_(True)
        logit = network.decoder(features.project_pooled(pooled))[0, label]
        (gradient,) = torch.autograd.grad(logit, pooled)
    return features.compute_contributions(batch) @ gradient[0]

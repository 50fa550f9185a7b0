"""The trained form of Rank-AE, BCE-AE and C2AE: F and D. The label encoder E has done its work in training."""

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
from xmtc.nn.network import Design, NetworkModel

INPUTS = BAG, LSTM, LAYERS = "bag", "lstm", "layers"
WORD_VIEW = "words"  # the view that an LSTM reads


@dataclass(frozen=True, kw_only=True)
class AutoencoderDesign(Design):
    """The sizes of F and D."""

    input: str  # one of INPUTS
    n_inputs: int  # features, or words
    n_labels: int
    hidden: int
    layer: int
    dimension: int = 0  # of word vectors that an LSTM reads
    channels: int = 0  # numbers of a word that channel attention weighs; 0 where there are no words
    reduction: int = 0  # of channel attention; 0 without it
    averages: bool = False  # words, or adds them up
    batch_norm: bool = True  # in E and D of Rank-AE; C2AE does without

    def build_hidden_activation(self) -> HiddenActivation:
        """What follows the first layer of E and of D."""
        return (
            HiddenActivation(self.layer, False, LEAKY_RELU_SLOPE)
            if self.input == LAYERS
            else HiddenActivation(self.layer, self.batch_norm)
        )

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
        if self.input not in INPUTS or min(self.n_inputs, self.n_labels, self.hidden, self.layer) < 1:
            raise ValueError("its network is not for its labels")
        if min(self.dimension, self.channels, self.reduction) < 0:
            raise ValueError("its network has layers of negative size")


@dataclass(frozen=True, kw_only=True)
class AutoencoderModel(NetworkModel):
    """σ(D(F(x)))"""

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """What each feature adds to the label's logit: its part of the pooled vector times the gradient there. Of an
        LSTM, how much of each word the channel attention lets through, whatever the label."""
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
            raise ValueError("its network is not for its features and words")
        if design.n_labels != self.n_labels:
            raise ValueError("its network is not for its labels")
        super().check()


def attribute_logit(network: Predictor, batch: BagBatch, label: int) -> Tensor:
    """What each feature of one document adds to a label's logit, to first order."""
    features = network.features
    assert not isinstance(features, SequenceFeatures)
    with torch.enable_grad():
        pooled = features.pool_features(batch).detach().requires_grad_(True)
        logit = network.decoder(features.project_pooled(pooled))[0, label]
        (gradient,) = torch.autograd.grad(logit, pooled)
    return features.compute_contributions(batch) @ gradient[0]

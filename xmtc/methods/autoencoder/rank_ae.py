"""Rank-AE: documents and labels in one hidden space, an autoencoder of labels trained with a margin-based ranking loss,
and channel attention over word vectors. Wang, Chen, Sun, Qin, Wang: Ranking-Based Autoencoder for Extreme Multi-label
Classification (NAACL 2019).

F(x): word vectors times tf-idf (or what X has), channel attention (eq. 5), pooled, one layer → x_h. E(y) and
D(h): two layers each, the first followed by batch normalisation and ReLU. Training minimises L_h(x_h, E(y)) + λ L_ae(y,
D(E(y))) (eq. 1), L_h the mean squared difference, L_ae the ranking loss (eqs. 2–4) in O(L); prediction is D(F(x)).

Ours trains D(F(x)), which is what is predicted, as well: a cross-entropy (`prediction_weight`), with dropout of words
and of D's inner layer, biases that begin at the labels' log-odds, and a cosine schedule. Besides, L_P and L_N are
averaged over the labels that they add up, outputs are unbounded, words are added up, and random word vectors begin
small: set by hand, looking at held-out documents of Delicious. `preset` has the paper's settings for each of its data
sets (presets.py says what it leaves open), with batch normalisation, which it does not mention, off.

No authors' code is public. Where the paper is silent: x_h and E(y) are linear in their last layers, losses are averaged
over documents, channel attention has no bias (as in eq. 5). `input=lstm` is the paper's variant for raw text (section
3.4): the states of a bidirectional LSTM in place of weighted word vectors. The ablations of section 3.4 are
`attention=false` and the method `bce_ae`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods.autoencoder.base import LabelAutoencoder
from xmtc.methods.autoencoder.model import BAG, LSTM, WORD_VIEW, AutoencoderDesign
from xmtc.methods.autoencoder.network import Autoencoder, BagFeatures, Objective, Predictor, SequenceFeatures
from xmtc.methods.autoencoder.presets import PRESETS
from xmtc.nn.initial_vectors import load_term_vectors, load_token_vectors
from xmtc.nn.label_clusters import compute_label_log_odds
from xmtc.nn.output_losses import CrossEntropyLoss, Loss, RankingLoss

LOSSES = RANKING, BCE = "ranking", "bce"
POOLINGS = MEAN, SUM = "mean", "sum"


@dataclass(frozen=True)
class RankAE(LabelAutoencoder):
    """An autoencoder of labels with a ranking loss and channel attention (Wang et al., NAACL 2019)."""

    presets: ClassVar[Presets] = PRESETS
    quick_parameters: ClassVar[dict[str, Any]] = {
        "layer": 64, "hidden": 32, "channels": 32, "batch": 32, "epochs": 25, "rate": 0.01
    }  # fmt: skip

    input: str = param("bag", "words without their order (bag), or in it (lstm)", choices=(BAG, LSTM))
    vectors: str = param(
        "", "word vectors to start from: a file (GloVe, word2vec, fastText) or a name; random if left out"
    )
    channels: int = param(
        200, "numbers of a word's vector (C), where no vectors are given; with input=lstm, of its states", low=1
    )
    dimension: int = param(100, "with input=lstm, length of random word vectors, where none are given", low=1)
    corpus_dimension: int = param(
        0,
        "with input=lstm, numbers that the corpus adds to each word's vector: which words it stands near",
        low=0,
        high=10_000,
    )
    spread: float = param(0.1, "random word vectors begin between minus this and this", low=0.0, high=10.0)
    attention: bool = param(True, "weigh these numbers by channel attention")
    reduction: int = param(4, "how much narrower channel attention is inside (r)", low=1)
    pooling: str = param("sum", "a document is the sum of its words, or their mean, as in the paper", choices=POOLINGS)
    hidden: int = param(200, "numbers of the space that documents and labels share (h)", low=1)
    layer: int = param(1000, "width of the inner layers of label encoder and decoder", low=1)
    batch_norm: bool = param(True, "normalise the inner layers of encoder and decoder over a batch")
    loss: str = param("ranking", "loss of labels decoded from labels, D(E(y)): ranking, or bce", choices=LOSSES)
    balance: float = param(
        0.1,
        "weight of that loss (λ) beside the distance of F(x) and E(y)",
        low=0.0,
        high=1e6,
        search=(1e-2, 10.0),
        log=True,
    )
    margin: float = param(
        3.0,
        "by how much labels are to be ahead of others (m); in [0, 1] if bounded",
        low=0.0,
        high=1e6,
        search=(0.3, 10.0),
    )
    bounded: bool = param(False, "rank by outputs between 0 and 1, as in the paper, or by any numbers")
    averaged: bool = param(True, "average the ranking loss over labels and over others, each for itself, not add it up")
    distance_weight: float = param(1.0, "weight of the distance of F(x) and E(y)", low=0.0, high=1e6)
    prediction_weight: float = param(
        1.0, "weight of a loss of labels decoded from documents, D(F(x)); 0 in the paper", low=0.0, high=1e6
    )
    prediction_loss: str = param("bce", "that loss: ranking, or bce", choices=LOSSES)
    word_dropout: float = param(
        0.3,
        "share of the words (of an LSTM, of their vectors' numbers) that a step leaves out",
        low=0.0,
        high=0.99,
        search=(0.0, 0.5),
    )
    inner_dropout: float = param(
        0.5,
        "share of the decoder's inner layer that a step leaves out, on the way of documents, D(F(x))",
        low=0.0,
        high=0.99,
        search=(0.0, 0.7),
    )
    preset: str = param(
        "",
        "a data set of the paper, whose settings stand where none are given; -authors: as its authors are said to "
        "have run it",
        choices=("", *PRESETS),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if self.input == LSTM and self.channels % 2:
            raise XmtcError(f"{name}: channels={self.channels} does not fit an LSTM of two directions; expected 2, 4 …")
        if not self.balance and not self.prediction_weight:
            raise XmtcError(
                f"{name}: balance and prediction_weight are both 0, so that no labels are learnt; set one of them."
            )
        if not self.distance_weight and not self.prediction_weight:
            raise XmtcError(
                f"{name}: distance_weight and prediction_weight are both 0, so that documents teach nothing; set one "
                "of them."
            )

    @property
    def required_views(self) -> tuple[str, ...]:  # type: ignore[override]  # words in their order or not
        return (WORD_VIEW,) if self.input == LSTM else ("tfidf",)

    def load_initial_vectors(self, data: Dataset, run: Run) -> np.ndarray | None:
        if self.input == LSTM:
            return load_token_vectors(data.tokens(WORD_VIEW), self.vectors, self.dimension, self.corpus_dimension, run)
        return load_term_vectors(data.bag, self.vectors, run) if self.vectors else None

    def build_design(self, data: Dataset, vectors: np.ndarray | None) -> AutoencoderDesign:
        (size,) = data.sizes.values()
        width = 0 if vectors is None else vectors.shape[1]
        return AutoencoderDesign(
            input=self.input,
            n_inputs=size,
            n_labels=data.n_labels,
            hidden=self.hidden,
            layer=self.layer,
            dimension=width if self.input == LSTM else 0,
            channels=self.channels if self.input == LSTM else width or self.channels,
            reduction=self.reduction if self.attention else 0,
            averages=self.pooling == MEAN,
            batch_norm=self.batch_norm,
        )

    def build_predictor(self, design: AutoencoderDesign, vectors: np.ndarray | None, sparse: bool) -> Predictor:
        predictor = design.build(self.word_dropout, self.dropout, sparse)
        features = predictor.features
        if isinstance(features, SequenceFeatures):
            assert vectors is not None
            features.encoder.set_vectors(vectors)
        else:
            assert isinstance(features, BagFeatures)
            known = None if vectors is None else torch.from_numpy(np.array(vectors, np.float32))
            features.embedding.weight.data = features.embedding.weight.data * self.spread if known is None else known
        return predictor

    def build_network(
        self, design: AutoencoderDesign, vectors: np.ndarray | None, data: Dataset, run: Run
    ) -> Autoencoder:
        network = super().build_network(design, vectors, data, run)
        if self.prediction_weight and self.prediction_loss == BCE:  # begins with what is known: how rare labels are
            assert data.Y is not None
            network.predictor.decoder.output.bias.data.copy_(compute_label_log_odds(data.Y))
        return network

    def build_objective(self, data: Dataset) -> Objective:
        if self.bounded and self.margin > 1:  # not refused at once, so that a search can begin with the default
            raise XmtcError(
                f"{type(self).__name__}: no output between 0 and 1 (bounded) can be margin={self.margin:g} ahead of "
                "another; expected at most 1."
            )
        kinds: dict[str, Loss] = {
            RANKING: RankingLoss(self.margin, self.bounded, data.n_labels if self.averaged else 0),
            BCE: CrossEntropyLoss(),
        }
        return Objective(
            distance=mean_squared_distance,
            distance_weight=self.distance_weight,
            reconstruction=kinds[self.loss],
            balance=self.balance,
            prediction=kinds[self.prediction_loss],
            prediction_weight=self.prediction_weight,
            dropout=self.inner_dropout,
        )


def mean_squared_distance(x_h: Tensor, y_h: Tensor) -> Tensor:
    """L_h"""
    return (x_h - y_h).square().mean()

"""Rank-AE: a ranking-based autoencoder of labels with channel attention over word vectors.

Wang, Chen, Sun, Qin, Wang: Ranking-Based Autoencoder for Extreme Multi-label Classification (NAACL 2019).

F(x) weights word vectors by tf-idf (the values of X), applies channel attention (eq. 5), pools them and applies a
linear layer, which gives x_h. E(y) and D(h) have two layers each; batch normalisation and ReLU follow the first.
Training minimises L_h(x_h, E(y)) + λ L_ae(y, D(E(y))) (eq. 1). L_h is the mean squared difference, L_ae the ranking
loss (eqs. 2–4) with margin m, computed in O(L). The prediction is D(F(x)).

Differences from the paper by default; `preset=paper`, or that of a data set, removes them (presets.py states what the
paper leaves open):

- The prediction D(F(x)) is trained too, with cross-entropy (`prediction_weight`), dropout of words and in D, biases
  that start at the log-odds of the labels, and a cosine schedule.
- L_P and L_N are means over labels, not sums; outputs are unbounded; random word vectors start small.
  These values were chosen by hand on held-out documents of Delicious.

The authors' code is not public. Where the paper is silent, the last layers of F and E are linear, E and D use batch
normalisation, losses are averaged over documents, and channel attention has no bias (as in eq. 5). The paper averages
over n words and does not say of which n: pooling=sum takes the same n for all documents and leaves the constant 1 / n
to the next layer; pooling=mean takes the number of words of each document.

`input=lstm` is the paper's variant for raw text (section 3.4), with the states of a bidirectional LSTM instead of
weighted word vectors. The ablations of section 3.4 are `attention=false` and the method `bce_ae`.
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
    """Autoencoder of labels (Wang et al., NAACL 2019) with an added cross-entropy; preset=paper has only its losses.

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import RankAE
    >>> texts, labels = ["cats purr softly", "dogs bark loudly"] * 30, [["cat"], ["dog"]] * 30
    >>> method = RankAE(**RankAE.quick_parameters)
    >>> Classifier(method, calibrate=False).fit(texts, labels).predict(["dogs bark"], k=1)
    [['dog']]
    """

    presets: ClassVar[Presets] = PRESETS
    quick_parameters: ClassVar[dict[str, Any]] = {
        "layer": 64, "hidden": 32, "channels": 32, "batch": 32, "epochs": 25, "rate": 0.01
    }  # fmt: skip

    input: str = param("bag", "Input: bag of words (bag) or word sequence (lstm).", choices=(BAG, LSTM))
    vectors: str = param(
        "",
        "Pretrained word vectors: a file (GloVe, word2vec, fastText), a package name or an encoder; several are joined "
        "by +; random if empty.",
    )
    channels: int = param(200, "Length of random word vectors (C); with input=lstm, of the LSTM states.", low=1)
    dimension: int = param(100, "Length of random word vectors, with input=lstm.", low=1)
    corpus_dimension: int = param(
        0,
        "Length of co-occurrence vectors of the corpus, appended to the word vectors, with input=lstm.",
        low=0,
        high=10_000,
    )
    spread: float = param(0.1, "Range of random word vectors: uniform in [-spread, spread].", low=0.0, high=10.0)
    attention: bool = param(True, "Channel attention.")
    reduction: int = param(4, "Reduction ratio of channel attention (r).", low=1)
    pooling: str = param(
        "sum", "Pooling over words: their sum, or its mean over the number of words of each document.", choices=POOLINGS
    )
    hidden: int = param(200, "Size of the common space of documents and labels (h).", low=1)
    layer: int = param(1000, "Width of the hidden layers of E and D.", low=1)
    batch_norm: bool = param(True, "Batch normalisation in E and D.")
    loss: str = param("ranking", "Reconstruction loss of D(E(y)).", choices=LOSSES)
    balance: float = param(
        0.1,
        "Weight of the reconstruction loss (λ).",
        low=0.0,
        high=1e6,
        search=(1e-2, 10.0),
        log=True,
    )
    margin: float = param(
        3.0,
        "Margin of the ranking loss (m); in [0, 1] if bounded.",
        low=0.0,
        high=1e6,
        search=(0.3, 10.0),
    )
    bounded: bool = param(False, "Sigmoid outputs in the ranking loss, as in the paper; otherwise logits.")
    averaged: bool = param(True, "Means over positive and negative labels in the ranking loss instead of sums.")
    distance_weight: float = param(1.0, "Weight of the distance of F(x) and E(y).", low=0.0, high=1e6)
    prediction_weight: float = param(
        1.0, "Weight of the prediction loss of D(F(x)); 0 in the paper.", low=0.0, high=1e6
    )
    prediction_loss: str = param("bce", "Prediction loss of D(F(x)).", choices=LOSSES)
    word_dropout: float = param(
        0.3,
        "Dropout rate of words; with input=lstm, of the word vectors.",
        low=0.0,
        high=0.99,
        search=(0.0, 0.5),
    )
    inner_dropout: float = param(
        0.5,
        "Dropout rate of the hidden layer of D, for D(F(x)) only.",
        low=0.0,
        high=0.99,
        search=(0.0, 0.7),
    )
    preset: str = param(
        "",
        "Settings of the paper that replace the defaults of unset parameters, for any data (paper) or one of its "
        "data sets.",
        choices=("", *PRESETS),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if self.input == LSTM and self.channels % 2:
            raise XmtcError(f"{name}: channels={self.channels} does not fit input=lstm; expected an even number.")
        if not self.balance and not self.prediction_weight:
            raise XmtcError(
                f"{name}: balance=0 and prediction_weight=0 leave the decoder untrained; set one of them above 0."
            )
        if not self.distance_weight and not self.prediction_weight:
            raise XmtcError(
                f"{name}: distance_weight=0 and prediction_weight=0 leave F untrained; set one of them above 0."
            )

    @property
    def required_views(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on the input
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
            if vectors is None:
                features.embedding.weight.data = features.embedding.weight.data * self.spread
            else:
                features.embedding.weight.data = torch.from_numpy(np.array(vectors, np.float32))
        return predictor

    def build_network(
        self, design: AutoencoderDesign, vectors: np.ndarray | None, data: Dataset, run: Run
    ) -> Autoencoder:
        network = super().build_network(design, vectors, data, run)
        if self.prediction_weight and self.prediction_loss == BCE:  # start from label frequencies
            assert data.Y is not None
            network.predictor.decoder.output.bias.data.copy_(compute_label_log_odds(data.Y))
        return network

    def build_objective(self, data: Dataset) -> Objective:
        if self.bounded and self.margin > 1:  # not checked earlier: a search may start from the default margin
            raise XmtcError(
                f"{type(self).__name__}: margin={self.margin:g} does not fit bounded=true, outputs between 0 and 1; "
                "expected at most 1."
            )
        losses: dict[str, Loss] = {
            RANKING: RankingLoss(self.margin, self.bounded, data.n_labels if self.averaged else 0),
            BCE: CrossEntropyLoss(),
        }
        return Objective(
            distance=mean_squared_distance,
            distance_weight=self.distance_weight,
            reconstruction=losses[self.loss],
            balance=self.balance,
            prediction=losses[self.prediction_loss],
            prediction_weight=self.prediction_weight,
            dropout=self.inner_dropout,
        )


def mean_squared_distance(x_h: Tensor, y_h: Tensor) -> Tensor:
    """Return L_h."""
    return (x_h - y_h).square().mean()

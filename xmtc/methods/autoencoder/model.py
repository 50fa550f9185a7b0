"""The trained form of Rank-AE, BCE-AE and C2AE: F and D. The label encoder E has done its work in training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from xmtc.base.dataset import Dataset
from xmtc.base.method import Explanation, Model
from xmtc.base.predictions import Predictions
from xmtc.base.run import Run
from xmtc.methods.autoencoder.network import BagFeatures, Decoder, LayeredFeatures, Predictor, SequenceFeatures
from xmtc.nn.bags import Bag, Bags
from xmtc.nn.batches import Corpus
from xmtc.nn.devices import device_of, working
from xmtc.nn.weights import Weights

INPUTS = BAG, LSTM, LAYERS = "bag", "lstm", "layers"
MOST_DOCS = 512  # predicted at a time
MOST_NUMBERS = {"cpu": 2**26, "cuda": 2**30}  # of one tensor in a step of prediction


@dataclass(frozen=True)
class Layout:
    """The sizes of F and D."""

    input: str  # one of INPUTS
    n_inputs: int  # features, or words
    n_labels: int
    dimension: int  # of word vectors that an LSTM reads; 0 without one
    channels: int  # numbers of a word that channel attention weighs; 0 where there are no words
    reduction: int  # of channel attention; 0 without it
    averages: bool  # words, or adds them up
    hidden: int
    layer: int

    @property
    def normalised(self) -> bool:
        """C2AE does without batch normalisation."""
        return self.input != LAYERS

    @property
    def width(self) -> int:
        """Numbers of a word, or a feature, in F."""
        return self.channels or self.layer

    def predictor(self, word_dropout: float = 0.0, dropout: float = 0.0, sparse: bool = False) -> Predictor:
        features: BagFeatures | SequenceFeatures | LayeredFeatures
        words = self.channels, self.reduction, self.averages, self.hidden
        if self.input == BAG:
            features = BagFeatures(self.n_inputs, *words, word_dropout, dropout, sparse)
        elif self.input == LSTM:
            features = SequenceFeatures(self.n_inputs, self.dimension, *words, word_dropout, dropout)
        else:
            features = LayeredFeatures(self.n_inputs, self.layer, self.hidden, dropout, sparse)
        return Predictor(features, Decoder(self.n_labels, self.layer, self.hidden, self.normalised))

    def on_paper(self) -> Predictor:
        """The network without memory for its weights, which are to come from elsewhere."""
        with torch.device("meta"):
            return self.predictor()

    def read(self, data: Dataset, device: torch.device) -> Bags | Corpus:
        """Documents as this network takes them."""
        if self.input != LSTM:
            return Bags(data.X, device)
        assert data.tokens is not None
        return Corpus(data.tokens, device)


@dataclass(frozen=True)
class AutoencoderModel(Model):
    """σ(D(F(x)))"""

    n_labels: int
    n_features: int  # 0 where words are read in their order
    n_words: int  # 0 where they are not
    layout: Layout
    weights: Weights

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        return predict_with(self._network(run), self.layout, data, k, run)

    def explain(self, document: Dataset, label: int) -> Explanation:
        """What each feature adds to the label's logit: its part of the pooled vector times the gradient there. Of an
        LSTM, how much of each word the channel attention lets through, whatever the label."""
        run = Run(device="cpu")
        network, corpus = self._network(run), self.layout.read(document, torch.device("cpu"))
        batch, features = corpus.batch(np.array([0])), network.features
        with torch.no_grad(), working(run, corpus.device):
            if isinstance(batch, Bag):
                return summed(document.X.indices, parts_of_logit(network, batch, label).numpy())
            assert isinstance(features, SequenceFeatures)
            assert document.tokens is not None
            places = features.weights_of_words(batch).numpy()
            return summed(document.tokens.ids, places, places)

    def check(self) -> None:
        layout = self.layout
        read = (0, self.n_words) if layout.input == LSTM else (self.n_features, 0)
        if (self.n_features, self.n_words) != read or layout.n_inputs != sum(read):
            raise ValueError("its network is not for its features and words")
        sizes = layout.n_inputs, layout.n_labels, layout.hidden, layout.layer
        if layout.input not in INPUTS or layout.n_labels != self.n_labels or min(sizes) < 1:
            raise ValueError("its network is not for its labels")
        if min(layout.dimension, layout.channels, layout.reduction) < 0:
            raise ValueError("its network has layers of negative size")
        self.weights.check(layout.on_paper())

    def _network(self, run: Run) -> Predictor:
        """The network, built at its first use on a device."""
        device = device_of(run)
        built = self.__dict__.setdefault("_built", {})
        if device not in built:
            built[device] = self.weights.into(self.layout.on_paper()).to(device).eval()
        return built[device]


@torch.inference_mode()
def predict_with(network: Predictor, layout: Layout, data: Dataset, k: int, run: Run) -> Predictions:
    """The k best labels, in float32: bf16 has too few digits to rank by."""
    device = next(network.parameters()).device
    corpus, k = layout.read(data, device), min(k, layout.n_labels)
    labels, scores = np.empty((corpus.n_docs, k), np.int32), np.empty((corpus.n_docs, k), np.float32)
    most = MOST_NUMBERS.get(device.type, MOST_NUMBERS["cpu"]) // max(layout.n_labels, corpus.longest * layout.width)
    with run.progress("predicting", corpus.n_docs) as progress, working(run, device):
        for docs in corpus.by_length(max(1, min(most, MOST_DOCS))):
            batch = corpus.batch(docs)
            best = network(batch).topk(k)
            labels[batch.docs], scores[batch.docs] = best.indices.cpu().numpy(), best.values.sigmoid().cpu().numpy()
            progress.advance(len(docs))
    return Predictions(labels, scores)


def parts_of_logit(network: Predictor, batch: Bag, label: int) -> Tensor:
    """What each feature of one document adds to a label's logit, to first order."""
    features = network.features
    assert not isinstance(features, SequenceFeatures)
    with torch.enable_grad():
        pooled = features.pooled(batch).detach().requires_grad_(True)
        logit = network.decoder(features.after(pooled))[0, label]
        (gradient,) = torch.autograd.grad(logit, pooled)
    return features.parts(batch) @ gradient[0]


def summed(numbers: np.ndarray, weights: np.ndarray, places: np.ndarray | None = None) -> Explanation:
    """An explanation of features or words, each once, the strongest first."""
    words, which = np.unique(numbers, return_inverse=True)
    total = np.bincount(which, weights, len(words)).astype(np.float32)
    order = np.argsort(-total, kind="stable")
    return Explanation(words[order].astype(np.int32), total[order], places)

"""Bow-CNN: convolution over bag-of-words regions, pooled over chunks of the text, with a flat output layer.

Johnson, Zhang: Effective Use of Word Order for Text Categorization with Convolutional Neural Networks (NAACL 2015).

The convolution of a region's bag of words is the sum of the weight rows of its words, so bags are never built.

Differences from the paper:

- The loss is binary cross-entropy, summed over labels, instead of the square loss.
- Training uses Adam and averaged weights instead of SGD with momentum, and keeps the weights with the best nDCG@5.
- Regions start at words of the text and may extend beyond its end; the paper also has regions that start before it.
- Dropout is also applied to the word rows.
- Output biases start at the log-odds of the labels.
- The input of the output layer is batch-normalised; without it, many rare labels learn poorly
  (ConvolutionalNetwork.encode).

Differences from XML-CNN: no word vectors, no word order within a region, no bottleneck layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, dropout, pad, relu

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.methods.convolution.base import ConvolutionalMethod
from xmtc.methods.convolution.model import ConvolutionalDesign
from xmtc.methods.convolution.network import (
    MAX,
    MEAN,
    POOLINGS,
    ConvolutionalNetwork,
    max_pool_chunks,
    mean_pool_chunks,
)
from xmtc.nn.batches import TokenBatch
from xmtc.nn.network import check_positive

MAX_REGION_WORDS = 100_000  # maximum region size and stride


class BowCNNNetwork(ConvolutionalNetwork):
    """Word rows summed over regions, ReLU, pooling, response normalisation, output layer."""

    def __init__(self, design: BowCNNDesign, word_dropout: float, dropout: float):
        super().__init__(design.maps * design.chunks, design.n_labels, design.output_norm, dropout)
        self.design, self.word_dropout, self.n_maps = design, word_dropout, design.maps
        self.embedding = nn.Embedding(design.n_rows, design.maps)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.bias = nn.Parameter(torch.zeros(design.maps))

    def embed_words(self, batch: TokenBatch) -> Tensor:
        """Return the rows of the words; ids increase with rarity, and rare words share the row of the unknown word."""
        return self.embedding(batch.ids.masked_fill(batch.ids >= self.design.n_rows, 0))

    def pool_features(self, words: Tensor, batch: TokenBatch) -> Tensor:
        stride, chunks = self.design.stride, self.design.chunks
        words = batch.pad_states(dropout(words, self.word_dropout, self.training)).transpose(1, 2)
        region = min(self.design.region, words.shape[2])  # a longer region would only add padding
        regions = region * avg_pool1d(pad(words, (0, region - 1)), region, stride)
        regions, lengths = relu(regions + self.bias[:, None]), -(-batch.count_tokens() // stride)
        if self.design.pooling == MAX:
            pooled = max_pool_chunks(regions, lengths, chunks).transpose(1, 2)
        else:
            pooled = mean_pool_chunks(regions.transpose(1, 2), lengths, chunks)
        # Response normalisation: the feature vector of a chunk has at most norm 1.
        pooled = pooled * (1 + pooled.square().sum(2, keepdim=True)).rsqrt()
        return pooled.flatten(1)


@dataclass(frozen=True, kw_only=True)
class BowCNNDesign(ConvolutionalDesign):
    """Design of the Bow-CNN network."""

    vocabulary: int
    region: int
    stride: int
    pooling: str  # one of POOLINGS

    @property
    def n_rows(self) -> int:
        """Number of word rows, including the row of the unknown word."""
        return min(self.n_words, self.vocabulary + 1)

    def build(self, word_dropout: float = 0.0, dropout: float = 0.0) -> BowCNNNetwork:
        return BowCNNNetwork(self, word_dropout, dropout)

    def check(self) -> None:
        super().check()
        if self.pooling not in POOLINGS:
            raise ValueError(f"its network has pooling={self.pooling!r}; expected one of {', '.join(POOLINGS)}")
        check_positive(vocabulary=self.vocabulary, region=self.region, stride=self.stride)
        for name, words in {"region": self.region, "stride": self.stride}.items():
            if words > MAX_REGION_WORDS:
                raise ValueError(f"its network has {name}={words}; expected at most {MAX_REGION_WORDS}")


@dataclass(frozen=True)
class BowCNN(ConvolutionalMethod):
    """Convolution over bag-of-words regions (Johnson and Zhang, NAACL 2015).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import BowCNN
    >>> texts, labels = ["cats purr softly", "dogs bark loudly"] * 30, [["cat"], ["dog"]] * 30
    >>> method = BowCNN(**BowCNN.quick_parameters)
    >>> Classifier(method, calibrate=False).fit(texts, labels).predict(["dogs bark"], k=1)
    [['dog']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {
        "maps": 64, "region": 3, "stride": 1, "chunks": 2, "batch": 16, "epochs": 8, "rate": 0.01, "average_from": 4,
        "dropout": 0.2, "word_dropout": 0.0, "patience": 8,
    }  # fmt: skip

    rate: float = param(0.005, "Learning rate of Adam.", low=1e-8, high=10.0, search=(1e-3, 2e-2), log=True)
    vocabulary: int = param(30_000, "Number of most frequent words (by documents) that are used.", low=1)
    maps: int = param(1000, "Feature maps (features per region).", low=1, search=(250, 2000), log=True)
    region: int = param(20, "Region size in words.", low=1, high=MAX_REGION_WORDS)
    stride: int = param(2, "Stride between regions in words.", low=1, high=MAX_REGION_WORDS)
    pooling: str = param(MEAN, "Pooling of the regions of a chunk.", choices=POOLINGS)
    chunks: int = param(10, "Number of chunks of a text; each is pooled separately.", low=1, high=10_000)

    def build_design(self, data: Dataset, vectors: np.ndarray | None) -> BowCNNDesign:
        (n_words,) = data.sizes.values()
        return BowCNNDesign(
            n_words=n_words,
            n_labels=data.n_labels,
            vocabulary=self.vocabulary,
            maps=self.maps,
            chunks=self.chunks,
            region=self.region,
            stride=self.stride,
            pooling=self.pooling,
            output_norm=self.output_norm,
        )

"""Bow-CNN: the words of a region, in any order, become a vector; vectors are averaged over parts of a text, and each
label reads all of them. Johnson, Zhang: Effective Use of Word Order for Text Categorization with Convolutional Neural
Networks (NAACL 2015).

A region's bag of words times the weights of the layer is the sum of the weights' rows of its words, so that no bag is
ever made. Differs from the paper in: binary cross-entropy, summed over labels, instead of the square loss; Adam and
averaged weights, of which the best nDCG@5 is kept, instead of SGD with momentum; regions begin at a text's words and
may reach beyond its end, where the paper also has some that reach beyond its beginning; numbers of words are dropped
out, too; labels' biases start at their log-odds, and what labels read is normalised over a batch, without which many
rare labels are hardly learnt (RegionNetwork.hidden). Differs from XML-CNN in: no word vectors, no order within a
region, no narrow layer before the labels.
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
from xmtc.methods.convolution.base import (
    MAX,
    MEAN,
    POOLINGS,
    ConvolutionalDesign,
    ConvolutionalMethod,
    ConvolutionalNetwork,
    count_tokens,
    max_pool_chunks,
    mean_pool_chunks,
)
from xmtc.nn.batches import TokenBatch

MAX_REGION_WORDS = 100_000  # of a region, and from one to the next


class BowCNNNetwork(ConvolutionalNetwork):
    """Rows of words, summed over regions, ReLU, pooling, response normalisation, labels."""

    def __init__(self, design: BowCNNDesign, word_dropout: float, dropout: float):
        super().__init__(design.maps * design.chunks, design, dropout)
        self.design, self.word_dropout, self.n_maps = design, word_dropout, design.maps
        self.embedding = nn.Embedding(design.n_rows, design.maps)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.bias = nn.Parameter(torch.zeros(design.maps))

    def embed_words(self, batch: TokenBatch) -> Tensor:
        """The rows of the most frequent words, which have the lowest ids; all others are the unknown word."""
        return self.embedding(batch.ids.masked_fill(batch.ids >= self.design.n_rows, 0))

    def pool_features(self, words: Tensor, batch: TokenBatch) -> Tensor:
        stride, chunks = self.design.stride, self.design.chunks
        words = batch.pad_states(dropout(words, self.word_dropout, self.training)).transpose(1, 2)
        region = min(self.design.region, words.shape[2])  # beyond the texts there is nothing to add up
        regions = region * avg_pool1d(pad(words, (0, region - 1)), region, stride)
        regions, lengths = relu(regions + self.bias[:, None]), -(-count_tokens(batch) // stride)
        if self.design.pooling == MAX:
            pooled = max_pool_chunks(regions, lengths, chunks).transpose(1, 2)
        else:
            pooled = mean_pool_chunks(regions.transpose(1, 2), lengths, chunks)
        # response normalisation: a chunk's numbers have at most the length 1
        pooled = pooled * (1 + pooled.square().sum(2, keepdim=True)).rsqrt()
        return pooled.flatten(1)


@dataclass(frozen=True, kw_only=True)
class BowCNNDesign(ConvolutionalDesign):
    vocabulary: int
    region: int
    stride: int
    pooling: str  # one of POOLINGS

    @property
    def n_rows(self) -> int:
        """Of the vocabulary, and of the unknown word."""
        return min(self.n_words, self.vocabulary + 1)

    def build(self, word_dropout: float = 0.0, dropout: float = 0.0) -> BowCNNNetwork:
        return BowCNNNetwork(self, word_dropout, dropout)

    def check(self) -> None:
        super().check()
        if self.pooling not in POOLINGS or self.vocabulary < 1:
            raise ValueError("its network is none")
        if not (1 <= self.region <= MAX_REGION_WORDS and 1 <= self.stride <= MAX_REGION_WORDS):
            raise ValueError("its regions are of no size that there is")


@dataclass(frozen=True)
class BowCNN(ConvolutionalMethod):
    """Vectors of regions from bags of their words (Johnson and Zhang, NAACL 2015)."""

    quick_parameters: ClassVar[dict[str, Any]] = {
        "maps": 64, "region": 3, "stride": 1, "chunks": 2, "batch": 16, "epochs": 8, "rate": 0.01, "average_from": 4,
        "dropout": 0.2, "word_dropout": 0.0, "patience": 8,
    }  # fmt: skip

    rate: float = param(0.005, "learning rate of Adam", low=1e-8, high=10.0, search=(1e-3, 2e-2), log=True)
    vocabulary: int = param(30_000, "words that count, the most frequent by documents", low=1)
    maps: int = param(1000, "numbers of a region", low=1, search=(250, 2000), log=True)
    region: int = param(20, "words of a region", low=1, high=MAX_REGION_WORDS)
    stride: int = param(2, "words from one region to the next", low=1, high=MAX_REGION_WORDS)
    pooling: str = param(MEAN, "of the regions of a chunk, the mean or the largest numbers", choices=POOLINGS)
    chunks: int = param(10, "parts of a text, each of which the labels read", low=1, high=10_000)

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

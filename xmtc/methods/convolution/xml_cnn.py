"""XML-CNN: filters of several widths over word vectors, the largest answers in each part of a text, a narrow layer, and
one output for each label. Liu, Chang, Wu, Yang: Deep Learning for Extreme Multi-label Text Classification (SIGIR 2017).

Differs from the paper in: the loss is summed over labels, not averaged, and labels' biases start at their log-odds;
larger rates, averaged weights of which the best nDCG@5 is kept, as in AttentionXML; the chunks of dynamic max pooling
are shares of each text's own length, not of a length that all texts are filled up to; filters move by one word; the
narrow layer is normalised over a batch. All of its inputs are positive, so that the first steps of Adam move all of a
unit's weights the same way, and many units below 0 for every document, where a ReLU has no gradient any more. What it
hands to the labels is normalised, too (RegionNetwork.hidden).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad, relu

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods.convolution.base import (
    VIEW,
    ConvolutionalDesign,
    ConvolutionalMethod,
    ConvolutionalNetwork,
    count_tokens,
    max_pool_chunks,
)
from xmtc.nn.batch_norm import BatchNorm
from xmtc.nn.batches import TokenBatch
from xmtc.nn.initial_vectors import load_token_vectors


class XMLCNNNetwork(ConvolutionalNetwork):
    """Word vectors, filters, dynamic max pooling, bottleneck, labels."""

    def __init__(self, design: XMLCNNDesign, word_dropout: float, dropout: float):
        super().__init__(design.bottleneck, design, dropout)
        self.word_dropout, self.n_chunks = word_dropout, design.chunks
        self.widths, self.n_maps = design.filters, len(design.filters) * design.maps
        self.embedding = nn.Embedding(design.n_words, design.dimension)
        self.filters = nn.ModuleList(nn.Conv1d(design.dimension, design.maps, width) for width in design.filters)
        # what is normalised has no use for a bias
        self.bottleneck = nn.Linear(self.n_maps * design.chunks, design.bottleneck, bias=not design.batch_norm)
        self.norm = BatchNorm(design.bottleneck) if design.batch_norm else nn.Identity()

    def pool_features(self, words: Tensor, batch: TokenBatch) -> Tensor:
        words = batch.pad_states(dropout(words, self.word_dropout, self.training)).transpose(1, 2)
        # region i begins with word i; at the end of a text there are zeros in it
        pairs = zip(self.widths, self.filters, strict=True)
        regions = torch.cat([convolve(pad(words, (0, width - 1))) for width, convolve in pairs], 1)
        pooled = relu(max_pool_chunks(regions, count_tokens(batch), self.n_chunks))  # which is the largest after a ReLU
        return relu(self.norm(self.bottleneck(pooled.flatten(1)).float()))  # bf16 has too few digits for a mean


@dataclass(frozen=True, kw_only=True)
class XMLCNNDesign(ConvolutionalDesign):
    dimension: int
    filters: tuple[int, ...]
    bottleneck: int
    batch_norm: bool = False  # of the bottleneck; older folders have none

    def build(self, word_dropout: float = 0.0, dropout: float = 0.0) -> XMLCNNNetwork:
        return XMLCNNNetwork(self, word_dropout, dropout)

    def check(self) -> None:
        super().check()
        if not self.filters or min(self.dimension, self.bottleneck, *self.filters) < 1:
            raise ValueError("its network is none")


# The paper's: more feature maps where there are few labels. Vectors are GloVe's, of 300 numbers: -p vectors=FILE.
SMALL_DATASET_SETTINGS = {
    "maps": 128,
    "chunks": 8,
    "bottleneck": 512,
    "average_from": 30,
    "word_dropout": 0.0,
    "output_norm": False,
}
PRESETS: Presets = {"small": SMALL_DATASET_SETTINGS, "large": SMALL_DATASET_SETTINGS | {"maps": 32}}


@dataclass(frozen=True)
class XMLCNN(ConvolutionalMethod):
    """Filters over word vectors with dynamic max pooling (Liu et al., SIGIR 2017)."""

    presets: ClassVar[Presets] = PRESETS
    quick_parameters: ClassVar[dict[str, Any]] = {
        "filters": (1, 2), "maps": 96, "chunks": 1, "bottleneck": 192, "dimension": 100, "dropout": 0.2,
        "word_dropout": 0.0, "batch": 16, "epochs": 10, "rate": 0.003, "average_from": 5, "patience": 10,
    }  # fmt: skip

    vectors: str = param(
        "", "word vectors to start from: a file (GloVe, word2vec, fastText) or a name; random if left out"
    )
    dimension: int = param(100, "length of random word vectors, where none are given", low=1)
    corpus_dimension: int = param(
        0, "numbers that the corpus itself adds to each word's vector: which words it stands near", low=0, high=10_000
    )
    rate: float = param(0.001, "learning rate of Adam", low=1e-8, high=10.0, search=(3e-4, 3e-3), log=True)
    filters: tuple[int, ...] = param((2, 4, 8), "widths of the filters, in words", low=1, high=1000)
    maps: int = param(128, "filters of each width", low=1, search=(64, 512), log=True)
    chunks: int = param(8, "parts of a text in each of which every filter's largest answer is kept", low=1, high=10_000)
    bottleneck: int = param(512, "width of the layer before the labels", low=1)
    batch_norm: bool = param(True, "normalise the bottleneck over a batch; without, as in the paper, most of it dies")
    preset: str = param("", "the paper's settings, where none are given", choices=("", *PRESETS))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.filters:
            raise XmtcError("XMLCNN: filters=() does not fit; expected widths such as 2,4,8.")

    def load_initial_vectors(self, data: Dataset, run: Run) -> np.ndarray:
        return load_token_vectors(data.tokens(VIEW), self.vectors, self.dimension, self.corpus_dimension, run)

    def build_design(self, data: Dataset, vectors: np.ndarray | None) -> XMLCNNDesign:
        assert vectors is not None
        return XMLCNNDesign(
            n_words=vectors.shape[0],
            dimension=vectors.shape[1],
            n_labels=data.n_labels,
            filters=self.filters,
            maps=self.maps,
            chunks=self.chunks,
            bottleneck=self.bottleneck,
            batch_norm=self.batch_norm,
            output_norm=self.output_norm,
        )

"""XML-CNN: convolution filters over word vectors, dynamic max pooling, a bottleneck layer and a flat output layer.

Liu, Chang, Wu, Yang: Deep Learning for Extreme Multi-label Text Classification (SIGIR 2017).

Differences from the paper:

- The loss is the sum over labels, not the mean; output biases start at the log-odds of the labels.
- Learning rates are larger; weights are averaged and the best by nDCG@5 are kept, as in AttentionXML.
- The p chunks of dynamic max pooling are shares of each text's own length, not of a common padded length.
- Filters have stride 1.
- The bottleneck is batch-normalised. All its inputs are positive, so the first steps of Adam move all weights of a unit
  in the same direction; without normalisation, many units become negative for every document and their ReLU has no
  gradient.
- The input of the output layer is batch-normalised too (ConvolutionalNetwork.encode).
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
from xmtc.methods.convolution.base import ConvolutionalMethod
from xmtc.methods.convolution.model import VIEW, ConvolutionalDesign
from xmtc.methods.convolution.network import ConvolutionalNetwork, max_pool_chunks
from xmtc.nn.batches import TokenBatch
from xmtc.nn.initial_vectors import load_token_vectors
from xmtc.nn.layers import BatchNorm
from xmtc.nn.network import check_positive


class XMLCNNNetwork(ConvolutionalNetwork):
    """Word vectors, filters, dynamic max pooling, bottleneck, output layer."""

    def __init__(self, design: XMLCNNDesign, word_dropout: float, dropout: float):
        super().__init__(design.bottleneck, design.n_labels, design.output_norm, dropout)
        self.word_dropout, self.n_chunks = word_dropout, design.chunks
        self.widths, self.n_maps = design.filters, len(design.filters) * design.maps
        self.embedding = nn.Embedding(design.n_words, design.dimension)
        self.filters = nn.ModuleList(nn.Conv1d(design.dimension, design.maps, width) for width in design.filters)
        # Batch normalisation makes a bias redundant.
        self.bottleneck = nn.Linear(self.n_maps * design.chunks, design.bottleneck, bias=not design.batch_norm)
        self.norm = BatchNorm(design.bottleneck) if design.batch_norm else nn.Identity()

    def pool_features(self, words: Tensor, batch: TokenBatch) -> Tensor:
        words = batch.pad_states(dropout(words, self.word_dropout, self.training)).transpose(1, 2)
        # Region i begins with word i; regions at the end of a text are padded with zeros.
        pairs = zip(self.widths, self.filters, strict=True)
        regions = torch.cat([convolve(pad(words, (0, width - 1))) for width, convolve in pairs], 1)
        pooled = relu(max_pool_chunks(regions, batch.count_tokens(), self.n_chunks))  # ReLU and maximum commute
        return relu(self.norm(self.bottleneck(pooled.flatten(1)).float()))  # bf16 is too imprecise for means


@dataclass(frozen=True, kw_only=True)
class XMLCNNDesign(ConvolutionalDesign):
    """Design of the XML-CNN network."""

    dimension: int
    filters: tuple[int, ...]  # widths in words
    bottleneck: int
    batch_norm: bool = False  # of the bottleneck; absent in old folders

    def build(self, word_dropout: float = 0.0, dropout: float = 0.0) -> XMLCNNNetwork:
        return XMLCNNNetwork(self, word_dropout, dropout)

    def check(self) -> None:
        super().check()
        check_positive(dimension=self.dimension, bottleneck=self.bottleneck)
        if not self.filters or min(self.filters) < 1:
            raise ValueError(f"its network has filters={self.filters}; expected widths of at least 1")


# Settings of the paper, which uses GloVe vectors of length 300 (-p vectors=FILE) and fewer maps for large label sets.
SMALL_DATASET_SETTINGS = {
    "maps": 128, "chunks": 8, "bottleneck": 512, "average_from": 30, "word_dropout": 0.0, "output_norm": False,
}  # fmt: skip
PRESETS: Presets = {"small": SMALL_DATASET_SETTINGS, "large": SMALL_DATASET_SETTINGS | {"maps": 32}}


@dataclass(frozen=True)
class XMLCNN(ConvolutionalMethod):
    """Convolution filters over word vectors with dynamic max pooling (Liu et al., SIGIR 2017).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import XMLCNN
    >>> texts, labels = ["cats purr softly", "dogs bark loudly"] * 30, [["cat"], ["dog"]] * 30
    >>> method = XMLCNN(**XMLCNN.quick_parameters)
    >>> Classifier(method, calibrate=False).fit(texts, labels).predict(["dogs bark"], k=1)
    [['dog']]
    """

    presets: ClassVar[Presets] = PRESETS
    quick_parameters: ClassVar[dict[str, Any]] = {
        "filters": (1, 2), "maps": 96, "chunks": 1, "bottleneck": 192, "dimension": 100, "dropout": 0.2,
        "word_dropout": 0.0, "batch": 16, "epochs": 10, "rate": 0.003, "average_from": 5, "patience": 10,
    }  # fmt: skip

    vectors: str = param(
        "",
        "Pretrained word vectors: a file (GloVe, word2vec, fastText), a package name or an encoder; several are joined "
        "by +; random if empty.",
    )
    dimension: int = param(100, "Length of random word vectors.", low=1)
    corpus_dimension: int = param(
        0, "Length of co-occurrence vectors of the corpus, appended to the word vectors.", low=0, high=10_000
    )
    rate: float = param(0.001, "Learning rate of Adam.", low=1e-8, high=10.0, search=(3e-4, 3e-3), log=True)
    filters: tuple[int, ...] = param((2, 4, 8), "Widths of the filters in words.", low=1, high=1000)
    maps: int = param(128, "Feature maps (filters of each width).", low=1, search=(64, 512), log=True)
    chunks: int = param(8, "Number of chunks of a text for dynamic max pooling (p).", low=1, high=10_000)
    bottleneck: int = param(512, "Width of the bottleneck layer (h).", low=1)
    batch_norm: bool = param(
        True, "Batch normalisation of the bottleneck; without it, as in the paper, most units die."
    )
    preset: str = param(
        "", "Settings of the paper that replace the defaults of unset parameters.", choices=("", *PRESETS)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.filters:
            raise XmtcError("XMLCNN: filters=() is invalid; expected widths such as 2,4,8.")

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

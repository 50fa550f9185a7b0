"""The networks of Rank-AE and C2AE: documents and labels in one hidden space, and labels read off it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding_bag, leaky_relu, relu

from xmtc.nn.batch_norm import BatchNorm
from xmtc.nn.batches import BagBatch, TokenBatch
from xmtc.nn.lstm import RecurrentEncoder
from xmtc.nn.network import LabelNetwork, get_device_limit, get_network_device
from xmtc.nn.output_losses import Loss, PositiveLabels, compute_output_loss

LEAKY_RELU_SLOPE = 0.1  # of the leaky ReLU
MAX_BATCH_DOCUMENTS = 512  # answered at a time
MAX_TENSOR_ELEMENTS = {"cpu": 2**26, "cuda": 2**30}  # of one tensor in an answer


class ChannelAttention(nn.Module):
    """Weights between 0 and 1 for every number of a word's vector: Aᵀ = σ(F₂ ReLU(F₁ V'ᵀ)), eq. 5."""

    def __init__(self, channels: int, reduction: int):
        super().__init__()
        self.squeeze = nn.Linear(channels, max(1, channels // reduction), bias=False)
        self.excite = nn.Linear(max(1, channels // reduction), channels, bias=False)

    def weights(self, words: Tensor) -> Tensor:
        return self.excite(relu(self.squeeze(words))).sigmoid()

    def forward(self, words: Tensor) -> Tensor:
        """M = V' ∘ A"""
        return words * self.weights(words)


class NoAttention(nn.Identity):
    """M = V': the ablation."""

    def weights(self, words: Tensor) -> Tensor:
        return torch.ones_like(words)


def build_channel_attention(channels: int, reduction: int) -> ChannelAttention | NoAttention:
    return ChannelAttention(channels, reduction) if reduction else NoAttention()


class BagFeatures(nn.Module):
    """F of Rank-AE: word vectors times what X has for the word, channel attention, their average, one layer."""

    def __init__(
        self,
        n_features: int,
        channels: int,
        reduction: int,
        averages: bool,
        hidden: int,
        word_dropout: float = 0.0,
        dropout: float = 0.0,
        sparse: bool = False,
    ):
        super().__init__()
        self.embedding = nn.Embedding(n_features, channels, sparse=sparse)
        nn.init.uniform_(self.embedding.weight, -1, 1)
        self.attention = build_channel_attention(channels, reduction)
        self.output = nn.Linear(channels, hidden)
        self.averages, self.word_dropout, self.dropout = averages, word_dropout, dropout

    def compute_contributions(self, bag: BagBatch) -> Tensor:
        """What each word adds to the average, or to the sum."""
        values = dropout(bag.values, self.word_dropout, self.training)  # of whole words
        rescaled = self.attention(self.embedding(bag.features) * values[:, None])
        return rescaled / bag.counts[bag.rows] if self.averages else rescaled

    def pool_features(self, bag: BagBatch) -> Tensor:
        parts = self.compute_contributions(bag)
        return parts.new_zeros(bag.n_docs, parts.shape[1]).index_add(0, bag.rows, parts)

    def project_pooled(self, pooled: Tensor) -> Tensor:
        return self.output(dropout(pooled, self.dropout, self.training))

    def forward(self, bag: BagBatch) -> Tensor:
        return self.project_pooled(self.pool_features(bag))


class SequenceFeatures(nn.Module):
    """F of Rank-AE on words in their order: a bidirectional LSTM's states in place of the weighted word vectors."""

    def __init__(
        self,
        n_words: int,
        dimension: int,
        channels: int,
        reduction: int,
        averages: bool,
        hidden: int,
        word_dropout: float = 0.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.encoder = RecurrentEncoder(n_words, dimension, channels // 2, word_dropout, 0.0)
        self.attention = build_channel_attention(channels, reduction)
        self.output = nn.Linear(channels, hidden)
        self.averages, self.dropout = averages, dropout

    def forward(self, batch: TokenBatch) -> Tensor:
        rescaled = self.attention(self.encoder(batch)).float()  # zero beyond the end of a document, as the states are
        pooled = rescaled.sum(1)
        if self.averages:
            pooled = pooled / batch.make_mask().sum(1, keepdim=True)
        return self.output(dropout(pooled, self.dropout, self.training))

    def attribute_words(self, batch: TokenBatch) -> Tensor:
        """(longest,) the sum of the channel attention of each word of one document: what the paper shows. It is about
        as large for all words; less the smallest, so that they differ."""
        weights = self.attention.weights(self.encoder(batch))[0, : batch.max_length].sum(-1)
        return weights - weights.min()


class FullyConnectedFeatures(nn.Module):
    """F of C2AE: fully connected layers on the features."""

    def __init__(self, n_features: int, layer: int, hidden: int, dropout: float = 0.0, sparse: bool = False):
        super().__init__()
        self.rows = build_sparse_input_layer(n_features, layer, sparse)
        self.bias = nn.Parameter(torch.zeros(layer))
        self.further = nn.Linear(layer, layer)
        self.output = nn.Linear(layer, hidden)
        self.dropout = dropout

    def compute_contributions(self, bag: BagBatch) -> Tensor:
        """What each feature adds to the first layer."""
        return self.rows(bag.features) * bag.values[:, None]

    def pool_features(self, bag: BagBatch) -> Tensor:
        weight, sparse = self.rows.weight, self.rows.sparse
        values = bag.values.to(weight.dtype)
        return embedding_bag(bag.features, weight, bag.offsets, mode="sum", sparse=sparse, per_sample_weights=values)

    def project_pooled(self, pooled: Tensor) -> Tensor:
        inner = leaky_relu(pooled + self.bias, LEAKY_RELU_SLOPE)
        inner = leaky_relu(self.further(dropout(inner, self.dropout, self.training)), LEAKY_RELU_SLOPE)
        return self.output(dropout(inner, self.dropout, self.training))

    def forward(self, bag: BagBatch) -> Tensor:
        return self.project_pooled(self.pool_features(bag))


def build_sparse_input_layer(n: int, width: int, sparse: bool) -> nn.Embedding:
    """The weights of a fully connected layer on sparse inputs, whose rows are to be added up."""
    rows = nn.Embedding(n, width, sparse=sparse)
    nn.init.xavier_uniform_(rows.weight)
    return rows


class HiddenActivation(nn.Module):
    """What follows the first layer of encoder and decoder: in Rank-AE batch normalisation, if it is wanted, and ReLU,
    in C2AE a leaky ReLU."""

    def __init__(self, width: int, has_batch_norm: bool, leak: float = 0.0):
        super().__init__()
        self.norm = BatchNorm(width) if has_batch_norm else None
        self.leak = leak

    def forward(self, x: Tensor, n: int | None = None) -> Tensor:
        return leaky_relu(x if self.norm is None else self.norm(x, n), self.leak)


class LabelEncoder(nn.Module):
    """E, two fully connected layers: labels → layer → hidden. The first is a sum of the rows of a document's labels."""

    def __init__(self, n_labels: int, layer: int, hidden: int, inner: HiddenActivation, sparse: bool = False):
        super().__init__()
        self.rows = build_sparse_input_layer(n_labels, layer, sparse)
        self.bias = nn.Parameter(torch.zeros(layer))
        self.inner = inner
        self.output = nn.Linear(layer, hidden)

    def forward(self, rows: Tensor, labels: Tensor, n_docs: int) -> Tensor:
        """rows: the document of each label, ascending."""
        starts = torch.searchsorted(rows, torch.arange(n_docs, device=rows.device))
        summed = embedding_bag(labels, self.rows.weight, starts, mode="sum", sparse=self.rows.sparse)
        return self.output(self.inner(summed + self.bias))


class Decoder(nn.Module):
    """D, two fully connected layers: hidden → layer → labels."""

    def __init__(self, n_labels: int, layer: int, hidden: int, inner: HiddenActivation):
        super().__init__()
        self.first = nn.Linear(hidden, layer)
        self.inner = inner
        self.output = nn.Linear(layer, n_labels)

    def apply_hidden_layer(self, hidden: Tensor, n: int | None = None) -> Tensor:
        return self.inner(self.first(hidden), n)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(self.apply_hidden_layer(hidden))


class Predictor(LabelNetwork):
    """D(F(x)): logits of labels. `width` is how many numbers F has for each word, or feature."""

    def __init__(self, features: BagFeatures | SequenceFeatures | FullyConnectedFeatures, decoder: Decoder, width: int):
        super().__init__()
        self.features, self.decoder, self.width = features, decoder, width
        self.n_labels = decoder.output.out_features

    def batch_size(self, loader: Any) -> int:
        most = get_device_limit(MAX_TENSOR_ELEMENTS, get_network_device(self)) // max(
            self.n_labels, loader.max_length * self.width
        )
        return max(1, min(most, MAX_BATCH_DOCUMENTS))

    def forward(self, batch: Any) -> Tensor:
        return self.decoder(self.features(batch))


@dataclass(frozen=True)
class Objective:
    """What is minimised, eq. 1: L_h(x_h, y_h) + λ L_ae(y, D(y_h)), each with its weight; and, where predictions are to
    be trained as well, L(y, D(x_h))."""

    distance: Callable[[Tensor, Tensor], Tensor]  # L_h
    distance_weight: float
    reconstruction: Loss  # L_ae
    balance: float  # λ
    prediction: Loss
    prediction_weight: float = 0.0
    dropout: float = 0.0  # of D's inner layer on the way of x_h alone: on that of y_h it kept the ranking from learning

    @property
    def has_encoder_loss(self) -> bool:
        return self.distance_weight > 0 or self.balance > 0


class Autoencoder(nn.Module):
    """F, E and D while they are trained together. A forward pass gives the loss."""

    def __init__(self, predictor: Predictor, encoder: LabelEncoder, objective: Objective):
        super().__init__()
        self.predictor, self.encoder, self.objective = predictor, encoder, objective
        encoder.requires_grad_(objective.has_encoder_loss)

    def forward(self, batch: Any, rows: Tensor, labels: Tensor) -> Tensor:
        """rows and labels: those of the batch's documents, in the order of the documents."""
        aim, decoder, n_docs = self.objective, self.predictor.decoder, batch.n_docs
        x_h, loss = self.predictor.features(batch), torch.zeros((), device=labels.device)
        # into the decoder: documents first, which batch normalisation is to remember
        ways = [(x_h, aim.prediction_weight, aim.prediction, aim.dropout)] if aim.prediction_weight else []
        if aim.has_encoder_loss:
            y_h = self.encoder(rows, labels, n_docs)
            with torch.autocast(labels.device.type, enabled=False):  # which would multiply in half precision here, too
                loss = loss + aim.distance_weight * aim.distance(x_h.float(), y_h.float())
            ways += [(y_h, aim.balance, aim.reconstruction, 0.0)] if aim.balance else []
        if ways:
            inner = decoder.apply_hidden_layer(torch.cat([hidden for hidden, *_ in ways]), n_docs)
            positives = PositiveLabels.from_pairs(rows, labels, n_docs)
            for part, (_, weight, kind, share) in zip(inner.split(n_docs), ways, strict=True):
                kept = dropout(part, share, self.training)
                loss = loss + weight * compute_output_loss(
                    kind, kept, decoder.output.weight, decoder.output.bias, positives
                )
        return loss

"""Networks of Rank-AE and C2AE: feature network F, label encoder E and decoder D."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding_bag, leaky_relu, relu

from xmtc.nn.batches import BagBatch, TokenBatch
from xmtc.nn.devices import get_device_limit, get_network_device
from xmtc.nn.layers import BatchNorm
from xmtc.nn.lstm import RecurrentEncoder
from xmtc.nn.network import LabelNetwork
from xmtc.nn.output_losses import Loss, PositiveLabels, compute_output_loss

LEAKY_RELU_SLOPE = 0.1
MAX_BATCH_DOCUMENTS = 512  # batch size of predictions
MAX_TENSOR_ELEMENTS = {"cpu": 2**26, "cuda": 2**30}  # of one tensor in predictions


class ChannelAttention(nn.Module):
    """Channel attention: a weight in (0, 1) for every component of a word vector, Aᵀ = σ(F₂ ReLU(F₁ V'ᵀ)) (eq. 5)."""

    def __init__(self, channels: int, reduction: int):
        super().__init__()
        self.squeeze = nn.Linear(channels, max(1, channels // reduction), bias=False)  # F₁
        self.excite = nn.Linear(max(1, channels // reduction), channels, bias=False)  # F₂

    def weights(self, words: Tensor) -> Tensor:
        """Return A."""
        return self.excite(relu(self.squeeze(words))).sigmoid()

    def forward(self, words: Tensor) -> Tensor:
        """Return M = V' ∘ A."""
        return words * self.weights(words)


class NoAttention(nn.Identity):
    """Ablation without channel attention: M = V'."""

    def weights(self, words: Tensor) -> Tensor:
        return torch.ones_like(words)


def build_channel_attention(channels: int, reduction: int) -> ChannelAttention | NoAttention:
    return ChannelAttention(channels, reduction) if reduction else NoAttention()


class BagFeatures(nn.Module):
    """F of Rank-AE: word vectors weighted by X, channel attention, mean or sum over words, one linear layer."""

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
        """Return each word's contribution to the pooled vector."""
        values = dropout(bag.values, self.word_dropout, self.training)  # drops whole words
        rescaled = self.attention(self.embedding(bag.features) * values[:, None])
        return rescaled / bag.counts[bag.rows] if self.averages else rescaled

    def pool_features(self, bag: BagBatch) -> Tensor:
        contributions = self.compute_contributions(bag)
        return contributions.new_zeros(bag.n_docs, contributions.shape[1]).index_add(0, bag.rows, contributions)

    def project_pooled(self, pooled: Tensor) -> Tensor:
        return self.output(dropout(pooled, self.dropout, self.training))

    def forward(self, bag: BagBatch) -> Tensor:
        return self.project_pooled(self.pool_features(bag))


class SequenceFeatures(nn.Module):
    """F of Rank-AE for word sequences: states of a bidirectional LSTM replace the weighted word vectors."""

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
        rescaled = self.attention(self.encoder(batch)).float()  # zero at padding, as the states are
        pooled = rescaled.sum(1)
        if self.averages:
            pooled = pooled / batch.make_mask().sum(1, keepdim=True)
        return self.output(dropout(pooled, self.dropout, self.training))

    def attribute_words(self, batch: TokenBatch) -> Tensor:
        """Return the summed channel attention of each word of one document, as shown in the paper (Fig. 5).

        The sums of all words are similar; the smallest is subtracted to show their differences.
        """
        weights = self.attention.weights(self.encoder(batch))[0, : batch.max_length].sum(-1)
        return weights - weights.min()


class FullyConnectedFeatures(nn.Module):
    """F of C2AE: fully connected layers on sparse features."""

    def __init__(self, n_features: int, layer: int, hidden: int, dropout: float = 0.0, sparse: bool = False):
        super().__init__()
        self.rows = build_sparse_input_layer(n_features, layer, sparse)
        self.bias = nn.Parameter(torch.zeros(layer))
        self.further = nn.Linear(layer, layer)
        self.output = nn.Linear(layer, hidden)
        self.dropout = dropout

    def compute_contributions(self, bag: BagBatch) -> Tensor:
        """Return each feature's contribution to the first layer."""
        return self.rows(bag.features) * bag.values[:, None]

    def pool_features(self, bag: BagBatch) -> Tensor:
        weight, sparse = self.rows.weight, self.rows.sparse
        values = bag.values.to(weight.dtype)
        return embedding_bag(bag.features, weight, bag.offsets, mode="sum", sparse=sparse, per_sample_weights=values)

    def project_pooled(self, pooled: Tensor) -> Tensor:
        hidden = leaky_relu(pooled + self.bias, LEAKY_RELU_SLOPE)
        hidden = leaky_relu(self.further(dropout(hidden, self.dropout, self.training)), LEAKY_RELU_SLOPE)
        return self.output(dropout(hidden, self.dropout, self.training))

    def forward(self, bag: BagBatch) -> Tensor:
        return self.project_pooled(self.pool_features(bag))


def build_sparse_input_layer(n: int, width: int, sparse: bool) -> nn.Embedding:
    """Return the weights of a fully connected layer on sparse inputs as an embedding."""
    rows = nn.Embedding(n, width, sparse=sparse)
    nn.init.xavier_uniform_(rows.weight)
    return rows


class HiddenActivation(nn.Module):
    """Activation after the first layer of E and D: optional batch normalisation and ReLU, or leaky ReLU (C2AE)."""

    def __init__(self, width: int, has_batch_norm: bool, leak: float = 0.0):
        super().__init__()
        self.norm = BatchNorm(width) if has_batch_norm else None
        self.leak = leak

    def forward(self, x: Tensor, n: int | None = None) -> Tensor:
        return leaky_relu(x if self.norm is None else self.norm(x, n), self.leak)


class LabelEncoder(nn.Module):
    """E: two fully connected layers, labels → layer → hidden; the first sums the rows of a document's labels."""

    def __init__(self, n_labels: int, layer: int, hidden: int, inner: HiddenActivation, sparse: bool = False):
        super().__init__()
        self.rows = build_sparse_input_layer(n_labels, layer, sparse)
        self.bias = nn.Parameter(torch.zeros(layer))
        self.inner = inner
        self.output = nn.Linear(layer, hidden)

    def forward(self, rows: Tensor, labels: Tensor, n_docs: int) -> Tensor:
        """Return E(y), shape (n_docs, hidden); `rows` is the document of each label, ascending."""
        starts = torch.searchsorted(rows, torch.arange(n_docs, device=rows.device))
        summed = embedding_bag(labels, self.rows.weight, starts, mode="sum", sparse=self.rows.sparse)
        return self.output(self.inner(summed + self.bias))


class Decoder(nn.Module):
    """D: two fully connected layers, hidden → layer → labels."""

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
    """D(F(x)), the logits of labels; `width` is the length of F's vector of a word or feature."""

    def __init__(self, features: BagFeatures | SequenceFeatures | FullyConnectedFeatures, decoder: Decoder, width: int):
        super().__init__()
        self.features, self.decoder, self.width = features, decoder, width
        self.n_labels = decoder.output.out_features

    def batch_size(self, loader: Any) -> int:
        elements_per_document = max(self.n_labels, loader.max_length * self.width)
        limit = get_device_limit(MAX_TENSOR_ELEMENTS, get_network_device(self)) // elements_per_document
        return max(1, min(limit, MAX_BATCH_DOCUMENTS))

    def forward(self, batch: Any) -> Tensor:
        return self.decoder(self.features(batch))


@dataclass(frozen=True)
class Objective:
    """Training objective L_h(x_h, y_h) + λ L_ae(y, D(y_h)) (eq. 1), plus an optional prediction loss L(y, D(x_h))."""

    distance: Callable[[Tensor, Tensor], Tensor]  # L_h
    distance_weight: float
    reconstruction: Loss  # L_ae
    balance: float  # λ
    prediction: Loss  # L(y, D(x_h)), not in the paper
    prediction_weight: float = 0.0
    dropout: float = 0.0  # in D, for x_h only: for y_h it prevents the ranking loss from learning

    @property
    def has_encoder_loss(self) -> bool:
        return self.distance_weight > 0 or self.balance > 0


class Autoencoder(nn.Module):
    """F, E and D in training; the forward pass returns the loss."""

    def __init__(self, predictor: Predictor, encoder: LabelEncoder, objective: Objective):
        super().__init__()
        self.predictor, self.encoder, self.objective = predictor, encoder, objective
        encoder.requires_grad_(objective.has_encoder_loss)

    def forward(self, batch: Any, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of the batch; (rows, labels) are its positive pairs in document order."""
        objective, decoder, n_docs = self.objective, self.predictor.decoder, batch.n_docs
        x_h, loss = self.predictor.features(batch), torch.zeros((), device=labels.device)
        # Inputs of D, with weight, loss and dropout. x_h is first: batch normalisation keeps statistics of the first.
        inputs: list[tuple[Tensor, float, Loss, float]] = []
        if objective.prediction_weight:
            inputs.append((x_h, objective.prediction_weight, objective.prediction, objective.dropout))
        if objective.has_encoder_loss:
            y_h = self.encoder(rows, labels, n_docs)
            with torch.autocast(labels.device.type, enabled=False):  # the distance needs full precision
                loss = loss + objective.distance_weight * objective.distance(x_h.float(), y_h.float())
            if objective.balance:
                inputs.append((y_h, objective.balance, objective.reconstruction, 0.0))
        if inputs:
            hidden = decoder.apply_hidden_layer(torch.cat([code for code, *_ in inputs]), n_docs)
            positives = PositiveLabels.from_pairs(rows, labels, n_docs)
            weight, bias = decoder.output.weight, decoder.output.bias
            for part, (_, loss_weight, output_loss, rate) in zip(hidden.split(n_docs), inputs, strict=True):
                part = dropout(part, rate, self.training)
                loss = loss + loss_weight * compute_output_loss(output_loss, part, weight, bias, positives)
        return loss

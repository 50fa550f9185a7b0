"""Base network of XML-CNN and Bow-CNN: pooled text regions and a flat output layer."""

from __future__ import annotations

from abc import abstractmethod

import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import dropout

from xmtc.nn.batches import TokenBatch, TokenLoader
from xmtc.nn.devices import get_device_limit, get_network_device, mixed_precision
from xmtc.nn.label_clusters import compute_label_log_odds
from xmtc.nn.layers import BatchNorm
from xmtc.nn.network import LabelNetwork
from xmtc.nn.output_losses import CrossEntropyLoss, PositiveLabels, compute_output_loss

MAX_TENSOR_ELEMENTS = {"cpu": 2**25, "cuda": 2**30}  # of one tensor in predictions
POOLINGS = MAX, MEAN = "max", "mean"
MAX_UNSCALED_WIDTH = 512  # wider normalised inputs of the output layer are scaled down in proportion


class ConvolutionalNetwork(LabelNetwork):
    """Words → regions → pooled chunks → output layer; a subclass defines `embedding` and `pool_features`."""

    embedding: nn.Embedding
    n_maps: int  # features of a region

    def __init__(self, width: int, n_labels: int, has_output_norm: bool, dropout: float):
        super().__init__()
        self.n_labels, self.output, self.dropout = n_labels, nn.Linear(width, n_labels), dropout
        self.output_norm = BatchNorm(width) if has_output_norm else None

    @abstractmethod
    def pool_features(self, words: Tensor, batch: TokenBatch) -> Tensor:
        """Return text features (n_docs, width) from the vectors (n_tokens, d) of the batch's words."""

    def encode(self, words: Tensor, batch: TokenBatch) -> Tensor:
        """Return the input of the output layer, shape (n_docs, width).

        After a ReLU, all features are positive and similar in all texts, so a step of Adam moves a label's logit for
        every text at once; rare labels suffer most. Normalisation prevents this. Adam moves every weight by the
        learning rate, so logits move more the wider the input is; wide inputs are scaled down.
        """
        pooled = self.pool_features(words, batch)
        if self.output_norm is not None:
            pooled = self.output_norm(pooled.float())  # bf16 is too imprecise for means
            pooled = pooled * min(1.0, MAX_UNSCALED_WIDTH / pooled.shape[1])
        return dropout(pooled, self.dropout, self.training)

    def embed_words(self, batch: TokenBatch) -> Tensor:
        """Return the vectors of the batch's words, shape (n_tokens, d)."""
        return self.embedding(batch.ids)

    def forward(self, batch: TokenBatch) -> Tensor:
        return self.output(self.encode(self.embed_words(batch), batch))

    def batch_size(self, loader: TokenLoader) -> int:
        elements_per_document = max(self.n_labels, loader.max_length * self.n_maps)
        limit = get_device_limit(MAX_TENSOR_ELEMENTS, get_network_device(self)) // elements_per_document
        return max(1, min(limit, super().batch_size(loader)))

    def predict_top_k(self, batch: TokenBatch, k: int) -> tuple[Tensor, Tensor]:
        with mixed_precision(batch.ids.device):
            hidden = self.encode(self.embed_words(batch), batch)
        top = self.output(hidden.float()).topk(min(k, self.n_labels))  # bf16 is too imprecise for ranking
        return top.indices, top.values.sigmoid()

    @torch.no_grad()
    def initialise_biases(self, Y: csr_array) -> None:
        """Set the output biases so that the untrained network predicts label frequencies."""
        self.output.bias.copy_(compute_label_log_odds(Y))


class NetworkWithLoss(nn.Module):
    """Network in training; the forward pass returns the binary cross-entropy, summed over labels."""

    def __init__(self, network: ConvolutionalNetwork):
        super().__init__()
        self.network = network

    def forward(self, batch: TokenBatch, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of the batch; (rows, labels) are its positive pairs in document order."""
        hidden, output = self.network.encode(self.network.embed_words(batch), batch), self.network.output
        positives = PositiveLabels.from_pairs(rows, labels, batch.n_docs)
        return compute_output_loss(CrossEntropyLoss(), hidden, output.weight, output.bias, positives)


def compute_chunk_offsets(lengths: Tensor, n_chunks: int) -> Tensor:
    """Return the chunk boundaries of texts with these numbers of regions, shape (n_docs, n_chunks + 1).

    Chunks are shares of each text's own length, so a prediction does not depend on the other texts of a batch.
    """
    steps = torch.arange(n_chunks + 1, device=lengths.device)
    return -(-steps * lengths[:, None] // n_chunks)


def max_pool_chunks(regions: Tensor, lengths: Tensor, n_chunks: int) -> Tensor:
    """Return the maximum of each map in each chunk, shape (n_docs, n_maps, n_chunks).

    `regions` has shape (n_docs, n_maps, width). The maximum of an empty chunk is 0.
    """
    offsets = compute_chunk_offsets(lengths, n_chunks)
    begin, end = offsets[:, :-1], offsets[:, 1:]
    with torch.no_grad():
        max_chunk = -(-regions.shape[2] // n_chunks) + 1
        positions = begin[..., None] + torch.arange(max_chunk, device=lengths.device)
        positions = positions.minimum(end[..., None] - 1).clamp(min=0)  # repetitions do not change the maximum
        n_docs, n_maps, _ = regions.shape
        chunks = regions.gather(2, positions.view(n_docs, 1, -1).expand(-1, n_maps, -1))
        chunks = chunks.view(n_docs, n_maps, n_chunks, -1)
        argmax = positions[:, None].expand(-1, n_maps, -1, -1).gather(3, chunks.argmax(3, keepdim=True))[..., 0]
    return regions.gather(2, argmax).masked_fill((begin == end)[:, None], 0.0)


def mean_pool_chunks(regions: Tensor, lengths: Tensor, n_chunks: int) -> Tensor:
    """Return the mean of each map in each chunk, shape (n_docs, n_chunks, n_maps).

    `regions` has shape (n_docs, width, n_maps).
    """
    offsets = compute_chunk_offsets(lengths, n_chunks)
    begin, end = offsets[:, :-1, None], offsets[:, 1:, None]
    position = torch.arange(regions.shape[1], device=lengths.device)
    is_inside = ((position >= begin) & (position < end)).to(regions.dtype)
    return (is_inside / (end - begin).clamp(min=1)).to(regions.dtype) @ regions

"""Network of XR-Transformer: an encoder with one linear classifier per node of a level of the label tree."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor, nn
from torch.nn.functional import normalize

from xmtc.nn.batches import TokenBatch
from xmtc.nn.devices import get_device_limit, get_network_device
from xmtc.nn.network import LabelNetwork
from xmtc.nn.text_encoder import TextEncoder

MAX_BATCH_DOCUMENTS = {"cpu": 32, "cuda": 256}  # batch size of predictions
MAX_CANDIDATE_VALUES = {"cpu": 2**26, "cuda": 2**30}  # weights of the candidates of a batch of predictions
INITIAL_LENGTH, INITIAL_BIAS = 4.0, -1.0  # of a node's weights, so that margins of other nodes are about -1


class LevelNetwork(LabelNetwork):
    """Encoder and the nodes of one level; the forward pass returns the margins of all nodes or of candidates."""

    def __init__(self, encoder: TextEncoder, centroids: np.ndarray):
        super().__init__()
        self.encoder, self.n_labels = encoder, len(centroids)
        device = get_network_device(encoder)
        self.head = nn.Embedding.from_pretrained(torch.from_numpy(centroids).to(device), freeze=False)
        self.bias = nn.Parameter(torch.full((self.n_labels,), INITIAL_BIAS, device=device))

    def forward(self, batch: TokenBatch, candidates: Tensor | None = None) -> Tensor:
        ids, mask = (
            part[:, : self.encoder.max_length] for part in (batch.pad_ids(self.encoder.padding), batch.make_mask())
        )
        vectors = normalize(self.encoder(ids.contiguous(), mask.contiguous()))
        if candidates is None:
            return vectors @ self.head.weight.T + self.bias
        return torch.einsum("nkd,nd->nk", self.head(candidates), vectors) + self.bias[candidates]

    def batch_size(self, loader: object, n_candidates: int = 0) -> int:
        device = get_network_device(self)
        limit = get_device_limit(MAX_CANDIDATE_VALUES, device) // max(1, n_candidates * self.encoder.width)
        return max(1, min(limit, get_device_limit(MAX_BATCH_DOCUMENTS, device)))


def compute_initial_weights(vectors: np.ndarray, Y: csr_array) -> np.ndarray:
    """Return the weights with which the nodes of a level start: the directions from the mean of all documents' vectors
    to the mean of each node's, shape (n_nodes, d)."""
    counts = np.maximum(np.bincount(Y.indices, minlength=Y.shape[1]), 1)
    means = (diags_array((1 / counts).astype(np.float32)) @ Y.T) @ vectors
    directions = means - vectors.mean(axis=0)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    return (INITIAL_LENGTH * directions / np.maximum(lengths, 1e-6)).astype(np.float32)


def squared_hinge(margins: Tensor, targets: Tensor, mask: Tensor | None, loss_reduction: str) -> Tensor:
    """Return the squared hinge loss, the mean over documents of the sum over nodes."""
    losses = (1 - (2 * targets - 1) * margins.float()).clamp(min=0).square()
    return (losses if mask is None else losses * mask).sum() / len(margins)

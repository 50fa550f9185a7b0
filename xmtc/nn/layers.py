"""Layers that networks of several families share: batch normalisation, and attention of labels over token states."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm


class BatchNorm(nn.Module):
    """Batch normalisation that accepts batches of one document and several batches at once.

    A single document has no variance, so it is normalised with the running mean and variance. `forward(x, n)`
    normalises every n rows as a separate batch; only the first batch updates the running statistics.
    """

    def __init__(self, width: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor, n: int | None = None) -> Tensor:
        first, *others = x.split(n or max(1, len(x)))
        mean, variance = self.get_buffer("mean"), self.get_buffer("variance")
        uses_batch_statistics = self.training and len(first) > 1
        parts = [batch_norm(first, mean, variance, self.weight, self.bias, uses_batch_statistics)]
        running_mean, running_variance = (None, None) if uses_batch_statistics else (mean, variance)
        parts += [
            batch_norm(part, running_mean, running_variance, self.weight, self.bias, uses_batch_statistics)
            for part in others
        ]
        return torch.cat(parts) if others else parts[0]


def cast_for_autocast(states: Tensor) -> Tensor:
    """Return the states in the autocast precision, if autocast is enabled.

    Autocast itself would compute the softmax, and everything after it, in float32, which doubles the memory.
    """
    kind = states.device.type
    return states.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else states


def make_padding_bias(states: Tensor, mask: Tensor) -> Tensor:
    """Return attention scores (n_docs, width) that are 0 at tokens and −∞ at padding."""
    return states.new_zeros(mask.shape).masked_fill(~mask, -torch.inf)


def compute_label_attention(states: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
    """Return the attention α of all labels, shape (n_labels, n_docs, width).

    α is the softmax over the tokens of states · weightᵀ, with states (n_docs, width, d) and weight (n_labels, d). All
    labels and documents are computed in one matrix product.
    """
    bias = make_padding_bias(states, mask).view(-1)
    scores = torch.addmm(bias, weight.to(states.dtype), states.flatten(0, 1).T)
    return scores.view(-1, *mask.shape).softmax(-1)

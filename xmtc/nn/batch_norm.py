"""Batch normalisation, which every network takes from here."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm


class BatchNorm(nn.Module):
    """PyTorch's, but for a batch of one document, which has no spread: it takes the spread of those before. Every n
    rows are a batch of their own, of which only the first is remembered for predictions."""

    def __init__(self, width: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor, n: int | None = None) -> Tensor:
        first, *others = x.split(n or max(1, len(x)))
        mean, variance, of_batch = (
            self.get_buffer("mean"),
            self.get_buffer("variance"),
            self.training and len(first) > 1,
        )
        parts = [batch_norm(first, mean, variance, self.weight, self.bias, of_batch)]
        seen = (None, None) if of_batch else (mean, variance)
        parts += [batch_norm(part, seen[0], seen[1], self.weight, self.bias, of_batch) for part in others]
        return torch.cat(parts) if others else parts[0]

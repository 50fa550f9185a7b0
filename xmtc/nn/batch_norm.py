"""Batch normalisation."""

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

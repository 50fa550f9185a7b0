"""MPNet with PyTorch's fused attention, which transformers has for most other encoders: its own holds the scores of all
pairs of subwords several times in each layer."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.mpnet.modeling_mpnet import MPNetSelfAttention

SIGNATURE = inspect.signature(MPNetSelfAttention.forward)  # not the same in all versions of transformers


class FusedSelfAttention(MPNetSelfAttention):
    """Computes the same, but for the attention of each word, which nobody asks for here."""

    def forward(self, *given: Any, **named: Any) -> tuple[Tensor]:
        said = SIGNATURE.bind(self, *given, **named).arguments
        states, biases = said["hidden_states"], (said.get("position_bias"), said.get("attention_mask"))
        shape = (*states.shape[:2], self.num_attention_heads, self.attention_head_size)
        q, k, v = (layer(states).view(shape).transpose(1, 2) for layer in (self.q, self.k, self.v))
        known = [bias.to(q.dtype) for bias in biases if bias is not None]
        dropped = self.dropout.p if self.training else 0.0
        found = scaled_dot_product_attention(q, k, v, sum(known) if known else None, dropped)
        return (self.o(found.transpose(1, 2).flatten(2)),)


def fuse_attention(model: nn.Module) -> int:
    """Have the layers of an MPNet compute so; how many there are."""
    layers = [module for module in model.modules() if type(module) is MPNetSelfAttention]
    for layer in layers:
        layer.__class__ = FusedSelfAttention
    return len(layers)

"""MPNet with PyTorch's fused attention.

transformers has no fused attention for MPNet: its own implementation stores the attention scores several times in each
layer, and the position bias for every document."""

from __future__ import annotations

import inspect
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet.modeling_mpnet import MPNetModel, MPNetSelfAttention

ATTENTION_SIGNATURE = inspect.signature(MPNetSelfAttention.forward)  # differs between versions of transformers


class FusedMPNet(MPNetModel):
    """MPNet that computes the attention bias (relative positions and padding) once for all layers.

    The weights of the relative positions are not trained: the gradients of these few hundred weights would take a
    quarter of the time of a step."""

    has_gradient_checkpointing = False  # recomputes states; not supported by transformers' MPNet

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> BaseModelOutput:
        states = self.embeddings(input_ids=input_ids, inputs_embeds=inputs_embeds)
        bias = self.compute_attention_bias(states, attention_mask)
        for layer in self.encoder.layer:
            if self.has_gradient_checkpointing and self.training:
                states = checkpoint(layer, states, position_bias=bias, use_reentrant=False)[0]
            else:
                states = layer(states, position_bias=bias)[0]
        return BaseModelOutput(last_hidden_state=cast(Any, states))

    @torch.no_grad()
    def compute_attention_bias(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the bias of the attention scores, shape (n_docs or 1, heads, length, length)."""
        positions = torch.arange(states.shape[1], device=states.device)
        buckets = self.encoder.relative_position_bucket(positions[None] - positions[:, None])
        bias = self.encoder.relative_attention_bias(buckets).permute(2, 0, 1)[None]
        if torch.is_autocast_enabled(states.device.type):
            bias = bias.to(torch.get_autocast_dtype(states.device.type))
        if attention_mask is None:
            return bias
        return bias.masked_fill((attention_mask == 0)[:, None, None], torch.finfo(bias.dtype).min)


class FusedSelfAttention(MPNetSelfAttention):
    """Self-attention of MPNet without the attention weights as an output."""

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor]:
        arguments = ATTENTION_SIGNATURE.bind(self, *args, **kwargs).arguments
        states, bias = arguments["hidden_states"], arguments["position_bias"]
        shape = (*states.shape[:2], self.num_attention_heads, self.attention_head_size)
        q, k, v = (layer(states).view(shape).transpose(1, 2) for layer in (self.q, self.k, self.v))
        dropout = self.dropout.p if self.training else 0.0
        context = scaled_dot_product_attention(q, k, v, bias, dropout)
        return (self.o(context.transpose(1, 2).flatten(2)),)


FUSED_CLASSES = {MPNetModel: FusedMPNet, MPNetSelfAttention: FusedSelfAttention}


def fuse_attention(model: nn.Module) -> int:
    """Replace the classes of an MPNet's modules with the fused ones; return the number of fused layers."""
    modules = [module for module in model.modules() if type(module) in FUSED_CLASSES]
    for module in modules:
        module.__class__ = FUSED_CLASSES[type(module)]
    return sum(isinstance(module, FusedSelfAttention) for module in modules)

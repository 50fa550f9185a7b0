"""MPNet with PyTorch's fused attention, which transformers has for most other encoders: its own holds the scores of all
pairs of subwords several times in each layer, and what is added to them for every document."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet.modeling_mpnet import MPNetModel, MPNetSelfAttention

ATTENTION_SIGNATURE = inspect.signature(MPNetSelfAttention.forward)  # not the same in all versions of transformers


class FusedMPNet(MPNetModel):
    """Adds up once what all layers add to their scores: for how far subwords stand apart, and for padding. The
    former stays as it was pretrained: gradients of all scores, for a few hundred weights, are a quarter of a step."""

    has_gradient_checkpointing = False  # computes states twice instead of keeping them, which transformers' own cannot

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> BaseModelOutput:
        states = self.embeddings(input_ids=input_ids, inputs_embeds=inputs_embeds)
        added = self.compute_attention_bias(states, attention_mask)
        for layer in self.encoder.layer:
            call = (
                partial(checkpoint, layer, use_reentrant=False)
                if self.has_gradient_checkpointing and self.training
                else layer
            )
            states = call(states, position_bias=added)[0]
        return BaseModelOutput(last_hidden_state=cast(Any, states))

    @torch.no_grad()
    def compute_attention_bias(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """(n_docs or 1, heads, length, length)"""
        positions = torch.arange(states.shape[1], device=states.device)
        apart = self.encoder.relative_position_bucket(positions[None] - positions[:, None])
        added = self.encoder.relative_attention_bias(apart).permute(2, 0, 1)[None]
        if torch.is_autocast_enabled(states.device.type):
            added = added.to(torch.get_autocast_dtype(states.device.type))
        if attention_mask is None:
            return added
        return added.masked_fill((attention_mask == 0)[:, None, None], torch.finfo(added.dtype).min)


class FusedSelfAttention(MPNetSelfAttention):
    """Computes the same, but for the attention of each word, which nobody asks for here."""

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor]:
        arguments = ATTENTION_SIGNATURE.bind(self, *args, **kwargs).arguments
        states, bias = arguments["hidden_states"], arguments["position_bias"]
        shape = (*states.shape[:2], self.num_attention_heads, self.attention_head_size)
        q, k, v = (layer(states).view(shape).transpose(1, 2) for layer in (self.q, self.k, self.v))
        dropped = self.dropout.p if self.training else 0.0
        found = scaled_dot_product_attention(q, k, v, bias, dropped)
        return (self.o(found.transpose(1, 2).flatten(2)),)


FUSED_CLASSES = {MPNetModel: FusedMPNet, MPNetSelfAttention: FusedSelfAttention}


def fuse_attention(model: nn.Module) -> int:
    """Have an MPNet compute so; how many of its layers do."""
    found = [module for module in model.modules() if type(module) in FUSED_CLASSES]
    for module in found:
        module.__class__ = FUSED_CLASSES[type(module)]
    return sum(isinstance(module, FusedSelfAttention) for module in found)

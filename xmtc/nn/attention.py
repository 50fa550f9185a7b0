"""Attention of labels over token states, shared by AttentionXML and the transformer's label-wise attention."""

from __future__ import annotations

import torch
from torch import Tensor


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

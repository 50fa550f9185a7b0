"""Pretrained encoder with pooling of its states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from xmtc.features.encoders.model_loader import FIRST_POOLING, LAST_POOLING, MEAN_POOLING, XLNET

CLS_SEGMENT = 2  # segment id of XLNet's [CLS]


class TextEncoder(nn.Module):
    """Encoder with pooling: state of the first subword, of the last (XLNet's [CLS]), their mean, or all states.

    All states are returned for label-wise attention. Documents are padded at the end; XLNet has relative positions, so
    this equals padding at the beginning.
    """

    def __init__(self, model: Any, pooling: str):
        super().__init__()
        self.model, self.pooling = model, pooling
        self.padding = model.config.pad_token_id or 0

    @property
    def width(self) -> int:
        return self.model.config.hidden_size

    @property
    def max_length(self) -> int | None:
        """Maximum number of subwords; None if unlimited."""
        tables = [m for name, m in self.model.named_modules() if name.rpartition(".")[2] == "position_embeddings"]
        if not tables or not isinstance(tables[0], nn.Embedding):
            return None
        unused = tables[0].padding_idx
        return tables[0].num_embeddings - (0 if unused is None else unused + 1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return document states (n_docs, width), or all states, of subword ids and mask (n_docs, length)."""
        return self.encode(mask, input_ids=ids)

    def mask_special_tokens(self, n: int) -> Tensor:
        """Return a mask of the special tokens among n subwords: XLNet's last two, otherwise the first and last."""
        special = torch.zeros(n, dtype=torch.bool)
        special[[-2, -1] if self.model.config.model_type == XLNET else [0, -1]] = True
        return special

    def embed_subwords(self, ids: Tensor) -> Tensor:
        """Return the input embeddings of subword ids."""
        return self.model.get_input_embeddings()(ids)

    def encode(self, mask: Tensor, **inputs: Tensor) -> Tensor:
        """Return the pooled states of subword ids (input_ids) or of their embeddings (inputs_embeds)."""
        rows, last = torch.arange(len(mask), device=mask.device), mask.sum(1) - 1
        if self.model.config.model_type == XLNET:
            segments = torch.zeros_like(mask, dtype=torch.long)
            segments[rows, last] = CLS_SEGMENT
            inputs["token_type_ids"] = segments
        states = self.model(attention_mask=mask.long(), **inputs).last_hidden_state
        if self.pooling == FIRST_POOLING:
            return states[:, 0]
        if self.pooling == LAST_POOLING:
            return states[rows, last]
        if self.pooling != MEAN_POOLING:
            return states
        weights = mask[..., None].to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1)

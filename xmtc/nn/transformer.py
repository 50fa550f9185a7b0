"""The network of APLC-XLNet: a pretrained encoder, a hidden layer, and labels in clusters."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from xmtc.nn.batches import Batch
from xmtc.nn.clusters import LabelClusters
from xmtc.nn.encoder import TextEncoder
from xmtc.nn.recordings import Recordings

AT_ONCE = 8  # points of integrated gradients


class ClusteredTransformer(nn.Module):
    """A forward pass gives the loss; `pooled`, `after` and the head give answers."""

    def __init__(self, encoder: TextEncoder, head: LabelClusters, dropout: float = 0.0):
        super().__init__()
        self.encoder, self.head, self.dropout = encoder, head, dropout
        self.hidden = nn.Linear(encoder.width, head.clusters.width)
        self.recordings: Recordings | None = None  # of the encoder's steps in training

    def pooled(self, batch: Batch) -> Tensor:
        """Section 3.1: one state for each document."""
        given = batch.ids(self.encoder.padding), batch.is_word()
        return self.recordings(*given) if self.recordings and self.training else self.encoder(*given)

    def after(self, pooled: Tensor) -> Tensor:
        """Section 3.2, as the authors have it: tanh and dropout."""
        return dropout(self.hidden(pooled).tanh(), self.dropout, self.training)

    def forward(self, batch: Batch, rows: Tensor, labels: Tensor, averages: bool) -> Tensor:
        return self.head(self.after(self.pooled(batch)), rows, labels, averages)

    def parts_of_logit(self, ids: Tensor, label: int, steps: int) -> Tensor:
        """(n,) what each subword of one document adds to a label's logit: how far its vector is from that of padding,
        times the gradients, averaged over `steps` points on the way from there (integrated gradients; with one step,
        input × gradient). Not from zeros: at vectors that short, layer normalisation makes gradients without bounds."""
        padding = self.encoder.vectors(torch.full_like(ids, self.encoder.padding)).detach()
        beyond = self.encoder.vectors(ids).detach() - padding
        total = torch.zeros_like(beyond)
        for shares in (torch.arange(1, steps + 1, device=ids.device) / steps).split(AT_ONCE):
            with torch.enable_grad():
                given = (padding + shares[:, None, None] * beyond).requires_grad_()
                pooled = self.encoder.pooled(torch.ones_like(given[..., 0], dtype=torch.bool), inputs_embeds=given)
                (gradients,) = torch.autograd.grad(self.head.logit(self.after(pooled), label).sum(), given)
            total += gradients.sum(0)
        return (beyond * total).sum(-1) / steps

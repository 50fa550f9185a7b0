"""The network of APLC-XLNet: a pretrained encoder, a hidden layer, and labels in clusters."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from xmtc.encoders.loading import TextEncoder
from xmtc.methods.transformer.clusters import LabelClusters
from xmtc.methods.transformer.states import AnyBatch, StateBatch
from xmtc.nn.cuda_graphs import Recordings

AT_ONCE = 8  # points of integrated gradients


class ClusteredTransformer(nn.Module):
    """A forward pass gives the loss; `pooled`, `after` and the head give answers."""

    def __init__(self, encoder: TextEncoder, head: LabelClusters, dropout: float = 0.0):
        super().__init__()
        self.encoder, self.head, self.dropout = encoder, head, dropout
        self.hidden = nn.Linear(encoder.width, head.clusters.width)
        self.longest, self.padding = encoder.longest, encoder.padding  # what a batch has beyond is padding
        self.recordings: Recordings | None = None  # of the encoder's steps in training

    def pooled(self, batch: AnyBatch) -> Tensor:
        """Section 3.1: one state for each document."""
        if isinstance(batch, StateBatch):
            return batch.states
        compute = self.recordings if self.recordings and self.training else self.encoder
        return compute(*(whole[:, : self.longest].contiguous() for whole in (batch.ids(self.padding), batch.is_word())))

    def after(self, pooled: Tensor) -> Tensor:
        """Section 3.2, as the authors have it: tanh and dropout."""
        return dropout(self.hidden(pooled).tanh(), self.dropout, self.training)

    def forward(self, batch: AnyBatch, rows: Tensor, labels: Tensor) -> Tensor:
        """The loss, as the sum of its terms."""
        return self.head(self.after(self.pooled(batch)), rows, labels)

    def parts_of_logit(self, ids: Tensor, label: int, steps: int) -> Tensor:
        """(n,) what each subword of one document adds to a label's logit: how far its vector is from that of padding,
        times the gradients, averaged over `steps` points on the way from there (integrated gradients; with one step,
        input × gradient). Not from zeros: at vectors that short, layer normalisation makes gradients without bounds.
        Marks such as [CLS] stay what they are on the way."""
        without = torch.where(self.encoder.is_mark(len(ids)).to(ids.device), ids, self.encoder.padding)
        padding = self.encoder.vectors(without).detach()
        beyond = self.encoder.vectors(ids).detach() - padding
        total = torch.zeros_like(beyond)
        points = (torch.arange(steps) + 0.5) / steps if steps > 1 else torch.ones(1)
        for shares in points.to(ids.device).split(AT_ONCE):
            with torch.enable_grad():
                given = (padding + shares[:, None, None] * beyond).requires_grad_()
                pooled = self.encoder.pooled(torch.ones_like(given[..., 0], dtype=torch.bool), inputs_embeds=given)
                (gradients,) = torch.autograd.grad(self.head.logit(self.after(pooled), label).sum(), given)
            total += gradients.sum(0)
        return (beyond * total).sum(-1) / steps

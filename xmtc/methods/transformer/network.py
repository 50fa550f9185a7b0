"""The network of APLC-XLNet: a pretrained encoder, a hidden layer, and labels in clusters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from xmtc.features.encoders.loading import FIRST, LAST, MEAN, XLNET
from xmtc.methods.transformer.label_attention import LabelAttention, States
from xmtc.methods.transformer.states import AnyBatch, StateBatch
from xmtc.nn.cuda_graphs import CudaGraphs
from xmtc.nn.devices import mixed
from xmtc.nn.label_clusters import LabelClusters
from xmtc.nn.network import LabelNetwork, at_most, device_with

CLS_SEGMENT = 2  # the segment that XLNet's [CLS] is alone in
AT_ONCE = 8  # points of integrated gradients
MOST_DOCS = {"cpu": 32, "cuda": 256}  # read at a time
MOST_NUMBERS = {"cpu": 2**26, "cuda": 2**30}  # scores of a cluster in an answer


class TextEncoder(nn.Module):
    """The states of an encoder, pooled: those of the first subword, of the last, where XLNet has its [CLS], or their
    mean; or all of them, where each label attends to them by itself. Documents are padded at their end; for XLNet,
    which knows only how far subwords stand apart, that is the same as at their beginning."""

    def __init__(self, model: Any, pooling: str):
        super().__init__()
        self.model, self.pooling = model, pooling
        self.padding = model.config.pad_token_id or 0

    @property
    def width(self) -> int:
        return self.model.config.hidden_size

    @property
    def longest(self) -> int | None:
        """Subwords that it has positions for; None where there is no limit."""
        tables = [m for name, m in self.model.named_modules() if name.rpartition(".")[2] == "position_embeddings"]
        if not tables or not isinstance(tables[0], nn.Embedding):
            return None
        unused = tables[0].padding_idx
        return tables[0].num_embeddings - (0 if unused is None else unused + 1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(n_docs, width), or all states, of subwords (n_docs, length) and their mask."""
        return self.pooled(mask, input_ids=ids)

    def is_special(self, n: int) -> Tensor:
        """(n,) which of a text's subwords are special tokens: the last two of XLNet, else the first and last."""
        special = torch.zeros(n, dtype=torch.bool)
        special[[-2, -1] if self.model.config.model_type == XLNET else [0, -1]] = True
        return special

    def vectors(self, ids: Tensor) -> Tensor:
        """Where subwords start from in the encoder."""
        return self.model.get_input_embeddings()(ids)

    def pooled(self, mask: Tensor, **inputs: Tensor) -> Tensor:
        """Of subwords (input_ids), or of their vectors (inputs_embeds)."""
        rows, last = torch.arange(len(mask), device=mask.device), mask.sum(1) - 1
        if self.model.config.model_type == XLNET:
            segments = torch.zeros_like(mask, dtype=torch.long)
            segments[rows, last] = CLS_SEGMENT
            inputs["token_type_ids"] = segments
        states = self.model(attention_mask=mask.long(), **inputs).last_hidden_state
        if self.pooling == FIRST:
            return states[:, 0]
        if self.pooling == LAST:
            return states[rows, last]
        if self.pooling != MEAN:
            return states
        weights = mask[..., None].to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1)


class ClusteredTransformer(LabelNetwork):
    """A forward pass gives the loss; `best` gives answers. Labels are numbered by their frequency."""

    def __init__(self, encoder: TextEncoder, head: LabelClusters | LabelAttention, dropout: float = 0.0):
        super().__init__()
        self.encoder, self.head, self.dropout = encoder, head, dropout
        self.hidden = nn.Linear(encoder.width, head.clusters.width)
        self.longest, self.padding = encoder.longest, encoder.padding  # what a batch has beyond is padding
        self.n_labels = head.clusters.n_labels
        self.graphs: CudaGraphs | None = None  # of the encoder's steps in training

    def pooled(self, batch: AnyBatch) -> Tensor | States:
        """Section 3.1: one state for each document; or all of its states."""
        if isinstance(batch, StateBatch):
            return batch.states
        compute = self.graphs if self.graphs and self.training else self.encoder
        padded = batch.padded_ids(self.padding), batch.mask()
        ids, mask = (whole[:, : self.longest].contiguous() for whole in padded)
        return self.as_read(compute(ids, mask), mask)

    def as_read(self, states: Tensor, mask: Tensor) -> Tensor | States:
        """What the encoder says of documents, as the output layer reads it."""
        return States(states, mask) if isinstance(self.head, LabelAttention) else states

    def after(self, pooled: Tensor | States) -> Any:
        """Section 3.2, as the authors have it: tanh and dropout."""
        if isinstance(pooled, States):
            return States(self.after(pooled.states), pooled.mask)
        return dropout(self.hidden(pooled).tanh(), self.dropout, self.training)

    def forward(self, batch: AnyBatch, rows: Tensor, labels: Tensor) -> Tensor:
        """The loss, as the sum of its terms."""
        return self.head(self.after(self.pooled(batch)), rows, labels)

    def state(self, batch: AnyBatch) -> Any:
        """What is read of documents, in float32; the encoder computes in bf16 where there is a GPU for it."""
        with mixed(device_with(self)):
            pooled = self.pooled(batch)
        return States(pooled.states.float(), pooled.mask) if isinstance(pooled, States) else pooled.float()

    def batch_size(self, loader: Any) -> int:
        device, n_numbers = device_with(self), max(self.head.clusters.sizes)
        if isinstance(self.head, LabelAttention):
            n_numbers *= loader.longest
        return max(1, min(at_most(MOST_NUMBERS, device) // n_numbers, at_most(MOST_DOCS, device)))

    def best(self, batch: AnyBatch, k: int) -> tuple[Tensor, Tensor]:
        """The output layer computes in float32, or TF32."""
        return self.head.best(self.after(self.state(batch)), k)

    def parts_of_logit(self, ids: Tensor, label: int, steps: int) -> Tensor:
        """(n,) what each subword of one document adds to a label's logit: how far its vector is from that of padding,
        times the gradients, averaged over `steps` points on the way from there (integrated gradients; with one step,
        input × gradient). Not from zeros: at vectors that short, layer normalisation makes gradients without bounds.
        Special tokens such as [CLS] stay what they are on the way."""
        without = torch.where(self.encoder.is_special(len(ids)).to(ids.device), ids, self.encoder.padding)
        padding = self.encoder.vectors(without).detach()
        beyond = self.encoder.vectors(ids).detach() - padding
        total = torch.zeros_like(beyond)
        points = (torch.arange(steps) + 0.5) / steps if steps > 1 else torch.ones(1)
        for shares in points.to(ids.device).split(AT_ONCE):
            with torch.enable_grad():
                vectors = (padding + shares[:, None, None] * beyond).requires_grad_()
                mask = torch.ones_like(vectors[..., 0], dtype=torch.bool)
                pooled = self.as_read(self.encoder.pooled(mask, inputs_embeds=vectors), mask)
                (gradients,) = torch.autograd.grad(self.head.logit(self.after(pooled), label).sum(), vectors)
            total += gradients.sum(0)
        return (beyond * total).sum(-1) / steps

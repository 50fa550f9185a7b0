"""The network of APLC-XLNet: a pretrained encoder, a hidden layer, and labels in clusters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from xmtc.features.encoders.model_loader import FIRST_POOLING, LAST_POOLING, MEAN_POOLING, XLNET
from xmtc.methods.transformer.encoder_states import EncoderBatch, StateBatch
from xmtc.methods.transformer.label_attention import LabelWiseAttention, SubwordStates
from xmtc.nn.cuda_graphs import CudaGraphs
from xmtc.nn.devices import mixed_precision
from xmtc.nn.label_clusters import LabelClusters
from xmtc.nn.network import LabelNetwork, get_device_limit, get_network_device

CLS_SEGMENT = 2  # the segment that XLNet's [CLS] is alone in
GRADIENT_BATCH_POINTS = 8  # points of integrated gradients
MAX_BATCH_DOCUMENTS = {"cpu": 32, "cuda": 256}  # read at a time
MAX_CLUSTER_SCORES = {"cpu": 2**26, "cuda": 2**30}  # scores of a cluster in an answer


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
    def max_length(self) -> int | None:
        """Subwords that it has positions for; None where there is no limit."""
        tables = [m for name, m in self.model.named_modules() if name.rpartition(".")[2] == "position_embeddings"]
        if not tables or not isinstance(tables[0], nn.Embedding):
            return None
        unused = tables[0].padding_idx
        return tables[0].num_embeddings - (0 if unused is None else unused + 1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(n_docs, width), or all states, of subwords (n_docs, length) and their mask."""
        return self.encode(mask, input_ids=ids)

    def mask_special_tokens(self, n: int) -> Tensor:
        """(n,) which of a text's subwords are special tokens: the last two of XLNet, else the first and last."""
        special = torch.zeros(n, dtype=torch.bool)
        special[[-2, -1] if self.model.config.model_type == XLNET else [0, -1]] = True
        return special

    def embed_subwords(self, ids: Tensor) -> Tensor:
        """Where subwords start from in the encoder."""
        return self.model.get_input_embeddings()(ids)

    def encode(self, mask: Tensor, **inputs: Tensor) -> Tensor:
        """Of subwords (input_ids), or of their vectors (inputs_embeds)."""
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


class TransformerNetwork(LabelNetwork):
    """A forward pass gives the loss; `best` gives answers. Labels are numbered by their frequency."""

    def __init__(self, encoder: TextEncoder, head: LabelClusters | LabelWiseAttention, dropout: float = 0.0):
        super().__init__()
        self.encoder, self.head, self.dropout = encoder, head, dropout
        self.hidden = nn.Linear(encoder.width, head.clusters.width)
        self.max_length, self.padding = encoder.max_length, encoder.padding  # what a batch has beyond is padding
        self.n_labels = head.clusters.n_labels
        self.graphs: CudaGraphs | None = None  # of the encoder's steps in training

    def compute_document_states(self, batch: EncoderBatch) -> Tensor | SubwordStates:
        """Section 3.1: one state for each document; or all of its states."""
        if isinstance(batch, StateBatch):
            return batch.states
        compute = self.graphs if self.graphs and self.training else self.encoder
        padded = batch.pad_ids(self.padding), batch.make_mask()
        ids, mask = (whole[:, : self.max_length].contiguous() for whole in padded)
        return self.as_head_input(compute(ids, mask), mask)

    def as_head_input(self, states: Tensor, mask: Tensor) -> Tensor | SubwordStates:
        """What the encoder says of documents, as the output layer reads it."""
        return SubwordStates(states, mask) if isinstance(self.head, LabelWiseAttention) else states

    def apply_hidden_layer(self, pooled: Tensor | SubwordStates) -> Any:
        """Section 3.2, as the authors have it: tanh and dropout."""
        if isinstance(pooled, SubwordStates):
            return SubwordStates(self.apply_hidden_layer(pooled.states), pooled.mask)
        return dropout(self.hidden(pooled).tanh(), self.dropout, self.training)

    def forward(self, batch: EncoderBatch, rows: Tensor, labels: Tensor) -> Tensor:
        """The loss, as the sum of its terms."""
        return self.head(self.apply_hidden_layer(self.compute_document_states(batch)), rows, labels)

    def compute_float32_states(self, batch: EncoderBatch) -> Any:
        """What is read of documents, in float32; the encoder computes in bf16 where there is a GPU for it."""
        with mixed_precision(get_network_device(self)):
            pooled = self.compute_document_states(batch)
        return (
            SubwordStates(pooled.states.float(), pooled.mask) if isinstance(pooled, SubwordStates) else pooled.float()
        )

    def batch_size(self, loader: Any) -> int:
        device, n_numbers = get_network_device(self), max(self.head.clusters.sizes)
        if isinstance(self.head, LabelWiseAttention):
            n_numbers *= loader.max_length
        return max(
            1,
            min(
                get_device_limit(MAX_CLUSTER_SCORES, device) // n_numbers, get_device_limit(MAX_BATCH_DOCUMENTS, device)
            ),
        )

    def predict_top_k(self, batch: EncoderBatch, k: int) -> tuple[Tensor, Tensor]:
        """The output layer computes in float32, or TF32."""
        return self.head.predict_top_k(self.apply_hidden_layer(self.compute_float32_states(batch)), k)

    def compute_integrated_gradients(self, ids: Tensor, label: int, steps: int) -> Tensor:
        """(n,) what each subword of one document adds to a label's logit: how far its vector is from that of padding,
        times the gradients, averaged over `steps` points on the way from there (integrated gradients; with one step,
        input × gradient). Not from zeros: at vectors that short, layer normalisation makes gradients without bounds.
        Special tokens such as [CLS] stay what they are on the way."""
        without = torch.where(self.encoder.mask_special_tokens(len(ids)).to(ids.device), ids, self.encoder.padding)
        padding = self.encoder.embed_subwords(without).detach()
        beyond = self.encoder.embed_subwords(ids).detach() - padding
        total = torch.zeros_like(beyond)
        points = (torch.arange(steps) + 0.5) / steps if steps > 1 else torch.ones(1)
        for shares in points.to(ids.device).split(GRADIENT_BATCH_POINTS):
            with torch.enable_grad():
                vectors = (padding + shares[:, None, None] * beyond).requires_grad_()
                mask = torch.ones_like(vectors[..., 0], dtype=torch.bool)
                pooled = self.as_head_input(self.encoder.encode(mask, inputs_embeds=vectors), mask)
                (gradients,) = torch.autograd.grad(
                    self.head.compute_logit(self.apply_hidden_layer(pooled), label).sum(), vectors
                )
            total += gradients.sum(0)
        return (beyond * total).sum(-1) / steps

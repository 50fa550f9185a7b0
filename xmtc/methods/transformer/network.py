"""Network of APLC-XLNet: a pretrained encoder, a hidden layer and label clusters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from xmtc.methods.transformer.encoder_states import EncoderBatch, StateBatch
from xmtc.methods.transformer.label_attention import LabelWiseAttention, SubwordStates
from xmtc.nn.cuda_graphs import CudaGraphs
from xmtc.nn.devices import get_device_limit, get_network_device, mixed_precision
from xmtc.nn.label_clusters import LabelClusters
from xmtc.nn.network import LabelNetwork
from xmtc.nn.text_encoder import TextEncoder

GRADIENT_BATCH_POINTS = 8  # points of integrated gradients that are computed together
MAX_BATCH_DOCUMENTS = {"cpu": 32, "cuda": 256}  # batch size of predictions
MAX_CLUSTER_SCORES = {"cpu": 2**26, "cuda": 2**30}  # scores of a cluster in a batch of predictions


class TransformerNetwork(LabelNetwork):
    """Encoder, hidden layer and output layer; the forward pass returns the loss. Labels are numbered by frequency."""

    def __init__(self, encoder: TextEncoder, head: LabelClusters | LabelWiseAttention, dropout: float = 0.0):
        super().__init__()
        self.encoder, self.head, self.dropout = encoder, head, dropout
        self.hidden = nn.Linear(encoder.width, head.clusters.width)
        self.max_length, self.padding = encoder.max_length, encoder.padding
        self.n_labels = head.clusters.n_labels
        self.graphs: CudaGraphs | None = None  # of the encoder, in training

    def compute_document_states(self, batch: EncoderBatch) -> Tensor | SubwordStates:
        """Return the encoder states of documents: one per document (section 3.1), or all."""
        if isinstance(batch, StateBatch):
            return batch.states
        compute = self.graphs if self.graphs and self.training else self.encoder
        padded = batch.pad_ids(self.padding), batch.make_mask()
        ids, mask = (tensor[:, : self.max_length].contiguous() for tensor in padded)  # the rest is padding
        return self.as_head_input(compute(ids, mask), mask)

    def as_head_input(self, states: Tensor, mask: Tensor) -> Tensor | SubwordStates:
        """Return the states as the output layer expects them."""
        return SubwordStates(states, mask) if isinstance(self.head, LabelWiseAttention) else states

    def apply_hidden_layer(self, pooled: Tensor | SubwordStates) -> Any:
        """Apply the hidden layer (section 3.2), tanh and dropout as in the authors' code."""
        if isinstance(pooled, SubwordStates):
            return SubwordStates(self.apply_hidden_layer(pooled.states), pooled.mask)
        return dropout(self.hidden(pooled).tanh(), self.dropout, self.training)

    def forward(self, batch: EncoderBatch, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the loss as the sum of its terms."""
        return self.head(self.apply_hidden_layer(self.compute_document_states(batch)), rows, labels)

    def compute_float32_states(self, batch: EncoderBatch) -> Any:
        """Return the document states in float32; the encoder uses bf16 on GPUs that support it."""
        with mixed_precision(get_network_device(self)):
            pooled = self.compute_document_states(batch)
        if isinstance(pooled, SubwordStates):
            return SubwordStates(pooled.states.float(), pooled.mask)
        return pooled.float()

    def batch_size(self, loader: Any) -> int:
        device, scores_per_document = get_network_device(self), max(self.head.clusters.sizes)
        if isinstance(self.head, LabelWiseAttention):
            scores_per_document *= loader.max_length
        limit = get_device_limit(MAX_CLUSTER_SCORES, device) // scores_per_document
        return max(1, min(limit, get_device_limit(MAX_BATCH_DOCUMENTS, device)))

    def predict_top_k(self, batch: EncoderBatch, k: int) -> tuple[Tensor, Tensor]:
        """Return the k best labels and their probabilities; the output layer uses float32 or TF32."""
        return self.head.predict_top_k(self.apply_hidden_layer(self.compute_float32_states(batch)), k)

    def compute_integrated_gradients(self, ids: Tensor, label: int, steps: int) -> Tensor:
        """Return each subword's contribution to a label's logit for one document, shape (n,).

        Integrated gradients: the difference of the subword's embedding from that of padding times the gradient,
        averaged over `steps` points between the two; with one step, input × gradient. The baseline is padding,
        not zero, because layer normalisation has unbounded gradients at zero. Special tokens are not changed.
        """
        baseline_ids = torch.where(self.encoder.mask_special_tokens(len(ids)).to(ids.device), ids, self.encoder.padding)
        baseline = self.encoder.embed_subwords(baseline_ids).detach()
        difference = self.encoder.embed_subwords(ids).detach() - baseline
        total = torch.zeros_like(difference)
        points = (torch.arange(steps) + 0.5) / steps if steps > 1 else torch.ones(1)
        for shares in points.to(ids.device).split(GRADIENT_BATCH_POINTS):
            with torch.enable_grad():
                vectors = (baseline + shares[:, None, None] * difference).requires_grad_()
                mask = torch.ones_like(vectors[..., 0], dtype=torch.bool)
                pooled = self.as_head_input(self.encoder.encode(mask, inputs_embeds=vectors), mask)
                logit = self.head.compute_logit(self.apply_hidden_layer(pooled), label).sum()
                (gradients,) = torch.autograd.grad(logit, vectors)
            total += gradients.sum(0)
        return (difference * total).sum(-1) / steps

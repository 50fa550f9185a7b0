"""Networks of AttentionXML and XML-RNN: a bidirectional LSTM with label-wise attention or max pooling."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from xmtc.nn.batches import TokenBatch
from xmtc.nn.devices import get_device_limit, get_network_device, mixed_precision
from xmtc.nn.layers import cast_for_autocast, compute_label_attention, make_padding_bias
from xmtc.nn.lstm import RecurrentEncoder
from xmtc.nn.network import LabelNetwork

MAX_BATCH_DOCUMENTS = {"cpu": 64, "cuda": 512}  # batch size of predictions
MAX_TENSOR_ELEMENTS = {"cpu": 2**27, "cuda": 2**31}  # of one tensor in predictions

# Range of the initial attention weights, large enough that labels attend to different words from the start. The range
# of Xavier initialisation shrinks with the number of labels: all labels start with the plain average over words and
# need many epochs to separate.
ATTENTION_INIT_RANGE = 0.35


def init_xavier(head: nn.Module) -> None:
    """Initialise attentions and layers as in the authors' code (Glorot, Bengio 2010)."""
    for module in head.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.xavier_uniform_(module.weight)


class SharedLayers(nn.Module):
    """Fully connected layers and output layer that all labels share (eq. 5).

    The first layer W₁ is applied before the average over words, W₁ Σ αᵢ hᵢ = Σ αᵢ (W₁ hᵢ), because a document has fewer
    words than there are labels.
    """

    def __init__(self, width: int, sizes: tuple[int, ...]):
        super().__init__()
        self.first = nn.Linear(width, sizes[0])
        self.further = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.output = nn.Linear(sizes[-1], 1)

    def project(self, states: Tensor) -> Tensor:
        return linear(states, self.first.weight.to(states.dtype))

    def forward(self, projected: Tensor, own: Tensor | None = None) -> Tensor:
        """Return logits (n_docs, n_labels) of the averaged projected states (n_docs, n_labels, sizes[0]).

        `own` holds additional output weights of each label, the bias in the last column.
        """
        dtype = projected.dtype
        x = relu(projected + self.first.bias.to(dtype))
        for layer in self.further:
            assert isinstance(layer, nn.Linear)
            x = relu(linear(x, layer.weight.to(dtype), layer.bias.to(dtype)))
        # bf16 is too imprecise for ranking; training tolerates it.
        x = x if self.training else x.float()
        logits = (x @ self.output.weight[0].to(x.dtype)).float() + self.output.bias
        if own is None:
            return logits
        return logits + (x * own[..., :-1].to(x.dtype)).sum(-1).float() + own[..., -1]


class MultiLabelAttention(nn.Module):
    """Attention of each label over the states of a document (eq. 4), followed by the shared layers (eq. 5)."""

    def __init__(
        self, n_labels: int, width: int, sizes: tuple[int, ...], sparse: bool = False, own_output: bool = False
    ):
        super().__init__()
        self.n_labels, self.width = n_labels, max(width, *sizes)
        self.rows = nn.Embedding(n_labels, width, sparse=sparse)  # w_j, the attention weights of label j
        nn.init.uniform_(self.rows.weight, -ATTENTION_INIT_RANGE, ATTENTION_INIT_RANGE)
        self.layers = SharedLayers(width, sizes)
        # Output weights of each label, the bias in the last column, in addition to the shared output layer.
        self.own = nn.Embedding(n_labels, sizes[-1] + 1, sparse=sparse) if own_output else None
        if self.own is not None:
            nn.init.zeros_(self.own.weight)

    def forward(self, states: Tensor, mask: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Return logits of all labels, or of each document's candidates (n_docs, n_candidates)."""
        states = cast_for_autocast(states)
        with torch.autocast(states.device.type, enabled=False):
            average = self.attention(states, mask, candidates) @ self.layers.project(states)
            return self.layers(average, self.select_own_output(candidates))

    def select_own_output(self, candidates: Tensor | None) -> Tensor | None:
        """Return output weights (n_labels, size + 1), or of the candidates (n_docs, n_candidates, size + 1)."""
        if self.own is None:
            return None
        return self.own.weight if candidates is None else self.own(candidates)

    def attention(self, states: Tensor, mask: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Return the attention α, shape (n_docs, n_labels or n_candidates, width)."""
        if candidates is None:
            return compute_label_attention(states, mask, self.rows.weight).transpose(0, 1)
        rows, bias = self.rows(candidates).to(states.dtype), make_padding_bias(states, mask)
        return torch.baddbmm(bias[:, None], rows, states.transpose(1, 2)).softmax(-1)

    def attribute_words(self, states: Tensor, mask: Tensor, label: int) -> Tensor:
        """Return the label's attention to each word of one document, shape (width,), sum 1."""
        return self.attention(states, mask, torch.tensor([[label]], device=states.device))[0, 0]


class MaxPooling(nn.Module):
    """Head of XML-RNN: max pooling of each unit over the words, one representation for all labels."""

    def __init__(self, n_labels: int, width: int, sizes: tuple[int, ...]):
        super().__init__()
        self.n_labels, self.width = n_labels, 1
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise((width, *sizes)))
        self.output = nn.Linear(sizes[-1], n_labels)

    def forward(self, states: Tensor, mask: Tensor, candidates: Tensor | None = None) -> Tensor:
        return self.logits(states.masked_fill(~mask[..., None], -torch.inf).amax(1))

    def logits(self, pooled: Tensor) -> Tensor:
        for layer in self.hidden:
            pooled = relu(layer(pooled))
        return self.output(pooled)

    def attribute_words(self, states: Tensor, mask: Tensor, label: int) -> Tensor:
        """Return each word's contribution to the label's logit for one document, shape (width,).

        The contribution of a unit, its pooled state times the gradient, is assigned to the word with the maximum.
        """
        pooled, word = states.masked_fill(~mask[..., None], -torch.inf).max(1)
        with torch.enable_grad():
            pooled.requires_grad_(True)
            (gradient,) = torch.autograd.grad(self.logits(pooled)[0, label], pooled)
        return torch.zeros(states.shape[1]).index_add(0, word[0], (gradient * pooled)[0].detach())


class RecurrentNetwork(LabelNetwork):
    """Bidirectional LSTM encoder and head."""

    def __init__(self, encoder: RecurrentEncoder, head: MultiLabelAttention | MaxPooling):
        super().__init__()
        self.encoder, self.head, self.n_labels = encoder, head, head.n_labels

    def forward(self, batch: TokenBatch, candidates: Tensor | None = None) -> Tensor:
        return self.head(self.encoder(batch), batch.make_mask(), candidates)

    def batch_size(self, loader: object, n_candidates: int | None = None) -> int:
        """Return the batch size of predictions; each document has a row for every label or candidate."""
        device, n_rows = get_network_device(self), self.n_labels if n_candidates is None else n_candidates
        limit = get_device_limit(MAX_TENSOR_ELEMENTS, device) // (n_rows * self.head.width)
        return max(1, min(limit, get_device_limit(MAX_BATCH_DOCUMENTS, device)))

    def predict_top_k(self, batch: TokenBatch, k: int) -> tuple[Tensor, Tensor]:
        with mixed_precision(batch.ids.device):
            return super().predict_top_k(batch, k)

"""The networks of AttentionXML and XML-RNN: a bidirectional LSTM over word vectors, and what reads labels off its
states."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from xmtc.nn.batches import TokenBatch
from xmtc.nn.devices import mixed_precision
from xmtc.nn.lstm import RecurrentEncoder
from xmtc.nn.network import LabelNetwork, get_device_limit, get_network_device

MAX_BATCH_DOCUMENTS = {"cpu": 64, "cuda": 512}  # answered at a time
MAX_TENSOR_ELEMENTS = {"cpu": 2**27, "cuda": 2**31}  # of one tensor in an answer

# Attentions start far enough apart to look at different words. The authors' Xavier numbers, which shrink with the
# number of labels, begin with the same plain average for all of them, and take many passes to part.
ATTENTION_INIT_RANGE = 0.35


def init_xavier(head: nn.Module) -> None:
    """The weights of attentions and layers as the authors' code draws them: uniform, in a range that shrinks with what
    goes in and what comes out (Glorot, Bengio 2010)."""
    for module in head.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.xavier_uniform_(module.weight)


class SharedLayers(nn.Module):
    """The fully connected layers that all labels share, and the output layer: eq. 5. The first is applied to the states
    before they are averaged: W₁ Σ αᵢ hᵢ = Σ αᵢ (W₁ hᵢ), and a document has fewer words than there are labels."""

    def __init__(self, width: int, sizes: tuple[int, ...]):
        super().__init__()
        self.first = nn.Linear(width, sizes[0])
        self.further = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.output = nn.Linear(sizes[-1], 1)

    def project(self, states: Tensor) -> Tensor:
        return linear(states, self.first.weight.to(states.dtype))

    def forward(self, projected: Tensor, own: Tensor | None = None) -> Tensor:
        """Logits (n_docs, n_labels) of averages of projected states, (n_docs, n_labels, sizes[0]), by the shared output
        layer, and by labels' own."""
        kind = projected.dtype
        x = relu(projected + self.first.bias.to(kind))
        for layer in self.further:
            assert isinstance(layer, nn.Linear)
            x = relu(linear(x, layer.weight.to(kind), layer.bias.to(kind)))
        # bf16 has too few digits to rank labels by; in training, gradients have the same noise anyway
        x = x if self.training else x.float()
        logits = (x @ self.output.weight[0].to(x.dtype)).float() + self.output.bias
        if own is None:
            return logits
        return logits + (x * own[..., :-1].to(x.dtype)).sum(-1).float() + own[..., -1]


class MultiLabelAttention(nn.Module):
    """One attention per label over the states of a document: eq. 4, then the shared layers."""

    def __init__(
        self, n_labels: int, width: int, sizes: tuple[int, ...], sparse: bool = False, own_output: bool = False
    ):
        super().__init__()
        self.n_labels, self.width = n_labels, max(width, *sizes)
        self.rows = nn.Embedding(n_labels, width, sparse=sparse)
        nn.init.uniform_(self.rows.weight, -ATTENTION_INIT_RANGE, ATTENTION_INIT_RANGE)
        self.layers = SharedLayers(width, sizes)
        # beside the output layer that all share, a row and a bias (the last number) of each label's own
        self.own = nn.Embedding(n_labels, sizes[-1] + 1, sparse=sparse) if own_output else None
        if self.own is not None:
            nn.init.zeros_(self.own.weight)

    def forward(self, states: Tensor, mask: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Logits of all labels, or of each document's candidates (n_docs, n_candidates)."""
        kind = states.device.type
        if torch.is_autocast_enabled(kind):  # which would make a softmax, and all after it, float32: twice the bytes
            states = states.to(torch.get_autocast_dtype(kind))
        with torch.autocast(kind, enabled=False):
            average = self.attention(states, mask, candidates) @ self.layers.project(states)
            return self.layers(average, self.select_own_output(candidates))

    def select_own_output(self, candidates: Tensor | None) -> Tensor | None:
        """(n_labels, size + 1), or (n_docs, n_candidates, size + 1)."""
        if self.own is None:
            return None
        return self.own.weight if candidates is None else self.own(candidates)

    def attention(self, states: Tensor, mask: Tensor, candidates: Tensor | None = None) -> Tensor:
        """α, (n_docs, n_labels, width)."""
        n_docs, longest, width = states.shape
        out_of_text = states.new_zeros(n_docs, longest).masked_fill(~mask, -torch.inf)
        if candidates is not None:
            rows = self.rows(candidates).to(states.dtype)
            return torch.baddbmm(out_of_text[:, None], rows, states.transpose(1, 2)).softmax(-1)
        # all labels: one product for the whole batch, labels first
        scores = torch.addmm(out_of_text.view(-1), self.rows.weight.to(states.dtype), states.reshape(-1, width).T)
        return scores.view(-1, n_docs, longest).softmax(-1).transpose(0, 1)

    def attribute_words(self, states: Tensor, mask: Tensor, label: int) -> Tensor:
        """(width,) how much attention the label pays to each word of one document: all of it adds up to 1."""
        return self.attention(states, mask, torch.tensor([[label]], device=states.device))[0, 0]


class MaxPooling(nn.Module):
    """XML-RNN: the largest of each unit's states over the words, one representation for all labels."""

    def __init__(self, n_labels: int, width: int, sizes: tuple[int, ...]):
        super().__init__()
        self.n_labels, self.width = n_labels, 1
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise((width, *sizes)))
        self.output = nn.Linear(sizes[-1], n_labels)

    def forward(self, states: Tensor, mask: Tensor, candidates: Tensor | None = None) -> Tensor:
        return self.logits(states.masked_fill(~mask[..., None], -torch.inf).amax(1))

    def logits(self, largest: Tensor) -> Tensor:
        for layer in self.hidden:
            largest = relu(layer(largest))
        return self.output(largest)

    def attribute_words(self, states: Tensor, mask: Tensor, label: int) -> Tensor:
        """(width,) what each word of one document adds to the label's logit: of every unit, its largest state times the
        logit's gradient there belongs to the word that has it."""
        largest, word = states.masked_fill(~mask[..., None], -torch.inf).max(1)
        with torch.enable_grad():
            largest.requires_grad_(True)
            (gradient,) = torch.autograd.grad(self.logits(largest)[0, label], largest)
        return torch.zeros(states.shape[1]).index_add(0, word[0], (gradient * largest)[0].detach())


class RecurrentNetwork(LabelNetwork):
    def __init__(self, encoder: RecurrentEncoder, head: MultiLabelAttention | MaxPooling):
        super().__init__()
        self.encoder, self.head, self.n_labels = encoder, head, head.n_labels

    def forward(self, batch: TokenBatch, candidates: Tensor | None = None) -> Tensor:
        return self.head(self.encoder(batch), batch.make_mask(), candidates)

    def batch_size(self, loader: object, n_candidates: int | None = None) -> int:
        """Every label, or candidate, has a row of its own in each document."""
        device, n_rows = get_network_device(self), self.n_labels if n_candidates is None else n_candidates
        most = get_device_limit(MAX_TENSOR_ELEMENTS, device) // (n_rows * self.head.width)
        return max(1, min(most, get_device_limit(MAX_BATCH_DOCUMENTS, device)))

    def predict_top_k(self, batch: TokenBatch, k: int) -> tuple[Tensor, Tensor]:
        with mixed_precision(batch.ids.device):
            return super().predict_top_k(batch, k)

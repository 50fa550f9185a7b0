"""Label-wise attention as the output layer of a transformer.

Each label attends to the subwords separately, as in CAML (Mullenbach et al., NAACL 2018) and AttentionXML, whereas all
labels of APLC-XLNet share one document state. Not in the paper. The layer is flat: all labels are computed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from xmtc.nn.batches import round_up_length
from xmtc.nn.label_clusters import ClusterLayout, compute_label_log_odds, cross_entropy, move_pairs
from xmtc.nn.layers import cast_for_autocast, compute_label_attention

ATTENTION_INIT_RANGE = 0.1  # large enough that labels attend to different subwords from the start


class SubwordStates(NamedTuple):
    """States of all subwords (n_docs, length, width) and the mask of padding (n_docs, length)."""

    states: Tensor
    mask: Tensor


class LabelWiseAttention(nn.Module):
    """Output layer with α = softmax(H u) over a document's subwords and logit = Σ αᵢ (hᵢ · w) + b.

    u, w and b are parameters of each label. The interface is that of LabelClusters, with SubwordStates as features.
    """

    def __init__(self, clusters: ClusterLayout, biases: bool = False):
        super().__init__()
        self.clusters = clusters
        n_rows = round_up_length(clusters.n_labels)
        self.attention = nn.Linear(clusters.width, n_rows, bias=False)  # u
        nn.init.uniform_(self.attention.weight, -ATTENTION_INIT_RANGE, ATTENTION_INIT_RANGE)
        self.labels = nn.Linear(clusters.width, n_rows, bias=False)  # w
        self.bias = nn.Parameter(torch.zeros(n_rows)) if biases else None

    @torch.no_grad()
    def initialise_biases(self, Y: csr_array) -> None:
        """Set the biases so that the untrained layer approximately predicts label frequencies."""
        assert self.bias is not None
        self.bias[: Y.shape[1]] = compute_label_log_odds(Y)

    def logits(self, features: SubwordStates, rows: slice = slice(None)) -> Tensor:
        """Return the logits (n_docs, n_labels) of all labels, or of a slice."""
        states, mask = cast_for_autocast(features.states), features.mask
        with torch.autocast(states.device.type, enabled=False):
            attention = compute_label_attention(states, mask, self.attention.weight[rows])
            # The product with w comes before the average: it needs no array of size labels × subwords × width.
            outputs = (self.labels.weight[rows].to(states.dtype) @ states.flatten(0, 1).T).view(-1, *mask.shape)
            logits = (attention * outputs).sum(-1, dtype=torch.promote_types(outputs.dtype, torch.float32)).T
        logits = logits if self.bias is None else logits + self.bias[rows]
        return logits[:, : self.clusters.n_labels]

    def forward(self, features: SubwordStates, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the binary cross-entropy, summed over all labels."""
        return cross_entropy(self.logits(features), move_pairs(rows, labels, features.mask.device))

    @torch.no_grad()
    def predict_top_k(self, features: SubwordStates, k: int) -> tuple[Tensor, Tensor]:
        """Return the k best labels of every document and their probabilities."""
        top = self.logits(features).topk(min(k, self.clusters.n_labels))
        return top.indices, top.values.sigmoid()

    def compute_logit(self, features: SubwordStates, label: int) -> Tensor:
        """Return the logit of one label, shape (n_docs,)."""
        return self.logits(features, slice(label, label + 1))[:, 0]

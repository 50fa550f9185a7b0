"""Label-wise attention as the output layer of a transformer, in place of APLC-XLNet's one state for all labels: each
label looks at the subwords by itself, as in CAML (Mullenbach et al., NAACL 2018) and AttentionXML. It is ours; it is
flat, all labels are computed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from xmtc.nn.batches import round_up_length
from xmtc.nn.label_clusters import ClusterLayout, compute_label_log_odds, cross_entropy, move_pairs

ATTENTION_INIT_RANGE = 0.1  # of the first attentions: far enough apart to look at different subwords


class SubwordStates(NamedTuple):
    """Of all subwords, (n_docs, length, width), and where subwords stand, (n_docs, length)."""

    states: Tensor
    mask: Tensor


class LabelWiseAttention(nn.Module):
    """α = softmax(H u) over a document's subwords, logit = Σ αᵢ (hᵢ · w) + b, with u, w and b of each label. Used as
    LabelClusters are, but of states, not of one state."""

    def __init__(self, clusters: ClusterLayout, biases: bool = False):
        super().__init__()
        self.clusters = clusters
        n_rows = round_up_length(clusters.n_labels)
        self.attention = nn.Linear(clusters.width, n_rows, bias=False)
        nn.init.uniform_(self.attention.weight, -ATTENTION_INIT_RANGE, ATTENTION_INIT_RANGE)
        self.labels = nn.Linear(clusters.width, n_rows, bias=False)
        self.bias = nn.Parameter(torch.zeros(n_rows)) if biases else None

    @torch.no_grad()
    def initialise_biases(self, Y: csr_array) -> None:
        """Before it has learnt anything, every label has about the probability that it has among these documents."""
        assert self.bias is not None
        self.bias[: Y.shape[1]] = compute_label_log_odds(Y)

    def logits(self, features: SubwordStates, which: slice = slice(None)) -> Tensor:
        """(n_docs, n_labels), of all labels or of some."""
        states, mask = features
        kind = states.device.type
        if torch.is_autocast_enabled(kind):  # which would make a softmax, and all after it, float32: twice the bytes
            states = states.to(torch.get_autocast_dtype(kind))
        with torch.autocast(kind, enabled=False):
            out_of_text = states.new_zeros(mask.shape).masked_fill(~mask, -torch.inf)
            flat, weights = states.flatten(0, 1).T, self.attention.weight[which].to(states.dtype)
            attention = torch.addmm(out_of_text.view(-1), weights, flat).view(-1, *mask.shape).softmax(-1)
            # the average is taken after the product with w: numbers for each pair of label and subword, not × width
            said = (self.labels.weight[which].to(states.dtype) @ flat).view(-1, *mask.shape)
            found = (attention * said).sum(-1, dtype=torch.promote_types(said.dtype, torch.float32)).T
        found = found if self.bias is None else found + self.bias[which]
        return found[:, : self.clusters.n_labels]

    def forward(self, features: SubwordStates, rows: Tensor, labels: Tensor) -> Tensor:
        """Binary cross-entropy of all labels, added up."""
        return cross_entropy(self.logits(features), move_pairs(rows, labels, features.mask.device))

    @torch.no_grad()
    def predict_top_k(self, features: SubwordStates, k: int) -> tuple[Tensor, Tensor]:
        """The k best labels of every document and their probabilities."""
        top = self.logits(features).topk(min(k, self.clusters.n_labels))
        return top.indices, top.values.sigmoid()

    def compute_logit(self, features: SubwordStates, label: int) -> Tensor:
        """(n_docs,) of one label, for explanations."""
        return self.logits(features, slice(label, label + 1))[:, 0]

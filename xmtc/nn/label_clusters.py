"""Adaptive Probabilistic Label Clusters (APLC), an output layer for large label sets.

Ye, Chen, Wang, Davison: Pretrained Generalized Autoregressive Model with Adaptive Probabilistic Label Clusters for
Extreme Multi-label Text Classification (ICML 2020), section 3.3.

Labels are numbered by decreasing frequency and partitioned into clusters. The first cluster is the head: its labels are
scored for every document, together with one logit for each other cluster, the tails. The labels of a tail are scored
only for documents that have a label in it (training) or can have one among their k best (prediction). The layer takes
features (n_docs, d) of any encoder. With one cluster it is a flat linear layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, logsigmoid, relu, softplus

from xmtc.core.predictions import NO_LABEL
from xmtc.nn.batches import round_up_length
from xmtc.nn.devices import get_device_limit, move_to_device
from xmtc.nn.output_losses import MAX_BLOCK_OUTPUTS, CrossEntropyLoss, PositiveLabels, compute_output_loss


@dataclass(frozen=True)
class ClusterLayout:
    """Sizes of the label clusters and widths of their hidden layers."""

    sizes: tuple[int, ...]  # number of labels in the head and in each tail
    width: int  # d: length of the feature vectors
    factor: int  # q: each tail is narrower than the cluster before by this factor

    @property
    def n_labels(self) -> int:
        return sum(self.sizes)

    @property
    def boundaries(self) -> list[int]:
        """Cluster boundaries, n_clusters + 1 label numbers."""
        return np.cumsum([0, *self.sizes]).tolist()

    def inner_width(self, number: int) -> int:
        """Return d / qⁱ, the width of the i-th tail."""
        return max(1, self.width // self.factor**number)


def compute_cluster_sizes(n_labels: int, proportions: tuple[float, ...]) -> tuple[int, ...]:
    """Return cluster sizes with these proportions, each at least 1; at most n_labels clusters."""
    n, shares = min(len(proportions), n_labels), np.cumsum(proportions) / sum(proportions)
    edges = np.round(shares[:n] * n_labels).astype(int)
    edges[-1] = n_labels
    edges = np.minimum(np.maximum(edges, np.arange(1, n + 1)), n_labels - np.arange(n)[::-1])
    return tuple(np.diff(edges, prepend=0).tolist())


def find_document_clusters(clusters: ClusterLayout, Y: csr_array) -> np.ndarray:
    """Return a boolean array (n_docs, n_clusters): True if a document has a label in the cluster."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    has_label = np.zeros((Y.shape[0], len(clusters.sizes)), bool)
    has_label[rows, np.searchsorted(clusters.boundaries[1:], Y.indices, side="right")] = True
    return has_label


def count_loss_terms(clusters: ClusterLayout, Y: csr_array, untouched_tails: bool = True) -> np.ndarray:
    """Return the number of loss terms of each document, shape (n_docs,).

    The head and every tail with a label of the document have a term per label. Other tails have one term with
    `untouched_tails`, otherwise none.
    """
    is_scored = find_document_clusters(clusters, Y)
    is_scored[:, 0] = True
    return np.where(is_scored, clusters.sizes, int(untouched_tails)).sum(1)


def compute_log_odds(counts: np.ndarray, n: int) -> Tensor:
    """Return the log-odds of events with these counts in n trials, smoothed by half a count."""
    return torch.from_numpy(np.log((counts + 0.5) / (n - counts + 0.5)))


def compute_label_log_odds(Y: csr_array) -> Tensor:
    """Return the log-odds of each label, shape (n_labels,).

    As initial biases of an output layer they make an untrained network predict label frequencies.
    """
    return compute_log_odds(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0])


def order_by_frequency(frequencies: np.ndarray) -> np.ndarray:
    """Return the labels by decreasing frequency, ties in label order, shape (n_labels,), int32."""
    return np.argsort(-frequencies, kind="stable").astype(np.int32)


class TailCluster(nn.Module):
    """Output layer of a tail: Linear(d → d/qⁱ), layer normalisation, ReLU, Linear(→ labels)."""

    def __init__(self, width: int, inner: int, n_labels: int, biases: bool):
        super().__init__()
        self.narrow = nn.Linear(width, inner, bias=False)
        self.norm = nn.LayerNorm(inner)
        self.n_labels, self.labels = n_labels, nn.Linear(inner, round_up_length(n_labels), biases)

    def compute_hidden(self, features: Tensor) -> Tensor:
        return relu(self.norm(self.narrow(features)))

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of P(label | tail), shape (n_docs, n_labels)."""
        return to_float32(self.labels(self.compute_hidden(features))[:, : self.n_labels])


class LabelClusters(nn.Module):
    """Output layer with P(label) for the head and P(tail) P(label | tail) for tails (eq. 2).

    Biases are not in the paper. The number of outputs is padded to a multiple of 8, because GPUs are several times
    slower for other sizes; the additional outputs are ignored.
    """

    def __init__(self, clusters: ClusterLayout, biases: bool = False, untouched_tails: bool = True):
        super().__init__()
        self.clusters, self.untouched_tails = clusters, untouched_tails
        n_head, *n_tails = clusters.sizes
        self.head = nn.Linear(clusters.width, round_up_length(n_head + len(n_tails)), biases)
        self.tails = nn.ModuleList(
            TailCluster(clusters.width, clusters.inner_width(i), n_labels, biases)
            for i, n_labels in enumerate(n_tails, start=1)
        )

    @torch.no_grad()
    def initialise_biases(self, Y: csr_array) -> None:
        """Set the biases so that the untrained layer predicts label frequencies.

        Otherwise every label starts with probability ½. The resulting gradients are so large that they dominate Adam's
        moments for a thousand steps and damage a pretrained encoder.
        """
        has_label = find_document_clusters(self.clusters, Y)
        n_docs, n_labels = Y.shape[0], np.bincount(Y.indices, minlength=Y.shape[1])
        n_head, n_tails = self.clusters.sizes[0], has_label[:, 1:].sum(0)
        self.head.bias[: n_head + len(n_tails)] = compute_log_odds(np.concatenate([n_labels[:n_head], n_tails]), n_docs)
        for (tail, begin, end), n in zip(self.tail_spans(), n_tails.tolist(), strict=True):
            tail.labels.bias[: end - begin] = compute_log_odds(n_labels[begin:end], n)

    def tail_spans(self) -> list[tuple[TailCluster, int, int]]:
        """Return each tail with its first label and the label after its last."""
        edges = list(pairwise(self.clusters.boundaries))[1:]
        return [(cast(TailCluster, tail), *span) for tail, span in zip(self.tails, edges, strict=True)]

    def compute_head_logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the head labels (n_docs, n_head) and of the tails (n_docs, n_tails)."""
        n_head, n_tails = self.clusters.sizes[0], len(self.tails)
        n_padding = self.head.out_features - n_head - n_tails
        label_logits, tail_logits, _ = self.head(features).split([n_head, n_tails, n_padding], 1)
        return to_float32(label_logits), to_float32(tail_logits)

    def forward(self, features: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the loss (eqs. 3–5) as the sum of its terms.

        `rows` and `labels` are the distinct (document, label) pairs, on the CPU to avoid synchronisation with a GPU. A
        tail that contains a label of the document has a term for each of its labels and none for the tail itself. A
        tail without one (untouched) has no term in eq. 5; the authors' code has one, for the tail's logit.
        """
        n_outputs = len(features) * self.clusters.n_labels
        if not self.tails and n_outputs > get_device_limit(MAX_BLOCK_OUTPUTS, features.device):
            return self.compute_flat_loss(features, rows, labels)
        label_logits, tail_logits = self.compute_head_logits(features)
        in_head = labels < self.clusters.sizes[0]
        total = cross_entropy(label_logits, move_pairs(rows[in_head], labels[in_head], features.device))
        if self.untouched_tails:
            total = total + softplus(tail_logits).sum()
        for i, (tail, begin, end) in enumerate(self.tail_spans()):
            in_tail = (labels >= begin) & (labels < end)
            docs, tail_rows = rows[in_tail].unique(return_inverse=True)
            if not len(docs):
                continue
            docs = move_to_device(docs, features.device)
            positives = move_pairs(tail_rows, labels[in_tail] - begin, features.device)
            logits = tail_logits[docs, i, None]
            tail_loss = ProductCrossEntropy.apply(logits, tail(features[docs]), positives)
            total = total + tail_loss
            if self.untouched_tails:
                total = total - softplus(logits).sum()
        return total

    def compute_flat_loss(self, features: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a single cluster, computed block by block to save memory."""
        n_labels, weight = self.clusters.n_labels, self.head.weight
        bias = weight.new_zeros(n_labels) if self.head.bias is None else self.head.bias[:n_labels]
        device_rows, device_labels = move_pairs(rows, labels, features.device)
        positives = PositiveLabels.from_pairs(device_rows, device_labels, len(features))
        return len(features) * compute_output_loss(CrossEntropyLoss(), features, weight[:n_labels], bias, positives)

    @torch.no_grad()
    def predict_top_k(self, features: Tensor, k: int, prune: bool = True) -> tuple[Tensor, Tensor]:
        """Return the k best labels of every document and their probabilities.

        P(tail) is an upper bound for its labels: with `prune`, a tail is computed only for documents where the bound
        reaches the k-th best score so far. Pruning does not change the result.
        """
        k, n_head = min(k, self.clusters.n_labels), self.clusters.sizes[0]
        label_scores, tail_scores = (logsigmoid(logits) for logits in self.compute_head_logits(features))
        scores = label_scores.new_full((len(label_scores), k), -torch.inf)
        labels = torch.full(scores.shape, NO_LABEL, device=scores.device)
        top = label_scores.topk(min(k, n_head))
        scores[:, : top.values.shape[1]], labels[:, : top.values.shape[1]] = top.values, top.indices
        for i, (tail, begin, _) in enumerate(self.tail_spans()):
            bound = tail_scores[:, i]
            can_reach = bound >= scores[:, -1] if prune else torch.ones_like(bound, dtype=torch.bool)
            docs = torch.nonzero(can_reach)[:, 0]
            if not len(docs):
                continue
            joint_scores = logsigmoid(tail(features[docs])) + bound[docs, None]
            top = joint_scores.topk(min(k, joint_scores.shape[1]))
            merged = torch.cat([scores[docs], top.values], 1).topk(k)
            merged_labels = torch.cat([labels[docs], top.indices + begin], 1)
            scores[docs], labels[docs] = merged.values, merged_labels.gather(1, merged.indices)
        return labels, scores.exp()

    def compute_logit(self, features: Tensor, label: int) -> Tensor:
        """Return the logit of one label, shape (n_docs,)."""
        for i, (tail, begin, end) in enumerate(self.tail_spans()):
            if begin <= label < end:
                label_logit = compute_output(tail.labels, label - begin, tail.compute_hidden(features))
                return logit_of_product(compute_output(self.head, self.clusters.sizes[0] + i, features), label_logit)
        return compute_output(self.head, label, features)


def compute_output(layer: nn.Linear, number: int, features: Tensor) -> Tensor:
    """Return one output of a linear layer, shape (n_docs,)."""
    row = slice(number, number + 1)
    return to_float32(linear(features, layer.weight[row], None if layer.bias is None else layer.bias[row])[:, 0])


def to_float32(logits: Tensor) -> Tensor:
    """Return logits in float32 or better; bf16 is too imprecise for ranking."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def logit_of_product(a: Tensor, b: Tensor) -> Tensor:
    """Return the logit of p = σ(a) σ(b) without computing p, which could round to 0 or 1.

    (1 − p) / p = e⁻ᵃ + (1 + e⁻ᵃ) e⁻ᵇ
    """
    return -torch.logaddexp(-a, softplus(-a) - b)


def move_pairs(rows: Tensor, labels: Tensor, device: torch.device) -> Tensor:
    """Return the pairs as one tensor (2, n) on the device."""
    return move_to_device(torch.stack([rows, labels]), device)


def cross_entropy(logits: Tensor, positives: Tensor) -> Tensor:
    """Return the summed binary cross-entropy; `positives` are the (row, label) pairs, shape (2, n)."""
    return softplus(logits).sum() - logits[positives[0], positives[1]].sum()


class ProductCrossEntropy(torch.autograd.Function):
    """Cross-entropy of p = σ(a) σ(b), with logits a (n, 1) of a tail and b (n, m) of its labels.

    The explicit gradient needs fewer passes over the (n, m) array than autograd: with respect to b, it is
    p σ(−b) / (1 − p) for −log(1 − p) and −σ(−b) for −log p.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, positives: Tensor) -> Tensor:
        logits = logit_of_product(a, b)
        ctx.save_for_backward(a, b, logits, positives)
        return cross_entropy(logits, positives)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b, logits, (rows, labels) = ctx.saved_tensors
        d_a = (logits - softplus(a)).exp()
        d_b = (logits - softplus(b)).exp()
        d_a[rows, labels] = -(-a[rows, 0]).sigmoid()
        d_b[rows, labels] = -(-b[rows, labels]).sigmoid()
        return d_a.sum(1, keepdim=True) * gradient, d_b.mul_(gradient), None

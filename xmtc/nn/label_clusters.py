"""Adaptive Probabilistic Label Clusters (APLC): an output layer for many labels. Ye, Chen, Wang, Davison: Pretrained
Generalized Autoregressive Model with Adaptive Probabilistic Label Clusters for Extreme Multi-label Text Classification
(ICML 2020), section 3.3.

Labels are numbered by their frequency, the most frequent first, and cut into clusters. The first cluster is the head:
every document looks at its labels, and at one logit for each of the other clusters, the tails. A tail is looked at only
by documents with a label in it. It takes features (n_docs, d) of any encoder, and has two uses: the loss of documents
whose labels are known, and the best k labels of others. With one cluster it is a flat linear layer.
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
from xmtc.nn.devices import move_to_device
from xmtc.nn.output_losses import CrossEntropyLoss, PositiveLabels, compute_output_loss, get_max_block_outputs


@dataclass(frozen=True)
class ClusterLayout:
    """How labels are cut, and how wide each cluster is inside."""

    sizes: tuple[int, ...]  # labels of the head and of each tail
    width: int  # d, of the features
    factor: int  # q, by which each tail is narrower than the cluster before

    @property
    def n_labels(self) -> int:
        return sum(self.sizes)

    @property
    def boundaries(self) -> list[int]:
        """Where each cluster begins, and where the last ends."""
        return np.cumsum([0, *self.sizes]).tolist()

    def inner_width(self, number: int) -> int:
        """d / qⁱ, of the i-th tail."""
        return max(1, self.width // self.factor**number)


def compute_cluster_sizes(n_labels: int, proportions: tuple[float, ...]) -> tuple[int, ...]:
    """Sizes of clusters with these proportions of the labels, at least one label in each as far as they go."""
    n, shares = min(len(proportions), n_labels), np.cumsum(proportions) / sum(proportions)
    edges = np.round(shares[:n] * n_labels).astype(int)
    edges[-1] = n_labels
    edges = np.minimum(np.maximum(edges, np.arange(1, n + 1)), n_labels - np.arange(n)[::-1])
    return tuple(np.diff(edges, prepend=0).tolist())


def find_document_clusters(clusters: ClusterLayout, Y: csr_array) -> np.ndarray:
    """(n_docs, n_clusters) whether a document has a label there. Labels are numbered by their frequency."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    found = np.zeros((Y.shape[0], len(clusters.sizes)), bool)
    found[rows, np.searchsorted(clusters.boundaries[1:], Y.indices, side="right")] = True
    return found


def count_loss_terms(clusters: ClusterLayout, Y: csr_array, untouched_tails: bool = True) -> np.ndarray:
    """(n_docs,) terms of each document in the loss: all labels of the head, and of tails that it has a label in; of
    other tails one, or none."""
    looks = find_document_clusters(clusters, Y)
    looks[:, 0] = True
    return np.where(looks, clusters.sizes, int(untouched_tails)).sum(1)


def compute_log_odds(counts: np.ndarray, n: int) -> Tensor:
    """Of what was seen so many times in n; half a time more in either way, so that nothing is certain."""
    return torch.from_numpy(np.log((counts + 0.5) / (n - counts + 0.5)))


def compute_label_log_odds(Y: csr_array) -> Tensor:
    """(n_labels,) of each label among these documents: where the bias of an output layer begins, so that a network
    that has learnt nothing answers with frequencies, and not with half of all labels."""
    return compute_log_odds(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0])


def order_by_frequency(frequencies: np.ndarray) -> np.ndarray:
    """(n_labels,) int32, labels from the most frequent to the rarest; equally frequent ones in their own order."""
    return np.argsort(-frequencies, kind="stable").astype(np.int32)


class TailCluster(nn.Module):
    """Linear(d → d/qⁱ), normalised, ReLU, Linear(→ labels)."""

    def __init__(self, width: int, inner: int, n_labels: int, biases: bool):
        super().__init__()
        self.narrow = nn.Linear(width, inner, bias=False)
        self.norm = nn.LayerNorm(inner)
        self.n_labels, self.labels = n_labels, nn.Linear(inner, round_up_length(n_labels), biases)

    def compute_hidden(self, features: Tensor) -> Tensor:
        return relu(self.norm(self.narrow(features)))

    def forward(self, features: Tensor) -> Tensor:
        """Logits of P(label | tail)."""
        return to_float32(self.labels(self.compute_hidden(features))[:, : self.n_labels])


class LabelClusters(nn.Module):
    """P(label) of the head; P(tail) P(label | tail) of a tail: eq. 2. Biases are ours; they begin at random, or with
    what is known of the labels' frequencies. Layers of labels have a few more than there are, which nobody looks at, up
    to a multiple of 8: a GPU needs several times as long for products of other sizes."""

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
        """Before it has learnt anything, every label has the probability that it has among these documents. Otherwise
        a training begins with half of all labels in every document: gradients so large that Adam remembers them for a
        thousand steps, and that an encoder is worse for them."""
        looks = find_document_clusters(self.clusters, Y)
        n_docs, n_labels = Y.shape[0], np.bincount(Y.indices, minlength=Y.shape[1])
        n_head, n_tails = self.clusters.sizes[0], looks[:, 1:].sum(0)
        self.head.bias[: n_head + len(n_tails)] = compute_log_odds(np.concatenate([n_labels[:n_head], n_tails]), n_docs)
        for (tail, begin, end), n in zip(self.tail_spans(), n_tails.tolist(), strict=True):
            tail.labels.bias[: end - begin] = compute_log_odds(n_labels[begin:end], n)

    def tail_spans(self) -> list[tuple[TailCluster, int, int]]:
        """Each tail, and its labels from where to where."""
        edges = list(pairwise(self.clusters.boundaries))[1:]
        return [(cast(TailCluster, tail), *span) for tail, span in zip(self.tails, edges, strict=True)]

    def compute_head_logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(n_docs, labels of the head), (n_docs, n_tails) logits."""
        n_head, n_tails = self.clusters.sizes[0], len(self.tails)
        rest = self.head.out_features - n_head - n_tails
        of_labels, of_tails, _ = self.head(features).split([n_head, n_tails, rest], 1)
        return to_float32(of_labels), to_float32(of_tails)

    def forward(self, features: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """The loss, eqs. 3–5, as the sum of its terms. (rows, labels) are the pairs of a document and a label of it, no
        pair twice; on the CPU, they do not have a GPU wait. A tail with a label of the document has a term for each
        label in it, and none for itself. One without, which is untouched, has no term in eq. 5; as the authors have it,
        it has one, of its own logit."""
        if not self.tails and len(features) * self.clusters.n_labels > get_max_block_outputs(features.device):
            return self.compute_flat_loss(features, rows, labels)
        of_labels, of_tails = self.compute_head_logits(features)
        in_head = labels < self.clusters.sizes[0]
        total = cross_entropy(of_labels, move_pairs(rows[in_head], labels[in_head], features.device))
        if self.untouched_tails:
            total = total + softplus(of_tails).sum()
        for i, (tail, begin, end) in enumerate(self.tail_spans()):
            within = (labels >= begin) & (labels < end)
            docs, which = rows[within].unique(return_inverse=True)
            if len(docs):
                docs, true = (
                    move_to_device(docs, features.device),
                    move_pairs(which, labels[within] - begin, features.device),
                )
                in_tail = of_tails[docs, i, None]
                within_tail = ProductCrossEntropy.apply(in_tail, tail(features[docs]), true)
                total = total + within_tail
                if self.untouched_tails:
                    total = total - softplus(in_tail).sum()
        return total

    def compute_flat_loss(self, features: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """The same of one cluster, a block of labels at a time: the logits of all of them are never stored."""
        n_labels, weight = self.clusters.n_labels, self.head.weight
        bias = weight.new_zeros(n_labels) if self.head.bias is None else self.head.bias[:n_labels]
        docs, true = move_pairs(rows, labels, features.device)
        positives = PositiveLabels.from_pairs(docs, true, len(features))
        return len(features) * compute_output_loss(CrossEntropyLoss(), features, weight[:n_labels], bias, positives)

    @torch.no_grad()
    def predict_top_k(self, features: Tensor, k: int, prune: bool = True) -> tuple[Tensor, Tensor]:
        """The k best labels of every document and their probabilities. P(tail) bounds what any of its labels can reach:
        a tail is looked at only by documents where that is enough to be among the best so far."""
        k, n_head = min(k, self.clusters.n_labels), self.clusters.sizes[0]
        of_labels, of_tails = (logsigmoid(logits) for logits in self.compute_head_logits(features))
        scores = of_labels.new_full((len(of_labels), k), -torch.inf)
        labels = torch.full(scores.shape, NO_LABEL, device=scores.device)
        top = of_labels.topk(min(k, n_head))
        scores[:, : top.values.shape[1]], labels[:, : top.values.shape[1]] = top.values, top.indices
        for i, (tail, begin, _) in enumerate(self.tail_spans()):
            bound = of_tails[:, i]
            worth = bound >= scores[:, -1] if prune else torch.ones_like(bound, dtype=torch.bool)
            docs = torch.nonzero(worth)[:, 0]
            if not len(docs):
                continue
            in_all = logsigmoid(tail(features[docs])) + bound[docs, None]
            top = in_all.topk(min(k, in_all.shape[1]))
            both = torch.cat([scores[docs], top.values], 1).topk(k)
            names = torch.cat([labels[docs], top.indices + begin], 1)
            scores[docs], labels[docs] = both.values, names.gather(1, both.indices)
        return labels, scores.exp()

    def compute_logit(self, features: Tensor, label: int) -> Tensor:
        """(n_docs,) log(p / (1 − p)) of one label, for explanations."""
        for i, (tail, begin, end) in enumerate(self.tail_spans()):
            if begin <= label < end:
                label_logit = compute_output(tail.labels, label - begin, tail.compute_hidden(features))
                return logit_of_product(compute_output(self.head, self.clusters.sizes[0] + i, features), label_logit)
        return compute_output(self.head, label, features)


def compute_output(layer: nn.Linear, number: int, features: Tensor) -> Tensor:
    """(n_docs,) one output of a layer."""
    row = slice(number, number + 1)
    return to_float32(linear(features, layer.weight[row], None if layer.bias is None else layer.bias[row])[:, 0])


def to_float32(logits: Tensor) -> Tensor:
    """At least float32: bf16 has too few digits to rank labels by."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def logit_of_product(a: Tensor, b: Tensor) -> Tensor:
    """log(p / (1 − p)) of p = σ(a) σ(b), without p, which would round to 0 or 1: (1 − p) / p = e⁻ᵃ + (1 + e⁻ᵃ) e⁻ᵇ."""
    return -torch.logaddexp(-a, softplus(-a) - b)


def move_pairs(rows: Tensor, labels: Tensor, device: torch.device) -> Tensor:
    """(2, n) documents and their labels, on the device that has the logits."""
    return move_to_device(torch.stack([rows, labels]), device)


def cross_entropy(logits: Tensor, true: Tensor) -> Tensor:
    """Binary, added up, where the pairs are true and all others are not."""
    return softplus(logits).sum() - logits[true[0], true[1]].sum()


class ProductCrossEntropy(torch.autograd.Function):
    """The same of p = σ(a) σ(b), of logits a (n, 1) of a tail and b (n, m) of its labels. Its gradient is written out,
    which takes fewer passes over (n, m) numbers: that of −log(1 − p) towards b is p σ(−b) / (1 − p), that of −log p is
    −σ(−b)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, true: Tensor) -> Tensor:
        logits = logit_of_product(a, b)
        ctx.save_for_backward(a, b, logits, true)
        return cross_entropy(logits, true)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b, logits, (rows, labels) = ctx.saved_tensors
        to_a = (logits - softplus(a)).exp()
        to_b = (logits - softplus(b)).exp()
        to_a[rows, labels] = -(-a[rows, 0]).sigmoid()
        to_b[rows, labels] = -(-b[rows, labels]).sigmoid()
        return to_a.sum(1, keepdim=True) * gradient, to_b.mul_(gradient), None

"""Losses over all labels, fused with the linear layer whose outputs they judge.

Each is the sum over a document's labels P and non-labels N of something that, given a summary of the document's labels,
is known label by label. So the layer is computed a block of labels at a time, loss and gradients of a block are taken
while it is there, and neither time nor memory grows with |P| × |N|: O(L) a document. The gradients are made together
with the loss and handed over in the backward pass, so that nothing is computed twice.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

MAX_BLOCK_OUTPUTS = {"cpu": 2**23, "cuda": 2**26}  # outputs held at a time
MAX_EXPONENT = 30.0  # e to which float32 still holds squared, as Adam has it, with room for a sum


@dataclass(frozen=True)
class PositiveLabels:
    """The labels of a batch's documents, in the order of the labels."""

    rows: Tensor  # (n,) documents, counted from 0
    labels: Tensor  # (n,) ascending
    n_docs: int

    @classmethod
    def from_pairs(cls, rows: Tensor, labels: Tensor, n_docs: int) -> PositiveLabels:
        order = labels.argsort(stable=True)
        return cls(rows[order], labels[order], n_docs)

    def sum_by_document(self, values: Tensor) -> Tensor:
        """(n_docs,) the sum over each document's labels."""
        return values.new_zeros(self.n_docs).index_add_(0, self.rows, values)

    def min_by_document(self, values: Tensor) -> Tensor:
        """(n_docs,) the smallest of each document's labels, infinite where it has none."""
        return values.new_full((self.n_docs,), torch.inf).scatter_reduce_(0, self.rows, values, "amin")


class LossAccumulator:
    """The loss of a batch while blocks of non-labels come by. Logits of labels are known from the beginning."""

    def __init__(self, positives: PositiveLabels, logits: Tensor):
        self.positives, self.logits = positives, logits
        self.loss = logits.new_zeros(positives.n_docs)  # of each document, of all that came by

    @abstractmethod
    def add_block(self, logits: Tensor, rows: Tensor, columns: Tensor, first: int) -> Tensor:
        """The gradient of a block of logits, (n_docs, labels from number `first` on), zero at the labels of documents,
        which stand at (rows, columns)."""

    @abstractmethod
    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """What is left of the gradient, once all blocks have come by, as (documents, labels, gradients)."""


@dataclass(frozen=True)
class CrossEntropyLoss:
    """Binary cross-entropy, summed over the labels."""

    def __call__(self, positives: PositiveLabels, logits: Tensor) -> LossAccumulator:
        return CrossEntropyAccumulator(positives, logits)


class CrossEntropyAccumulator(LossAccumulator):
    def add_block(self, logits: Tensor, rows: Tensor, columns: Tensor, first: int) -> Tensor:
        logits[rows, columns] = -torch.inf  # adds nothing
        self.loss += torch.nn.functional.softplus(logits).sum(1)
        return logits.sigmoid_()

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        self.loss += self.positives.sum_by_document(torch.nn.functional.softplus(-self.logits))
        return self.positives.rows, self.positives.labels, -(-self.logits).sigmoid()


@dataclass(frozen=True)
class RankingLoss:
    """The margin-based ranking loss of Rank-AE, eqs. 2–4: L_P = Σ_n max_p (m + y_n − y_p)₊ = Σ_n (m + y_n − min y_p)₊
    and L_N = Σ_p (m + max y_n − y_p)₊. Without labels, or with all of them, there is nothing to rank."""

    margin: float
    uses_sigmoid: bool  # y is the sigmoid of the logit, or the logit itself
    n_labels: int = 0  # where given, the means L_P / |N| and L_N / |P| are taken instead of the sums

    def __call__(self, positives: PositiveLabels, logits: Tensor) -> LossAccumulator:
        return RankingAccumulator(positives, logits, self.margin, self.uses_sigmoid, self.n_labels)


class RankingAccumulator(LossAccumulator):
    def __init__(self, positives: PositiveLabels, logits: Tensor, margin: float, bounded: bool, n_labels: int):
        super().__init__(positives, logits)
        counts = positives.sum_by_document(torch.ones_like(logits))
        self.per_label = 1 / counts.clamp(min=1) if n_labels else torch.ones_like(counts)
        self.per_other = 1 / (n_labels - counts).clamp(min=1) if n_labels else torch.ones_like(counts)
        self.margin, self.uses_sigmoid = margin, bounded
        self.y = self.outputs(logits)
        self.lowest = positives.min_by_document(self.y)
        self.n_above = torch.zeros_like(self.lowest)  # non-labels within the margin of the lowest label, or above it
        self.highest = torch.full_like(self.lowest, -torch.inf)  # of the non-labels
        self.highest_labels = torch.zeros_like(self.lowest, dtype=torch.long)

    def outputs(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self.uses_sigmoid else logits

    def slope(self, y: Tensor) -> Tensor | float:
        """dy / dlogit"""
        return y * (1 - y) if self.uses_sigmoid else 1.0

    def add_block(self, logits: Tensor, rows: Tensor, columns: Tensor, first: int) -> Tensor:
        y = self.outputs(logits)
        slope = self.slope(y)
        y[rows, columns] = -torch.inf  # never above anything
        highest, which = y.max(1)
        self.highest_labels = torch.where(highest > self.highest, which + first, self.highest_labels)
        self.highest = torch.maximum(highest, self.highest)
        above = y.add_((self.margin - self.lowest)[:, None]).clamp_(min=0)
        self.loss += above.sum(1) * self.per_other
        is_above = above.sign_()
        self.n_above += is_above.sum(1)
        return is_above.mul_(slope).mul_(self.per_other[:, None])

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        rows, y = self.positives.rows, self.y
        below = (self.margin + self.highest[rows] - y).clamp(min=0)
        self.loss += self.positives.sum_by_document(below) * self.per_label
        is_below, is_lowest = below.sign(), (y == self.lowest[rows]).to(y.dtype)
        shares = is_lowest / self.positives.sum_by_document(is_lowest)[rows]  # of several lowest ones, each has a part
        of_labels = -(is_below * self.per_label[rows] + (self.n_above * self.per_other)[rows] * shares) * self.slope(y)
        of_highest = self.positives.sum_by_document(is_below) * self.per_label * self.slope(self.highest.clamp(min=0))
        documents = torch.arange(self.positives.n_docs, device=rows.device)
        return (
            torch.cat([rows, documents]),
            torch.cat([self.positives.labels, self.highest_labels]),
            torch.cat([of_labels, of_highest]),
        )


@dataclass(frozen=True)
class ExponentialPairLoss:
    """C2AE's Γ = 1 / (|P| |N|) Σ_p Σ_n exp(−(y_p − y_n)), which is the product (Σ_n exp y_n) (Σ_p exp −y_p): no pair of
    labels is ever looked at. Both sums are taken relative to the lowest label, so that neither overflows."""

    n_labels: int

    def __call__(self, positives: PositiveLabels, logits: Tensor) -> LossAccumulator:
        return ExponentialPairAccumulator(positives, logits, self.n_labels)


class ExponentialPairAccumulator(LossAccumulator):
    def __init__(self, positives: PositiveLabels, logits: Tensor, n_labels: int):
        super().__init__(positives, logits)
        n_positive = positives.sum_by_document(torch.ones_like(logits))
        n_pairs = n_positive * (n_labels - n_positive)
        lowest = positives.min_by_document(logits)
        self.lowest = torch.where(n_positive > 0, lowest, torch.zeros_like(lowest))
        self.label_terms = (self.lowest[positives.rows] - logits).exp() / n_pairs.clamp(min=1)[positives.rows]
        self.label_sums = positives.sum_by_document(self.label_terms)  # 0 where there are none
        self.other_sums = torch.zeros_like(self.label_sums)

    def add_block(self, logits: Tensor, rows: Tensor, columns: Tensor, first: int) -> Tensor:
        logits[rows, columns] = -torch.inf
        raised = logits.sub_(self.lowest[:, None]).clamp_(max=MAX_EXPONENT).exp_()
        self.other_sums += raised.sum(1)
        return raised.mul_(self.label_sums[:, None])

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        self.loss += self.label_sums * self.other_sums
        rows = self.positives.rows
        return rows, self.positives.labels, -self.label_terms * self.other_sums[rows]


Loss = CrossEntropyLoss | RankingLoss | ExponentialPairLoss


def get_max_block_outputs(device: torch.device) -> int:
    return MAX_BLOCK_OUTPUTS.get(device.type, MAX_BLOCK_OUTPUTS["cpu"])


def compute_output_loss(
    loss: Loss, inner: Tensor, weight: Tensor, bias: Tensor, positives: PositiveLabels, block: int | None = None
) -> Tensor:
    """The mean over documents of the loss of the logits inner · weightᵀ + bias, (n_docs, n_labels), of which only a
    block of labels is there at a time."""
    block = block or max(1, get_max_block_outputs(inner.device) // max(1, len(inner)))
    return FusedLoss.apply(inner, weight, bias, loss, positives, block)


class FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inner: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
        loss, positives, block = rest
        kind = inner.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else inner.dtype
        with torch.autocast(kind, enabled=False):
            inner = inner.to(weight.dtype)
            if block >= len(weight) and precision == inner.dtype:
                value, ctx.gradients = compute_loss_in_one_block(loss, inner, weight, bias, positives)
            else:
                value, ctx.gradients = compute_loss_in_blocks(loss, inner, weight, bias, positives, block, precision)
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None  # handed over once: that of the weights is large
        return *(gradient.mul_(upstream[0]) for gradient in gradients), None, None, None


def compute_loss_in_one_block(
    loss: Loss, inner: Tensor, weight: Tensor, bias: Tensor, positives: PositiveLabels
) -> tuple[Tensor, list[Tensor]]:
    """As `judged`, where one block holds all labels: those of documents are read off it, and their gradients put into
    it, so that no row of the weights is gathered for them."""
    n_docs, (rows, labels) = len(inner), (positives.rows, positives.labels)
    logits = torch.addmm(bias, inner, weight.T)
    judgement = loss(positives, logits[rows, labels])
    gradient = judgement.add_block(logits, rows, labels, 0)
    documents, left_at, left = judgement.finish()
    gradient.index_put_((documents, left_at), left, accumulate=True)
    gradient.div_(n_docs)
    return judgement.loss.mean(), [gradient @ weight, gradient.T @ inner, gradient.sum(0)]


def compute_loss_in_blocks(
    loss: Loss,
    inner: Tensor,
    weight: Tensor,
    bias: Tensor,
    positives: PositiveLabels,
    block: int,
    precision: torch.dtype,
) -> tuple[Tensor, list[Tensor]]:
    """The mean loss, and its gradients with respect to inner, weight and bias. Products are of the given precision."""
    n_docs, n_labels = len(inner), len(weight)
    rows, labels = positives.rows, positives.labels
    at_once = max(1, block * n_docs // inner.shape[1])  # labels of documents, which have a row each
    products = [(inner[r] * weight[p]).sum(1) for r, p in zip(rows.split(at_once), labels.split(at_once), strict=True)]
    judgement = loss(positives, torch.cat(products) + bias[labels])
    edges = [*range(0, n_labels, block), n_labels]
    ends = torch.searchsorted(labels, torch.tensor(edges, device=labels.device)).tolist()
    of_inner, of_weight, of_bias = torch.zeros_like(inner), torch.empty_like(weight), torch.empty_like(bias)
    low, share = inner.to(precision), (inner / n_docs).to(precision)
    for (begin, end), (first, after) in zip(pairwise(edges), pairwise(ends), strict=True):
        rows_here, columns = rows[first:after], labels[first:after] - begin
        part = weight[begin:end].to(precision)
        logits = torch.addmm(bias[begin:end].to(precision), low, part.T).to(inner.dtype)
        gradient = judgement.add_block(logits, rows_here, columns, begin)
        torch.sum(gradient, 0, out=of_bias[begin:end])
        gradient = gradient.to(precision)
        of_inner += gradient @ part
        of_weight[begin:end] = gradient.T @ share
    last = judgement.finish()
    for r, p, left in zip(*(part.split(at_once) for part in last), strict=True):
        of_inner.index_add_(0, r, left[:, None] * weight[p])
        of_weight.index_add_(0, p, left[:, None] * inner[r] / n_docs)
    of_bias.index_add_(0, last[1], last[2])
    return judgement.loss.mean(), [of_inner.div_(n_docs), of_weight, of_bias.div_(n_docs)]

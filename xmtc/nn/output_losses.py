"""Losses over all labels, fused with the linear output layer.

Each loss is a sum over a document's positive labels P and negative labels N whose terms depend on one label and on a
summary of the document's positive labels. The layer is therefore computed in blocks of labels, with the loss and the
gradients of each block. Time and memory are O(L) per document, not O(|P| |N|). The forward pass computes the gradients;
the backward pass returns them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from xmtc.nn.devices import get_device_limit

MAX_BLOCK_OUTPUTS = {"cpu": 2**23, "cuda": 2**26}  # outputs of one block
MAX_EXPONENT = 30.0  # the square of e**30, which Adam computes, and sums of it are finite in float32


@dataclass(frozen=True)
class PositiveLabels:
    """Positive labels of a batch, sorted by label."""

    rows: Tensor  # (n,) document of each label, counted from 0
    labels: Tensor  # (n,) ascending
    n_docs: int

    @classmethod
    def from_pairs(cls, rows: Tensor, labels: Tensor, n_docs: int) -> PositiveLabels:
        order = labels.argsort(stable=True)
        return cls(rows[order], labels[order], n_docs)

    def sum_by_document(self, values: Tensor) -> Tensor:
        """Return the sum over the labels of each document, shape (n_docs,)."""
        return values.new_zeros(self.n_docs).index_add_(0, self.rows, values)

    def min_by_document(self, values: Tensor) -> Tensor:
        """Return the minimum over the labels of each document, infinite if it has none, shape (n_docs,)."""
        return values.new_full((self.n_docs,), torch.inf).scatter_reduce_(0, self.rows, values, "amin")


class LossAccumulator:
    """Loss of a batch, accumulated over blocks of labels; the logits of positive labels are known from the start."""

    def __init__(self, positives: PositiveLabels, logits: Tensor):
        self.positives, self.logits = positives, logits
        self.loss = logits.new_zeros(positives.n_docs)  # per document, over the blocks so far

    @abstractmethod
    def add_block(self, logits: Tensor, rows: Tensor, columns: Tensor, first: int) -> Tensor:
        """Add a block of logits and return its gradient, zero at the positive labels (rows, columns).

        The block has shape (n_docs, block size); its columns are the labels from `first` on. It may be overwritten.
        """

    @abstractmethod
    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the remaining gradient after the last block as (documents, labels, gradients)."""


@dataclass(frozen=True)
class CrossEntropyLoss:
    """Binary cross-entropy, summed over labels."""

    def __call__(self, positives: PositiveLabels, logits: Tensor) -> LossAccumulator:
        return CrossEntropyAccumulator(positives, logits)


class CrossEntropyAccumulator(LossAccumulator):
    def add_block(self, logits: Tensor, rows: Tensor, columns: Tensor, first: int) -> Tensor:
        logits[rows, columns] = -torch.inf  # contributes nothing
        self.loss += torch.nn.functional.softplus(logits).sum(1)
        return logits.sigmoid_()

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        self.loss += self.positives.sum_by_document(torch.nn.functional.softplus(-self.logits))
        return self.positives.rows, self.positives.labels, -(-self.logits).sigmoid()


@dataclass(frozen=True)
class RankingLoss:
    """Margin-based ranking loss of Rank-AE (eqs. 2–4).

    L_P = Σ_n max_p (m + y_n − y_p)₊ = Σ_n (m + y_n − min y_p)₊ and L_N = Σ_p (m + max y_n − y_p)₊. Documents without
    positive or without negative labels have loss 0.
    """

    margin: float  # m
    uses_sigmoid: bool  # y is the sigmoid of the logit, otherwise the logit itself
    n_labels: int = 0  # if set, the means L_P / |N| and L_N / |P| replace the sums

    def __call__(self, positives: PositiveLabels, logits: Tensor) -> LossAccumulator:
        return RankingAccumulator(positives, logits, self.margin, self.uses_sigmoid, self.n_labels)


class RankingAccumulator(LossAccumulator):
    """L_P and L_N (eqs. 3 and 4), with their gradients.

    L_P = Σ_n (m + y_n − min y_p)₊ needs the lowest positive output, known from the start;
    L_N = Σ_p (m + max y_n − y_p)₊ needs the highest negative output, known after the last block.
    """

    def __init__(self, positives: PositiveLabels, logits: Tensor, margin: float, uses_sigmoid: bool, n_labels: int):
        super().__init__(positives, logits)
        n_positive = positives.sum_by_document(torch.ones_like(logits))  # |P|
        one = torch.ones_like(n_positive)
        self.weight_of_l_p = 1 / (n_labels - n_positive).clamp(min=1) if n_labels else one  # 1 / |N| in the mean
        self.weight_of_l_n = 1 / n_positive.clamp(min=1) if n_labels else one  # 1 / |P| in the mean
        self.margin, self.uses_sigmoid = margin, uses_sigmoid
        self.y_p = self.compute_outputs(logits)
        self.min_y_p = positives.min_by_document(self.y_p)
        self.n_terms_of_l_p = torch.zeros_like(self.min_y_p)  # negative labels with m + y_n > min y_p
        self.max_y_n = torch.full_like(self.min_y_p, -torch.inf)
        self.label_of_max_y_n = torch.zeros_like(self.min_y_p, dtype=torch.long)

    def compute_outputs(self, logits: Tensor) -> Tensor:
        """Return y of the logits."""
        return logits.sigmoid() if self.uses_sigmoid else logits

    def compute_slope(self, y: Tensor) -> Tensor | float:
        """Return dy / dlogit."""
        return y * (1 - y) if self.uses_sigmoid else 1.0

    def add_block(self, logits: Tensor, rows: Tensor, columns: Tensor, first: int) -> Tensor:
        y_n = self.compute_outputs(logits)
        slope = self.compute_slope(y_n)
        y_n[rows, columns] = -torch.inf  # positive labels: never the highest
        max_y_n, column = y_n.max(1)
        self.label_of_max_y_n = torch.where(max_y_n > self.max_y_n, column + first, self.label_of_max_y_n)
        self.max_y_n = torch.maximum(max_y_n, self.max_y_n)
        terms = y_n.add_((self.margin - self.min_y_p)[:, None]).clamp_(min=0)
        self.loss += terms.sum(1) * self.weight_of_l_p
        is_positive_term = terms.sign_()
        self.n_terms_of_l_p += is_positive_term.sum(1)
        return is_positive_term.mul_(slope).mul_(self.weight_of_l_p[:, None])

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        rows, y_p = self.positives.rows, self.y_p
        terms = (self.margin + self.max_y_n[rows] - y_p).clamp(min=0)
        self.loss += self.positives.sum_by_document(terms) * self.weight_of_l_n
        is_positive_term, is_min_y_p = terms.sign(), (y_p == self.min_y_p[rows]).to(y_p.dtype)
        shares = is_min_y_p / self.positives.sum_by_document(is_min_y_p)[rows]  # ties share the gradient
        d_l_p = (self.n_terms_of_l_p * self.weight_of_l_p)[rows] * shares
        d_l_n = is_positive_term * self.weight_of_l_n[rows]
        d_max_y_n = self.positives.sum_by_document(is_positive_term) * self.weight_of_l_n
        documents = torch.arange(self.positives.n_docs, device=rows.device)
        return (
            torch.cat([rows, documents]),
            torch.cat([self.positives.labels, self.label_of_max_y_n]),
            torch.cat(
                [-(d_l_n + d_l_p) * self.compute_slope(y_p), d_max_y_n * self.compute_slope(self.max_y_n.clamp(min=0))]
            ),
        )


@dataclass(frozen=True)
class ExponentialPairLoss:
    """Exponential pairwise loss of C2AE, Γ = 1 / (|P| |N|) Σ_p Σ_n exp(−(y_p − y_n)).

    It factorises into (Σ_n exp y_n) (Σ_p exp −y_p), so pairs are never enumerated. Both sums are taken relative to the
    lowest positive label to avoid overflow.
    """

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
        self.label_sums = positives.sum_by_document(self.label_terms)  # 0 without positive labels
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


def compute_output_loss(
    loss: Loss, inner: Tensor, weight: Tensor, bias: Tensor, positives: PositiveLabels, block: int | None = None
) -> Tensor:
    """Return the mean loss over documents of the logits inner · weightᵀ + bias, computed in blocks of labels."""
    block = block or max(1, get_device_limit(MAX_BLOCK_OUTPUTS, inner.device) // max(1, len(inner)))
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
        gradients, ctx.gradients = ctx.gradients, None  # freed after use: the weight gradient is large
        return *(gradient.mul_(upstream[0]) for gradient in gradients), None, None, None


def compute_loss_in_one_block(
    loss: Loss, inner: Tensor, weight: Tensor, bias: Tensor, positives: PositiveLabels
) -> tuple[Tensor, list[Tensor]]:
    """Return the mean loss and its gradients if one block holds all labels.

    The logits of positive labels are taken from the block, which avoids gathering rows of the weights.
    """
    n_docs, (rows, labels) = len(inner), (positives.rows, positives.labels)
    logits = torch.addmm(bias, inner, weight.T)
    accumulator = loss(positives, logits[rows, labels])
    gradient = accumulator.add_block(logits, rows, labels, 0)
    last_rows, last_labels, last_gradients = accumulator.finish()
    gradient.index_put_((last_rows, last_labels), last_gradients, accumulate=True)
    gradient.div_(n_docs)
    return accumulator.loss.mean(), [gradient @ weight, gradient.T @ inner, gradient.sum(0)]


def compute_loss_in_blocks(
    loss: Loss,
    inner: Tensor,
    weight: Tensor,
    bias: Tensor,
    positives: PositiveLabels,
    block: int,
    precision: torch.dtype,
) -> tuple[Tensor, list[Tensor]]:
    """Return the mean loss and its gradients with respect to inner, weight and bias.

    Matrix products use the given precision.
    """
    n_docs, n_labels = len(inner), len(weight)
    rows, labels = positives.rows, positives.labels
    chunk = max(1, block * n_docs // inner.shape[1])  # positive labels whose weight rows are gathered together
    products = [(inner[r] * weight[p]).sum(1) for r, p in zip(rows.split(chunk), labels.split(chunk), strict=True)]
    accumulator = loss(positives, torch.cat(products) + bias[labels])
    edges = [*range(0, n_labels, block), n_labels]
    ends = torch.searchsorted(labels, torch.tensor(edges, device=labels.device)).tolist()
    d_inner, d_weight, d_bias = torch.zeros_like(inner), torch.empty_like(weight), torch.empty_like(bias)
    inner_low, inner_mean = inner.to(precision), (inner / n_docs).to(precision)
    for (begin, end), (first, after) in zip(pairwise(edges), pairwise(ends), strict=True):
        block_rows, block_columns = rows[first:after], labels[first:after] - begin
        block_weight = weight[begin:end].to(precision)
        logits = torch.addmm(bias[begin:end].to(precision), inner_low, block_weight.T).to(inner.dtype)
        gradient = accumulator.add_block(logits, block_rows, block_columns, begin)
        torch.sum(gradient, 0, out=d_bias[begin:end])
        gradient = gradient.to(precision)
        d_inner += gradient @ block_weight
        d_weight[begin:end] = gradient.T @ inner_mean
    last_rows, last_labels, last_gradients = accumulator.finish()
    chunks = (tensor.split(chunk) for tensor in (last_rows, last_labels, last_gradients))
    for r, p, gradient in zip(*chunks, strict=True):
        d_inner.index_add_(0, r, gradient[:, None] * weight[p])
        d_weight.index_add_(0, p, gradient[:, None] * inner[r] / n_docs)
    d_bias.index_add_(0, last_labels, last_gradients)
    return accumulator.loss.mean(), [d_inner.div_(n_docs), d_weight, d_bias.div_(n_docs)]

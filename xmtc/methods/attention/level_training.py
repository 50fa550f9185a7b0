"""Training of one level of a label tree: what it learns from, and the candidates that the level above leaves it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.methods.attention.model import (
    MISSING_SCORE,
    CandidateScorer,
    gather_candidates,
    gather_children,
    predict_level,
)
from xmtc.methods.attention.network import RecurrentNetwork
from xmtc.nn import distributed
from xmtc.nn.batches import LabelLoader, TokenBatch, TokenLoader
from xmtc.nn.devices import mixed_precision
from xmtc.nn.network import get_network_device, predict_with_network
from xmtc.nn.training import TrainingOptions, fit_network

LOSSES = SUM, MEAN = "sum", "mean"


@dataclass(frozen=True)
class LevelData:
    """Documents, the nodes of the level that they belong to, and the nodes above whose children are candidates."""

    loader: TokenLoader
    Y: csr_array | None = None  # (n_docs, n_nodes)
    parent_predictions: Predictions | None = None

    def to_next_level(
        self, network: RecurrentNetwork, children: np.ndarray, n_candidates: int, run: Run, positives_first: bool
    ) -> LevelData:
        """As the level below will see it: the best nodes of this one, in training the true ones before all others."""
        if not positives_first or self.Y is None:
            return replace(
                self,
                parent_predictions=predict_level(
                    network, children, self.loader, self.parent_predictions, n_candidates, run
                ),
            )
        answering = PositivesFirstScorer(network, children, self.parent_predictions, self.Y)
        return replace(self, parent_predictions=predict_with_network(answering, self.loader, n_candidates, run))


def build_children_table(edges: csr_array) -> np.ndarray:
    """The children of every node in a row, filled up with NO_LABEL."""
    counts = np.diff(edges.indptr)
    table = np.full((len(counts), counts.max()), NO_LABEL, np.int32)
    table[np.arange(counts.max()) < counts[:, None]] = edges.indices
    return table


class PositivesFirstScorer(CandidateScorer):
    """A network that answers as the level below is trained: all candidates are scored, the true ones are taken before
    all others, and each keeps its own ẑ."""

    def __init__(self, network: RecurrentNetwork, children: np.ndarray, above: Predictions | None, Y: csr_array):
        super().__init__(network, children, above)
        self.truth = LabelLoader(Y, self.children.device)

    def predict_top_k(self, batch: TokenBatch, k: int) -> tuple[Tensor, Tensor]:
        candidates, scores = self.score_candidates(batch)
        is_true = self.truth.candidate_targets(batch.docs, candidates) > 0
        chosen = select_positives_first(scores, is_true & (scores >= 0), k)
        return gather_candidates(candidates, chosen, scores.gather(1, chosen))


def select_positives_first(scores: Tensor, is_true: Tensor, k: int) -> Tensor:
    """(n_docs, k) the columns of the "top C nodes by z from positive to negative and ẑ from large to small" (Algorithm
    3, line 10)."""
    k = min(k, scores.shape[1])
    most = min(k, int(is_true.sum(1).max()))
    true_ones = scores.masked_fill(~is_true, MISSING_SCORE).topk(most)
    others = scores.masked_fill(is_true, MISSING_SCORE).topk(k)
    columns = torch.cat([true_ones.indices, others.indices], 1)
    is_there = torch.cat([true_ones.values, others.values], 1) >= 0
    return columns.gather(1, is_there.char().argsort(descending=True, stable=True)[:, :k])


def binary_cross_entropy(
    logits: Tensor, targets: Tensor, mask: Tensor | None = None, loss_reduction: str = SUM
) -> Tensor:
    """Binary cross-entropy: eq. 6, the mean over documents and labels; or summed over labels, because the mean makes
    gradients so small that Adam's epsilon holds them back."""
    total = binary_cross_entropy_with_logits(logits.float(), targets, mask, reduction="sum")
    if loss_reduction == SUM:
        return total / len(logits)
    return total / (logits.numel() if mask is None else mask.sum().clamp(min=1))


def train_level(
    network: RecurrentNetwork,
    children: np.ndarray,
    data: LevelData,
    valid: LevelData | None,
    plan: TrainingOptions,
    *,
    batch: int,
    loss_reduction: str,
    run: Run,
    name: str,
) -> None:
    """Binary cross-entropy (eq. 6) of all nodes, or of the candidates; the best nDCG@5 of held-out documents stays."""
    assert data.Y is not None
    device = get_network_device(network)
    labels, forward = LabelLoader(data.Y, device), distributed.wrap_network(network)
    table = torch.from_numpy(children.astype(np.int64)).to(device)

    def loss(docs: np.ndarray) -> Tensor:
        batch = data.loader.load_batch(distributed.shard_batch(docs))
        with mixed_precision(device):
            if data.parent_predictions is None:
                return binary_cross_entropy(forward(batch), labels.targets(batch.docs), loss_reduction=loss_reduction)
            above = torch.from_numpy(data.parent_predictions.labels[batch.docs].astype(np.int64)).to(device)
            candidates, known = gather_children(above, table)
            targets = labels.candidate_targets(batch.docs, candidates)
            return binary_cross_entropy(forward(batch, candidates), targets, known.float(), loss_reduction)

    def answer(run: Run) -> Predictions:
        assert valid is not None
        return predict_level(network, children, valid.loader, valid.parent_predictions, 5, run)

    fit_network(
        network,
        loader=data.loader,
        loss=loss,
        predict=answer,
        Y=None if valid is None else valid.Y,
        plan=plan,
        batch=batch,
        run=run,
        name=name,
    )

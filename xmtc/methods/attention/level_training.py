"""Training of the network of one level of a label tree (AttentionXML, Algorithm 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from xmtc.nn import distributed
from xmtc.nn.batches import LabelLoader, TokenBatch, TokenLoader
from xmtc.nn.devices import get_network_device, mixed_precision
from xmtc.nn.network import predict_with_network
from xmtc.nn.training import STOPPING_K, TrainingOptions, Validation, fit_network

LOSSES = SUM, MEAN = "sum", "mean"
# Arguments: logits, targets, mask of existing candidates, and the reduction; each but the last (n_docs, n_candidates).
LevelLoss = Callable[[Tensor, Tensor, Tensor | None, str], Tensor]


@dataclass(frozen=True)
class LevelData:
    """Documents with the nodes of a level as labels; the children of `parent_predictions` are the candidates."""

    loader: TokenLoader
    Y: csr_array  # (n_docs, n_nodes), z in the paper
    parent_predictions: Predictions | None = None  # None in the first level: all nodes are candidates


def build_children_table(edges: csr_array) -> np.ndarray:
    """Return the children of every node as rows, padded with NO_LABEL."""
    counts = np.diff(edges.indptr)
    table = np.full((len(counts), counts.max()), NO_LABEL, np.int32)
    table[np.arange(counts.max()) < counts[:, None]] = edges.indices
    return table


def predict_training_candidates(
    network: Any, children: np.ndarray, data: LevelData, n_candidates: int, run: Run
) -> Predictions:
    """Return the C nodes whose children the next level is trained on: true nodes first (Algorithm 3, line 10)."""
    scorer = PositivesFirstScorer(network, children, data.parent_predictions, data.Y)
    return predict_with_network(scorer, data.loader, n_candidates, run)


class PositivesFirstScorer(CandidateScorer):
    """Scorer that ranks the true nodes before all others; each node keeps its score ẑ."""

    def __init__(self, network: Any, children: np.ndarray, parents: Predictions | None, Y: csr_array):
        super().__init__(network, children, parents)
        self.true_nodes = LabelLoader(Y, self.children_table.device)

    def predict_top_k(self, batch: TokenBatch, k: int) -> tuple[Tensor, Tensor]:
        candidates, scores = self.score_candidates(batch)
        is_true = self.true_nodes.candidate_targets(batch.docs, candidates) > 0
        columns = select_positives_first(scores, is_true & (scores >= 0), k)
        return gather_candidates(candidates, columns, scores.gather(1, columns))


def select_positives_first(scores: Tensor, is_true: Tensor, k: int) -> Tensor:
    """Return the columns of the "top C nodes by z from positive to negative and ẑ from large to small".

    The quotation is line 10 of Algorithm 3. The result has shape (n_docs, k).
    """
    k = min(k, scores.shape[1])
    n_positives = min(k, int(is_true.sum(1).max()))
    positives = scores.masked_fill(~is_true, MISSING_SCORE).topk(n_positives)
    negatives = scores.masked_fill(is_true, MISSING_SCORE).topk(k)
    columns = torch.cat([positives.indices, negatives.indices], 1)
    exists = torch.cat([positives.values, negatives.values], 1) >= 0
    return columns.gather(1, exists.char().argsort(descending=True, stable=True)[:, :k])


def binary_cross_entropy(
    logits: Tensor, targets: Tensor, mask: Tensor | None = None, loss_reduction: str = SUM
) -> Tensor:
    """Return the binary cross-entropy: the mean over documents and labels (eq. 6), or the sum over labels.

    The mean makes gradients so small that Adam's epsilon slows training down.
    """
    total = binary_cross_entropy_with_logits(logits.float(), targets, mask, reduction="sum")
    if loss_reduction == SUM:
        return total / len(logits)
    return total / (logits.numel() if mask is None else mask.sum().clamp(min=1))


def train_level(
    network: Any,
    children: np.ndarray,
    data: LevelData,
    valid: LevelData | None,
    options: TrainingOptions,
    *,
    batch: int,
    loss_reduction: str,
    run: Run,
    name: str,
    compute_loss: LevelLoss = binary_cross_entropy,
) -> None:
    """Train the network of a level with the cross-entropy (eq. 6), or another loss, of all nodes or the candidates."""
    device = get_network_device(network)
    labels, forward = LabelLoader(data.Y, device), distributed.wrap_network(network)
    children_table = torch.from_numpy(children.astype(np.int64)).to(device)

    def loss(docs: np.ndarray) -> Tensor:
        batch = data.loader.load_batch(distributed.shard_batch(docs))
        with mixed_precision(device):
            if data.parent_predictions is None:
                return compute_loss(forward(batch), labels.targets(batch.docs), None, loss_reduction)
            parents = torch.from_numpy(data.parent_predictions.labels[batch.docs].astype(np.int64)).to(device)
            candidates, exists = gather_children(parents, children_table)
            targets = labels.candidate_targets(batch.docs, candidates)
            return compute_loss(forward(batch, candidates), targets, exists.float(), loss_reduction)

    validation = None
    if valid is not None:
        predict = partial(predict_level, network, children, valid.loader, valid.parent_predictions, STOPPING_K)
        validation = Validation(predict, valid.Y)
    fit_network(
        network,
        loader=data.loader,
        loss=loss,
        validation=validation,
        options=options,
        batch=batch,
        run=run,
        name=name,
    )

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
from xmtc.methods.attention.model import MISSING, AmongChildren, answered, children_of, predict_level
from xmtc.methods.attention.network import RecurrentNetwork
from xmtc.nn import distributed
from xmtc.nn.devices import mixed
from xmtc.nn.fit import fit_network
from xmtc.nn.network import device_with, predict_with
from xmtc.nn.token_batches import LabelRows, TokenBatch, TokenLoader
from xmtc.nn.training import Plan

LOSSES = SUM, MEAN = "sum", "mean"


@dataclass(frozen=True)
class LevelData:
    """Documents, the nodes of the level that they belong to, and the nodes above whose children are candidates."""

    loader: TokenLoader
    Y: csr_array | None = None  # (n_docs, n_nodes)
    above: Predictions | None = None

    def found_by(
        self, network: RecurrentNetwork, children: np.ndarray, n_candidates: int, run: Run, positives_first: bool
    ) -> LevelData:
        """As the level below will see it: the best nodes of this one, in training the true ones before all others."""
        if not positives_first or self.Y is None:
            return replace(self, above=predict_level(network, children, self.loader, self.above, n_candidates, run))
        answering = TrueOnesFirst(network, children, self.above, self.Y)
        return replace(self, above=predict_with(answering, self.loader, n_candidates, run))


def table_of_children(edges: csr_array) -> np.ndarray:
    """The children of every node in a row, filled up with NO_LABEL."""
    counts = np.diff(edges.indptr)
    table = np.full((len(counts), counts.max()), NO_LABEL, np.int32)
    table[np.arange(counts.max()) < counts[:, None]] = edges.indices
    return table


class TrueOnesFirst(AmongChildren):
    """A network that answers as the level below is trained: all candidates are scored, the true ones are taken before
    all others, and each keeps its own ẑ."""

    def __init__(self, network: RecurrentNetwork, children: np.ndarray, above: Predictions | None, Y: csr_array):
        super().__init__(network, children, above)
        self.truth = LabelRows(Y, self.children.device)

    def best(self, batch: TokenBatch, k: int) -> tuple[Tensor, Tensor]:
        candidates, scores = self.scored(batch)
        is_true = self.truth.targets_among(batch.docs, candidates) > 0
        chosen = true_ones_first(scores, is_true & (scores >= 0), k)
        return answered(candidates, chosen, scores.gather(1, chosen))


def true_ones_first(scores: Tensor, is_true: Tensor, k: int) -> Tensor:
    """(n_docs, k) the columns of the "top C nodes by z from positive to negative and ẑ from large to small" (Algorithm
    3, line 10)."""
    k = min(k, scores.shape[1])
    most = min(k, int(is_true.sum(1).max()))
    true_ones = scores.masked_fill(~is_true, MISSING).topk(most)
    others = scores.masked_fill(is_true, MISSING).topk(k)
    columns = torch.cat([true_ones.indices, others.indices], 1)
    is_there = torch.cat([true_ones.values, others.values], 1) >= 0
    return columns.gather(1, is_there.char().argsort(descending=True, stable=True)[:, :k])


def loss_of(logits: Tensor, targets: Tensor, known: Tensor | None = None, kind: str = SUM) -> Tensor:
    """Binary cross-entropy: eq. 6, the mean over documents and labels; or summed over labels, because the mean makes
    gradients so small that Adam's epsilon holds them back."""
    total = binary_cross_entropy_with_logits(logits.float(), targets, known, reduction="sum")
    if kind == SUM:
        return total / len(logits)
    return total / (logits.numel() if known is None else known.sum().clamp(min=1))


def train_level(
    network: RecurrentNetwork,
    children: np.ndarray,
    data: LevelData,
    valid: LevelData | None,
    plan: Plan,
    *,
    batch: int,
    kind: str,
    run: Run,
    name: str,
) -> None:
    """Binary cross-entropy (eq. 6) of all nodes, or of the candidates; the best nDCG@5 of held-out documents stays."""
    assert data.Y is not None
    device = device_with(network)
    labels, forward = LabelRows(data.Y, device), distributed.shared(network)
    table = torch.from_numpy(children.astype(np.int64)).to(device)

    def loss(docs: np.ndarray) -> Tensor:
        batch = data.loader.batch(distributed.share(docs))
        with mixed(device):
            if data.above is None:
                return loss_of(forward(batch), labels.targets(batch.docs), kind=kind)
            above = torch.from_numpy(data.above.labels[batch.docs].astype(np.int64)).to(device)
            candidates, known = children_of(above, table)
            targets = labels.targets_among(batch.docs, candidates)
            return loss_of(forward(batch, candidates), targets, known.float(), kind)

    def answer(run: Run) -> Predictions:
        assert valid is not None
        return predict_level(network, children, valid.loader, valid.above, 5, run)

    fit_network(
        network,
        loader=data.loader,
        loss=loss,
        answer=answer,
        Y=None if valid is None else valid.Y,
        plan=plan,
        batch=batch,
        run=run,
        name=name,
    )

"""Training of one level of a label tree: what it learns from, and the candidates that the level above leaves it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from xmtc.base.predictions import NO_LABEL, Predictions
from xmtc.base.run import Run
from xmtc.compiled import kernel
from xmtc.methods.attention.model import children_of, predict_level
from xmtc.methods.attention.network import RecurrentNetwork
from xmtc.nn import distributed
from xmtc.nn.batches import LabelRows, TokenLoader
from xmtc.nn.devices import mixed
from xmtc.nn.fitting import fit_network
from xmtc.nn.network import device_with
from xmtc.nn.training import Plan


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
        found = predict_level(network, children, self.loader, self.above, n_candidates, run)
        if positives_first and self.Y is not None:
            Y = self.Y
            found = Predictions.trusted(true_ones_first(Y.indptr, Y.indices, found.labels), found.scores)
        return replace(self, above=found)


def table_of_children(edges: csr_array) -> np.ndarray:
    """The children of every node in a row, filled up with NO_LABEL."""
    counts = np.diff(edges.indptr)
    table = np.full((len(counts), counts.max()), NO_LABEL, np.int32)
    table[np.arange(counts.max()) < counts[:, None]] = edges.indices
    return table


@kernel
def true_ones_first(indptr, indices, found):
    """Of every document, its true nodes and then those found, as many as there is room for."""
    n_docs, width = found.shape
    out = np.full((n_docs, width), NO_LABEL, np.int32)
    for doc in range(n_docs):
        true_ones, n = indices[indptr[doc] : indptr[doc + 1]], 0
        for node in true_ones[:width]:
            out[doc, n] = node
            n += 1
        for node in found[doc]:
            if n == width or node == NO_LABEL:
                break
            if not (true_ones == node).any():
                out[doc, n] = node
                n += 1
    return out


def loss_of(logits: Tensor, targets: Tensor, known: Tensor | None = None) -> Tensor:
    """Binary cross-entropy, eq. 6, but summed over labels instead of averaged, which would make gradients so small that
    Adam's epsilon holds them back."""
    return binary_cross_entropy_with_logits(logits.float(), targets, known, reduction="sum") / len(logits)


def train_level(
    network: RecurrentNetwork,
    children: np.ndarray,
    data: LevelData,
    valid: LevelData | None,
    plan: Plan,
    *,
    batch: int,
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
                return loss_of(forward(batch), labels.targets(batch.docs))
            above = torch.from_numpy(data.above.labels[batch.docs].astype(np.int64)).to(device)
            candidates, known = children_of(above, table)
            targets = labels.targets_among(batch.docs, candidates)
            return loss_of(forward(batch, candidates), targets, known.float())

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

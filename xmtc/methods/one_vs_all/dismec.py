"""DiSMEC: one linear classifier per label against all documents, small weights dropped. Babbar, Schölkopf: DiSMEC -
Distributed Sparse Machines for Extreme Multi-label Classification (WSDM 2017).

Differs from the authors' code in: dual coordinate descent for a block of labels at a time instead of LIBLINEAR's
primal Newton for one; blocks are pruned as they are finished, so that dense weights of a block or two are all that is
ever held. Scores are σ(margin), which ranks as the margins do. The model is a label tree of a single node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.data.dataset import Dataset
from xmtc.linear.solver import BLOCK, Solver, shuffled
from xmtc.method import Method
from xmtc.methods.label_tree.model import Tree, TreeModel
from xmtc.methods.label_tree.training import FINEST, NARROW, prune
from xmtc.params import param
from xmtc.run import Run


@dataclass(frozen=True)
class DiSMEC(Method):
    """One linear classifier per label against all documents (Babbar and Schölkopf, WSDM 2017)."""

    C: float = param(1.0, "weight of the loss against the regulariser", low=1e-6)
    eps: float = param(0.005, "stop training labels when a pass moves no document by more than this part of C", low=0.0)
    max_passes: int = param(20, "passes over the documents at most; where there are many, 6", low=1)
    min_weight: float = param(0.01, "drop weights smaller than this", low=0.0)
    seed: int = param(0, "seed of the order of documents", low=0, high=2**32 - 1)

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> TreeModel:
        if run.checkpoint.folder:
            run.checkpoint.claim(f"{self} {data.fingerprint()}")
        data = data.rows(shuffled(data.n_docs, self.seed))
        by_label = csc_array(data.Y)
        starts = list(range(0, data.n_labels, BLOCK))

        def train(start: int) -> Labels:
            kept = run.checkpoint.recall(f"labels-{start}")
            if kept is not None:
                return Labels(**kept)
            labels = self._train(data, csr_array(by_label[:, start : start + BLOCK]))
            run.checkpoint.keep(f"labels-{start}", vars(labels))
            return labels

        parts = list(run.map(train, starts, "training", total=len(starts)))
        return TreeModel(data.n_labels, data.n_features, "logistic", 1, (one_node(parts, data.n_features),))

    def _train(self, data: Dataset, positives: csr_array) -> Labels:
        solver = Solver("squared_hinge", self.C, self.eps, self.max_passes, self.seed)
        weights = solver.fit(data.X, np.arange(data.n_docs), positives)
        features, ends, labels, kept, _ = prune(weights.features, weights.W, np.float32(self.min_weight))
        return Labels(weights.W[-1].copy(), features, ends, labels, kept)


@dataclass(frozen=True)
class Labels:
    """The pruned weights of a block of labels, feature by feature."""

    bias: np.ndarray
    features: np.ndarray
    ends: np.ndarray  # (len(features),) where each feature's weights end
    labels: np.ndarray  # (n,) numbered within the block
    weights: np.ndarray  # (n,) float32


def one_node(parts: list[Labels], n_features: int) -> Tree:
    """All labels as the children of one root."""
    sizes = [len(part.bias) for part in parts]
    first = np.cumsum([0, *sizes[:-1]])
    rows = np.concatenate([np.repeat(p.features, np.diff(p.ends, prepend=0).astype(np.int64)) for p in parts])
    columns = np.concatenate([part.labels + start for part, start in zip(parts, first, strict=True)])
    weights = np.concatenate([part.weights for part in parts])
    W = csr_array((weights, (rows, columns)), shape=(n_features, sum(sizes)))
    used = np.flatnonzero(np.diff(W.indptr)).astype(np.int32)
    scale = max(float(np.abs(W.data).max(initial=0)), 1e-30) / FINEST
    return Tree(
        children=np.array([0, sum(sizes)]),
        labels=np.arange(sum(sizes), dtype=np.int32),
        bias=np.concatenate([part.bias for part in parts]),
        scale=np.array([scale], np.float32),
        rows=np.array([0, len(used)]),
        features=used,
        firsts=np.array([0, W.nnz]),
        starts=np.append(W.indptr[used], W.nnz).astype(np.uint32),
        entry_child=W.indices.astype(np.uint8 if sum(sizes) <= NARROW else np.uint32),
        entry_weight=np.round(W.data / scale).astype(np.int16),
    )

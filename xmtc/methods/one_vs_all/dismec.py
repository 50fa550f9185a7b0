"""DiSMEC: one linear classifier per label against all documents, small weights dropped. Babbar, Schölkopf: DiSMEC -
Distributed Sparse Machines for Extreme Multi-label Classification (WSDM 2017).

Differs from the authors' code in: dual coordinate descent for a block of labels at a time instead of LIBLINEAR's
primal Newton for one; blocks are pruned as they are finished, so that dense weights of a block or two are all that is
ever held. Scores are σ(margin), which ranks as the margins do. The model is a label tree of a single node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.linear.packing import SparseWeights, prune_weights
from xmtc.linear.solver import Solver, make_random_order
from xmtc.methods.one_vs_all.base import BlockTrainer, OneVsAll


@dataclass(frozen=True)
class DiSMEC(OneVsAll):
    """One linear classifier per label against all documents (Babbar and Schölkopf, WSDM 2017)."""

    C: float = param(
        Solver.C, "weight of the loss against the regulariser", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    eps: float = param(
        Solver.eps, "stop training labels when a pass moves them by this part of the first or less", low=0.0, high=1e6
    )
    max_passes: int = param(
        Solver.max_passes, "passes over the documents at most; where there are many, 6", low=1, high=10_000
    )
    min_weight: float = param(0.01, "drop weights smaller than this", low=0.0, high=1e9, search=(0.001, 0.1), log=True)
    seed: int = param(0, "seed of the order of documents", low=0, high=2**32 - 1)

    def build_block_trainer(self, data: Dataset) -> BlockTrainer:
        solver = Solver(C=self.C, eps=self.eps, max_passes=self.max_passes, seed=self.seed)
        solver.check_feature_scale(data.X, data.weights)
        order = make_random_order(data.n_docs, self.seed)
        data = data.select_rows(order)
        rows = np.arange(data.n_docs)

        def train(positives: csr_array, first: int) -> SparseWeights:
            return prune_weights(solver.fit(data.X, rows, positives[order], data.weights), self.min_weight)

        return train

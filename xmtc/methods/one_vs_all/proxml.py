"""ProXML: one sparse linear classifier per label, whose rare labels count more. Babbar, Schölkopf: Data scarcity,
robustness and extreme multi-label classification (Machine Learning 108, 2019).

Against DiSMEC, an L1 penalty takes the place of dropping small weights, and a document that has the label counts as
often as the label's inverse propensity says, because some that should have it do not. The authors minimise λ‖w‖₁ + loss
by hundreds of small proximal gradient steps from zero. Differs in: a few long ones instead, each to the least of
λ‖w‖₁ + loss + ½‖w − w_before‖², found in the dual by the solver of the other linear methods. Many steps lead to the
same weights as theirs; one is the default, because on held-out documents of cve-libraries every further one lost PSP@5.
The bias is regularised by ½b². Scores are σ(margin).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.labels.propensity import Propensity
from xmtc.linear.packing import SparseWeights, prune_weights
from xmtc.linear.solver import Solver, make_random_order
from xmtc.methods.one_vs_all.base import BlockTrainer, OneVsAll


@dataclass(frozen=True)
class ProXML(OneVsAll):
    """Sparse classifiers, one per label, that weigh rare labels by propensity (Babbar and Schölkopf, 2019)."""

    C: float = param(Solver.C, "weight of the loss against the penalty", low=1e-6, high=1e9, search=(0.1, 10), log=True)
    penalty: float = param(
        0.1, "λ, of the L1 penalty: larger, and fewer weights are kept", low=1e-9, high=1e9, search=(0.01, 1), log=True
    )
    steps: int = param(1, "proximal steps, each from where the one before it ended", low=1, high=1000)
    A: float = param(Propensity.A, "propensity model: how much a label's frequency counts", low=0.0, high=10.0)
    B: float = param(Propensity.B, "propensity model: what is added to every frequency", low=1e-6, high=1e6)
    eps: float = param(
        Solver.eps, "end a step when a pass moves it by this part of its first or less", low=0.0, high=1e6
    )
    max_passes: int = param(
        Solver.max_passes, "passes over the documents of a step; where there are many, 6", low=1, high=10_000
    )
    min_weight: float = param(1e-9, "drop weights smaller than this", low=0.0, high=1e9)
    seed: int = param(0, "seed of the order of documents", low=0, high=2**32 - 1)

    def build_block_trainer(self, data: Dataset) -> BlockTrainer:
        solver = Solver(
            C=self.C, eps=self.eps, max_passes=self.max_passes, seed=self.seed, penalty=self.penalty, steps=self.steps
        )
        solver.check_feature_scale(data.X, data.weights)
        order = make_random_order(data.n_docs, self.seed)
        data = data.select_rows(order)
        rows, inverse = np.arange(data.n_docs), self.inverse_propensities(data)

        def train(positives: csr_array, first: int) -> SparseWeights:
            factors = inverse[first : first + positives.shape[1]]
            return prune_weights(solver.fit(data.X, rows, positives[order], data.weights, factors), self.min_weight)

        return train

    def inverse_propensities(self, data: Dataset) -> np.ndarray:
        """Of each label; a document of weight 2 is two."""
        weights = np.ones(data.n_docs) if data.weights is None else data.weights.astype(np.float64)
        return Propensity(self.A, self.B).inverse(csr_array(data.Y).T @ weights, weights.sum())

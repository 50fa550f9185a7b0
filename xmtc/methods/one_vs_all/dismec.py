"""DiSMEC: one linear classifier per label, with small weights pruned.

Paper: Babbar, Schölkopf: DiSMEC - Distributed Sparse Machines for Extreme Multi-label Classification (WSDM 2017).

Idea: for each label, minimise ½‖w‖² + C Σ max(0, 1 − s wᵀx)² over all documents, where s is +1 if the document has the
label and −1 otherwise, then set weights below Δ in absolute value to zero. Scores are σ(wᵀx), which ranks labels like
the margin.

Differs from the authors' code in the solver: dual coordinate descent for a block of labels instead of LIBLINEAR's
primal Newton method for one label. A block is pruned as soon as it is trained, so only a few blocks of dense weights
are in memory. The model is a label tree with a single node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.events import Convergence
from xmtc.core.hyperparameters import param
from xmtc.linear.packing import SparseWeights, prune_weights
from xmtc.linear.solver import Solver, make_random_order
from xmtc.methods.one_vs_all.base import BlockTrainer, OneVsAll

HOLDOUT_PASSES = 4  # maximum passes of a held-out model; the scores of fewer differ (docs/results/calibration.md)


@dataclass(frozen=True)
class DiSMEC(OneVsAll):
    """One linear classifier per label against all documents (Babbar and Schölkopf, WSDM 2017).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import DiSMEC
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(DiSMEC(C=2.0)).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    C: float = param(
        Solver.C, "Weight C of the loss against the regulariser.", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    eps: float = param(
        Solver.eps,
        "Relative tolerance: labels are trained until a pass changes them by this fraction of the first pass.",
        low=0.0,
        high=1e6,
    )
    max_passes: int = param(
        Solver.max_passes, "Maximum number of passes over the documents; large data uses 6.", low=1, high=10_000
    )
    min_weight: float = param(
        0.01,
        "Pruning threshold Δ: smaller absolute weights, for features of unit length, are set to zero.",
        low=0.0,
        high=1e9,
        search=(0.001, 0.1),
        log=True,
    )
    seed: int = param(0, "Random seed of the order of documents.", low=0, high=2**32 - 1)

    def for_holdout(self) -> DiSMEC:
        return self.replace(max_passes=min(HOLDOUT_PASSES, self.max_passes))

    def build_block_trainer(self, data: Dataset) -> BlockTrainer:
        solver = Solver(C=self.C, eps=self.eps, max_passes=self.max_passes, seed=self.seed)
        solver.check_feature_scale(data.X, data.weights)
        solver = solver.for_features(data.X)
        order = make_random_order(data.n_docs, self.seed)
        data = data.select_rows(order)
        rows, min_weight = np.arange(data.n_docs), self.min_weight / solver.feature_length

        def train(positives: csr_array, first: int) -> tuple[SparseWeights, Convergence]:
            dense = solver.fit(data.X, rows, positives[order], data.weights)
            return prune_weights(dense, min_weight), dense.convergence

        return train

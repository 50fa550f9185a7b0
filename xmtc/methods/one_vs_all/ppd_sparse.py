"""PPDSparse: PD-Sparse with a loss that falls apart into labels, so that they can be trained beside each other. Yen,
Huang, Dai, Ravikumar, Dhillon, Xing: PPDsparse - A Parallel Primal-Dual Sparse Method for Extreme Classification (KDD
2017).

The problem of each label is DiSMEC's with an L1 penalty added, and what is never looked at are the documents that have
no say in it. Differs from the authors' code in: documents join the active ones whenever they miss the margin,
instead of the 100 farthest by sampled margins; margins in search of them are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.linear.active_set import ActiveSetSolver, RowColumnDocuments
from xmtc.linear.packing import SparseWeights
from xmtc.linear.solver import Solver
from xmtc.methods.one_vs_all.base import BlockTrainer, OneVsAll


@dataclass(frozen=True)
class PPDSparse(OneVsAll):
    """Sparse classifiers, one per label, each trained on the documents that matter to it (Yen et al., KDD 2017)."""

    # To the digit that tests ask for; the default leaves out what hardly matters.
    quick_parameters: ClassVar[dict[str, Any]] = {"eps": 1e-3, "max_rounds": 200}

    C: float = param(
        Solver.C, "weight of the loss against the regularisers", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    penalty: float = param(
        ActiveSetSolver.penalty, "λ, of the L1 penalty: larger, and fewer weights are kept", low=0.0, high=1e9,
        search=(0.01, 1), log=True,
    )  # fmt: skip
    eps: float = param(
        ActiveSetSolver.eps,
        "stop training a label when no document moves, or misses its margin unseen, by more",
        low=1e-6,
        high=1e6,
    )
    max_rounds: int = param(ActiveSetSolver.max_rounds, "passes over the active documents at most", low=1, high=10_000)
    min_weight: float = param(0.01, "drop weights smaller than this", low=0.0, high=1e9, search=(0.001, 0.1), log=True)
    seed: int = param(0, "seed of the order of documents", low=0, high=2**32 - 1)

    def build_block_trainer(self, data: Dataset) -> BlockTrainer:
        Solver(C=self.C).check_feature_scale(data.X, data.weights)
        solver = ActiveSetSolver(self.penalty, self.eps, self.max_rounds, self.seed)
        documents = RowColumnDocuments.from_matrix(data.X, self.C, data.weights)

        def train(positives: csr_array, first: int) -> SparseWeights:
            return solver.fit(documents, positives, first, self.min_weight)

        return train

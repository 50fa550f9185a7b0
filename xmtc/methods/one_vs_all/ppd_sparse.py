"""PPDSparse: PD-Sparse with a loss that is separable by label, so labels are trained in parallel.

Paper: Yen, Huang, Dai, Ravikumar, Dhillon, Xing: PPDsparse - A Parallel Primal-Dual Sparse Method for Extreme
Classification (KDD 2017).

Idea: the problem of each label is that of DiSMEC with an L1 penalty λ‖w‖₁. Few documents are support vectors, so the
solver keeps an active set of them and never visits the others.

Differs from the authors' code in the active set: every document that violates the margin joins it, instead of the 100
with the largest violation by sampled margins. Margins in this search are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.events import Convergence
from xmtc.core.hyperparameters import param
from xmtc.linear.active_set import ActiveSetSolver, RowColumnDocuments
from xmtc.linear.packing import SparseWeights
from xmtc.linear.solver import Solver
from xmtc.methods.one_vs_all.base import BlockTrainer, OneVsAll


@dataclass(frozen=True)
class PPDSparse(OneVsAll):
    """Sparse classifiers, one per label, trained on an active set of documents (Yen et al., KDD 2017).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import PPDSparse
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(PPDSparse()).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    # the tests compare results with a reference solver, which needs a smaller tolerance than the default
    quick_parameters: ClassVar[dict[str, Any]] = {"eps": 1e-3, "max_rounds": 200}
    C: float = param(
        Solver.C, "Weight C of the loss against the regularisers.", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    penalty: float = param(
        ActiveSetSolver.penalty,
        "Weight λ of the L1 penalty; a larger value keeps fewer weights.",
        low=0.0,
        high=1e9,
        search=(0.01, 1),
        log=True,
    )
    eps: float = param(
        ActiveSetSolver.eps,
        "Tolerance: a label is trained until no update and no margin violation of an inactive document is larger.",
        low=1e-6,
        high=1e6,
    )
    max_rounds: int = param(
        ActiveSetSolver.max_rounds, "Maximum number of passes over the active documents.", low=1, high=10_000
    )
    min_weight: float = param(
        0.01,
        "Pruning threshold: smaller absolute weights, for features of unit length, are set to zero.",
        low=0.0,
        high=1e9,
        search=(0.001, 0.1),
        log=True,
    )
    seed: int = param(0, "Random seed of the order of documents.", low=0, high=2**32 - 1)

    def build_block_trainer(self, data: Dataset) -> BlockTrainer:
        Solver(C=self.C).check_feature_scale(data.X, data.weights)
        solver = ActiveSetSolver(self.penalty, self.eps, self.max_rounds, self.seed)
        documents = RowColumnDocuments.from_matrix(data.X, self.C, data.weights)
        min_weight = self.min_weight / Solver().for_features(data.X).feature_length

        def train(positives: csr_array, first: int) -> tuple[SparseWeights, Convergence]:
            return solver.fit(documents, positives, first, min_weight), Convergence()

        return train

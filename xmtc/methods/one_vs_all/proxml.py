"""ProXML: one sparse linear classifier per label, with more weight on rare labels.

Paper: Babbar, Schölkopf: Data scarcity, robustness and extreme multi-label classification (Machine Learning 108, 2019).

Idea: an L1 penalty λ‖w‖₁ replaces the pruning of DiSMEC, and the loss of a document that has the label is multiplied by
the label's inverse propensity 1/p, because labels are missing in the training data. Scores are σ(margin).

Differs from the authors' code in the optimisation. The authors minimise λ‖w‖₁ + loss with hundreds of small proximal
gradient steps from zero. Here, a step minimises λ‖w‖₁ + loss + ½‖w − w_before‖² exactly, in the dual, with the solver
of the other linear methods. Many steps lead to the same weights as the authors'. The default is one step, because on
held-out documents of cve-libraries every further step lowered PSP@5. The bias b is regularised by ½b².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.events import Convergence
from xmtc.core.hyperparameters import Presets, param
from xmtc.labels.propensity import PROPENSITY_PRESETS, Propensity
from xmtc.linear.packing import SparseWeights, prune_weights
from xmtc.linear.solver import Solver, make_random_order
from xmtc.methods.one_vs_all.base import BlockTrainer, OneVsAll


@dataclass(frozen=True)
class ProXML(OneVsAll):
    """Sparse classifiers, one per label, with propensity-weighted losses (Babbar and Schölkopf, 2019).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import ProXML
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(ProXML()).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    presets: ClassVar[Presets] = PROPENSITY_PRESETS

    preset: str = param(
        "",
        "Propensity model of a kind of data; explicit values of A and B take precedence.",
        choices=("", *PROPENSITY_PRESETS),
    )
    C: float = param(
        Solver.C, "Weight C of the loss against the penalty.", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    penalty: float = param(
        0.1,
        "Weight λ of the L1 penalty; a larger value keeps fewer weights.",
        low=1e-9,
        high=1e9,
        search=(0.01, 1),
        log=True,
    )
    steps: int = param(1, "Number of proximal steps, each starting from the previous solution.", low=1, high=1000)
    A: float = param(Propensity.A, "Parameter A of the propensity model, the weight of frequency.", low=0.0, high=10.0)
    B: float = param(Propensity.B, "Parameter B of the propensity model, added to every frequency.", low=1e-6, high=1e6)
    eps: float = param(
        Solver.eps,
        "Relative tolerance: a step ends when a pass changes the weights by this fraction of its first pass.",
        low=0.0,
        high=1e6,
    )
    max_passes: int = param(
        Solver.max_passes,
        "Maximum number of passes over the documents in a step; large data uses 6.",
        low=1,
        high=10_000,
    )
    min_weight: float = param(1e-9, "Pruning threshold: smaller absolute weights are set to zero.", low=0.0, high=1e9)
    seed: int = param(0, "Random seed of the order of documents.", low=0, high=2**32 - 1)

    def build_block_trainer(self, data: Dataset) -> BlockTrainer:
        solver = Solver(
            C=self.C, eps=self.eps, max_passes=self.max_passes, seed=self.seed, penalty=self.penalty, steps=self.steps
        )
        solver.check_feature_scale(data.X, data.weights)
        order = make_random_order(data.n_docs, self.seed)
        data = data.select_rows(order)
        rows, inverse_propensities = np.arange(data.n_docs), self.inverse_propensities(data)

        def train(positives: csr_array, first: int) -> tuple[SparseWeights, Convergence]:
            factors = inverse_propensities[first : first + positives.shape[1]]
            dense = solver.fit(data.X, rows, positives[order], data.weights, factors)
            return prune_weights(dense, self.min_weight), dense.convergence

        return train

    def inverse_propensities(self, data: Dataset) -> np.ndarray:
        """Return 1/p of each label; a document of weight 2 counts as two documents."""
        weights = np.ones(data.n_docs) if data.weights is None else data.weights.astype(np.float64)
        return Propensity(self.A, self.B).inverse(csr_array(data.Y).T @ weights, weights.sum())

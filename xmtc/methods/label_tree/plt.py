"""PLT: probabilistic label trees with logistic classifiers, so that scores are probabilities. Jasinska, Dembczyński,
Busa-Fekete, Pfannschmidt, Klerx, Hüllermeier: Extreme F-measure Maximization using Sparse Probability Estimates (ICML
2016), with trees grown as Parabel's, after napkinXC (Jasinska-Kobus et al. 2020).

Differs from napkinXC in: batch dual coordinate descent instead of LIBLINEAR or SGD. Differs from Parabel in: logistic
loss, one tree, and nodes of `arity` children, each so many levels of a binary tree made one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.labels.streaming_kmeans import build_label_vectors
from xmtc.labels.tree import build_balanced_trees, compress_tree
from xmtc.linear.model import TreeModel
from xmtc.methods.label_tree.base import ARITIES, LinearLabelTrees


@dataclass(frozen=True)
class PLT(LinearLabelTrees):
    """Probabilistic label trees with logistic classifiers (Jasinska et al., ICML 2016)."""

    loss: ClassVar[str] = "logistic"
    quick_parameters: ClassVar[dict[str, Any]] = {"max_leaf": 8, "arity": 4}

    n_trees: int = param(1, "trees, each grown from its own random start", low=1, high=1000)
    C: float = param(10.0, "weight of the loss against the regulariser", low=1e-6, high=1e9, search=(1, 100), log=True)
    arity: int = param(16, "children of an inner node at most", choices=ARITIES)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        data = data.drop_zero_weights()
        binary = build_balanced_trees(build_label_vectors(data, run), self.max_leaf, self.seeds, run)
        return self.train(data, [compress_tree(tree, self.arity.bit_length() - 1) for tree in binary], run)

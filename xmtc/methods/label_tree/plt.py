"""PLT: probabilistic label trees with logistic classifiers.

Paper: Jasinska, Dembczyński, Busa-Fekete, Pfannschmidt, Klerx, Hüllermeier: Extreme F-measure Maximization using
Sparse Probability Estimates (ICML 2016). The trees are built like those of Parabel, as napkinXC does (Jasinska-Kobus
et al. 2020).

Idea: a logistic classifier for each node estimates the probability that a document has a label below the node, given
that it has one below the parent. By the chain rule, the product along a path is the probability of the label.

Differs from napkinXC in the solver: batch dual coordinate descent instead of LIBLINEAR or SGD. Differs from Parabel in
the logistic loss, a single tree, and nodes with up to `arity` children, each made of several levels of a binary tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.linear.model import TreeModel
from xmtc.methods.label_tree.base import ARITIES, LinearLabelTrees


@dataclass(frozen=True)
class PLT(LinearLabelTrees):
    """Probabilistic label trees with logistic classifiers (Jasinska et al., ICML 2016).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import PLT
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(PLT(arity=4)).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    loss: ClassVar[str] = "logistic"
    quick_parameters: ClassVar[dict[str, Any]] = {"max_leaf": 8, "arity": 4}

    n_trees: int = param(1, "Number of trees, each built from its own random seed.", low=1, high=1000)
    C: float = param(
        10.0, "Weight C of the loss against the regulariser.", low=1e-6, high=1e9, search=(1, 100), log=True
    )
    arity: int = param(16, "Maximum number of children of an inner node.", choices=ARITIES)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        data = data.drop_zero_weights()
        return self.train(data, self.build_trees(data, self.arity, run), run)

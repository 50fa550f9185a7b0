"""Parabel: balanced binary label trees with linear classifiers in nodes and leaves.

Paper: Prabhu, Kag, Harsola, Agrawal, Varma: Parabel: Partitioned Label Trees for Extreme Classification with
Application to Dynamic Search Advertising (WWW 2018).

Idea: labels, each represented by the mean of its documents, are clustered by balanced 2-means until a leaf has at most
M labels. A linear classifier for each child of a node gives the probability that a document belongs there; the
probability of a label is the product along its path, averaged over T trees. Prediction is a beam search of width P.

Differs from the authors' code in the solver, which treats the bias separately, so 6 passes are enough for large nodes
(docs/explanation/linear-engine.md). Differs from Bonsai in that trees are binary and balanced, and therefore deeper.
With arity=16 and power=3 it is XR-Linear of PECOS (Yu, Zhong, Zhang, Chang, Dhillon 2022), except for the solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.linear.model import TreeModel
from xmtc.methods.label_tree.base import ARITIES, LinearLabelTrees

LINKS = {2: "squared_hinge", 3: "cubed_hinge"}  # by exponent


@dataclass(frozen=True)
class Parabel(LinearLabelTrees):
    """Balanced binary label trees with linear classifiers in nodes and leaves (Prabhu et al., WWW 2018).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import Parabel
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(Parabel(n_trees=1)).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"max_leaf": 8}

    arity: int = param(
        2, "Maximum number of children of an inner node; 16 is faster and more accurate.", choices=ARITIES
    )
    power: int = param(
        2, "Exponent of the hinge loss in the node probability; 3 is more accurate.", choices=tuple(LINKS)
    )

    @property
    def link(self) -> str:
        return LINKS[self.power]

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        data = data.drop_zero_weights()
        return self.train(data, self.build_trees(data, self.arity, run), run)

"""Parabel: balanced label trees with linear classifiers in nodes and leaves.

Paper: Prabhu, Kag, Harsola, Agrawal, Varma: Parabel: Partitioned Label Trees for Extreme Classification with
Application to Dynamic Search Advertising (WWW 2018).

Idea: labels, each represented by the mean of its documents, are clustered by balanced 2-means until a leaf has at most
M labels. A linear classifier for each child of a node gives the probability that a document belongs there; the
probability of a label is the product along its path, averaged over T trees. Prediction is a beam search of width P.

Differences from the paper by default; preset=paper removes them: an inner node has up to 16 children instead of 2, and
the exponent of the hinge loss in the node probability is 3 instead of 2. Both are the settings of XR-Linear of PECOS
(Yu, Zhong, Zhang, Chang, Dhillon 2022). Held-out nDCG@5 is higher on five of seven corpora and the same within 0.1 on
the others (benchmarks/results/parabel-defaults.json). Differs from the authors' code in the solver, which treats the
bias separately, so 6 passes are enough for large nodes (docs/explanation/linear-engine.md). Differs from Bonsai in that
the trees are balanced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.run import Run
from xmtc.linear.model import TreeModel
from xmtc.methods.label_tree.base import ARITIES, LinearLabelTrees

LINKS = {2: "squared_hinge", 3: "cubed_hinge"}  # by exponent


@dataclass(frozen=True)
class Parabel(LinearLabelTrees):
    """Balanced label trees with linear classifiers in nodes and leaves (Prabhu et al., WWW 2018).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import Parabel
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(Parabel(n_trees=1)).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    presets: ClassVar[Presets] = {"paper": {"arity": 2, "power": 2}}
    quick_parameters: ClassVar[dict[str, Any]] = {"max_leaf": 8}

    arity: int = param(16, "Maximum number of children of an inner node.", choices=ARITIES)
    power: int = param(3, "Exponent of the hinge loss in the node probability.", choices=tuple(LINKS))
    preset: str = param("", "Settings of the paper: binary trees, squared hinge loss.", choices=("", *presets))

    @property
    def link(self) -> str:
        return LINKS[self.power]

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        data = data.drop_zero_weights()
        return self.train(data, self.build_trees(data, self.arity, run), run)

"""FastXML: a forest over documents whose splits optimise nDCG.

Paper: Prabhu, Varma: FastXML: A Fast, Accurate and Stable Tree-classifier for Extreme Multi-label Learning (KDD 2014).

Idea: a node divides its documents into two sides δ = ±1 with label rankings r⁺ and r⁻, so that each document has a high
nDCG in the ranking of its side, and a sparse linear separator w predicts the side (equation 2). A leaf stores the label
distribution of its documents; the score of a label is the mean over the leaves that a document reaches.

Differs from the authors' code in that columns whose weight the L1 regulariser certainly keeps at zero are not built.
Differs from Parabel in that trees divide documents, not labels, and a document follows a single path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.methods.instance_tree.base import InstanceTrees
from xmtc.methods.instance_tree.model import ForestModel


@dataclass(frozen=True)
class FastXML(InstanceTrees):
    """Forest over documents, split by nDCG (Prabhu and Varma, KDD 2014).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import FastXML
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> method = FastXML(n_trees=10, max_leaf=2, C=10.0)
    >>> classifier = Classifier(method).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> ForestModel:
        equal = np.ones(data.n_labels)
        forest = self.grow_forest(data, equal, equal, is_normalised=True, run=run)
        return ForestModel(n_labels=data.n_labels, views=data.sizes, forest=forest)

"""FastXML: a forest over documents, split so that each side ranks its labels best. Prabhu, Varma: FastXML: A Fast,
Accurate and Stable Tree-classifier for Extreme Multi-label Learning (KDD 2014).

Differs from the authors' code in: columns that the regulariser is sure to keep at 0 are never built. Differs from
Parabel in: trees divide documents, not labels, and a document goes down one path.
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
    """A forest over documents, split by nDCG (Prabhu and Varma, KDD 2014)."""

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> ForestModel:
        forest = self.grow_forest(data, np.ones(data.n_labels), run)
        return ForestModel(n_labels=data.n_labels, views=data.sizes, forest=forest)

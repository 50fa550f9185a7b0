"""Parabel: balanced binary label trees with linear classifiers in nodes and leaves. Prabhu, Kag, Harsola, Agrawal,
Varma: Parabel: Partitioned Label Trees for Extreme Classification (WWW 2018).

Differs from the authors' code in: the solver, which sets the bias apart, so that 6 passes are enough for large nodes
(docs/results/linear-engine.md). Differs from Bonsai in: trees are binary and balanced, and so deeper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.base.dataset import Dataset
from xmtc.base.run import Run
from xmtc.labels.tree import balanced_binary_trees
from xmtc.labels.vectors import LabelVectors
from xmtc.linear.model import TreeModel
from xmtc.methods.label_tree.family import LinearTrees


@dataclass(frozen=True)
class Parabel(LinearTrees):
    """Balanced binary label trees with linear classifiers in nodes and leaves (Prabhu et al., WWW 2018)."""

    tiny: ClassVar[dict[str, Any]] = {"max_leaf": 8}

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> TreeModel:
        data = data.without_weightless()
        vectors = LabelVectors.from_documents(data, run)
        return self.train(data, balanced_binary_trees(vectors, self.max_leaf, self.seeds, run), run)

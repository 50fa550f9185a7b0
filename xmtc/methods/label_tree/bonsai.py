"""Bonsai: shallow label trees of many children, grown by k-means without balance. Khandagale, Xiao, Babbar: Bonsai -
Diverse and Shallow Trees for Extreme Multi-label Classification (2019; Machine Learning 2020).

Differs from the authors' code in: the solver, as in Parabel. Differs from Parabel in: a node has up to 100 children of
unequal size, so that a tree is two or three levels deep; labels may be clustered by the labels they occur with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.labels.tree import build_wide_trees
from xmtc.labels.vectors import LabelVectors
from xmtc.linear.model import TreeModel
from xmtc.methods.label_tree.base import LinearLabelTrees

LABEL_SPACES = {
    "input": LabelVectors.from_documents,
    "output": LabelVectors.from_labels,
    "joint": LabelVectors.from_both,
}


@dataclass(frozen=True)
class Bonsai(LinearLabelTrees):
    """Shallow label trees of many children, grown by unbalanced k-means (Khandagale et al. 2019)."""

    quick_parameters: ClassVar[dict[str, Any]] = {"max_leaf": 8, "arity": 5}

    arity: int = param(100, "children of a node at most", low=2)
    max_depth: int = param(3, "levels at most, the labels' own included", low=1, high=64)
    space: str = param(
        "input",
        "cluster labels by their documents, companions, or both",
        choices=tuple(LABEL_SPACES),
        search=tuple(LABEL_SPACES),
    )

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        data = data.drop_zero_weights()
        trees = build_wide_trees(
            LABEL_SPACES[self.space](data, run), self.max_leaf, self.arity, self.max_depth, self.seeds, run
        )
        return self.train(data, trees, run)

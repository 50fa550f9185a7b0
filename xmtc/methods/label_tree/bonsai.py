"""Bonsai: shallow and wide label trees, built by unbalanced k-means.

Paper: Khandagale, Xiao, Babbar: Bonsai - Diverse and Shallow Trees for Extreme Multi-label Classification (2019;
Machine Learning 2020).

Idea: a node has up to K = 100 children of unequal size, so a tree has two or three levels, and an error near the root
costs less than in the deep trees of Parabel. Labels are represented by their documents (the paper's input space), by
the labels they occur with (output space) or by both (joint space), and clustered by k-means without a balance
constraint.

Differs from the authors' code in the solver, as Parabel does.
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
    """Shallow and wide label trees, built by unbalanced k-means (Khandagale et al. 2019).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import Bonsai
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(Bonsai()).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"max_leaf": 8, "arity": 5}

    arity: int = param(100, "Maximum number of children K of a node.", low=2)
    max_depth: int = param(3, "Maximum depth of a tree, including the level of the labels.", low=1, high=64)
    space: str = param(
        "input",
        "Label representation for clustering: documents (input), co-occurring labels (output) or both (joint).",
        choices=tuple(LABEL_SPACES),
        search=tuple(LABEL_SPACES),
    )

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        data = data.drop_zero_weights()
        trees = build_wide_trees(
            LABEL_SPACES[self.space](data, run), self.max_leaf, self.arity, self.max_depth, self.seeds, run
        )
        return self.train(data, trees, run)

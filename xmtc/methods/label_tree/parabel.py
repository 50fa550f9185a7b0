"""Parabel: balanced binary label trees with linear classifiers in nodes and leaves. Prabhu, Kag, Harsola, Agrawal,
Varma: Parabel: Partitioned Label Trees for Extreme Classification (WWW 2018).

Differs from the authors' code in: the solver, which sets the bias apart, so that 6 passes are enough for large nodes
(docs/results/linear-engine.md). Differs from Bonsai in: trees are binary and balanced, and so deeper. With arity=16 and
power=3 it is PECOS's XR-Linear (Yu, Zhong, Zhang, Chang, Dhillon 2022) in all but the solver.
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

LINKS = {2: "squared_hinge", 3: "cubed_hinge"}


@dataclass(frozen=True)
class Parabel(LinearLabelTrees):
    """Balanced binary label trees with linear classifiers in nodes and leaves (Prabhu et al., WWW 2018)."""

    quick_parameters: ClassVar[dict[str, Any]] = {"max_leaf": 8}

    arity: int = param(2, "children of an inner node at most; 16 is faster and more accurate", choices=ARITIES)
    power: int = param(
        2, "of what a margin lacks of 1, taken from the log probability; 3 is more accurate", choices=tuple(LINKS)
    )

    @property
    def link(self) -> str:
        return LINKS[self.power]

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        data = data.drop_zero_weights()
        binary = build_balanced_trees(build_label_vectors(data, run), self.max_leaf, self.seeds, run)
        return self.train(data, [compress_tree(tree, self.arity.bit_length() - 1) for tree in binary], run)

"""Parabel: balanced binary label trees with linear classifiers in nodes and leaves. Prabhu, Kag, Harsola, Agrawal,
Varma: Parabel: Partitioned Label Trees for Extreme Classification (WWW 2018).

Differs from the authors' code in: all leaves lie equally deep (the labels are halved level by level), and documents
that reach a node are solved for all its children side by side, in one shuffled order, until the whole block is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from xmtc.data.dataset import Dataset
from xmtc.labels.tree import balanced_binary_trees
from xmtc.labels.vectors import LabelVectors
from xmtc.linear.solver import Solver
from xmtc.method import Method
from xmtc.methods.label_tree.model import TreeModel
from xmtc.methods.label_tree.training import train_trees
from xmtc.params import param
from xmtc.run import Run


@dataclass(frozen=True)
class Parabel(Method):
    """Balanced binary label trees with linear classifiers in nodes and leaves (Prabhu et al., WWW 2018)."""

    n_trees: int = param(3, "trees, each grown from its own random start", low=1)
    max_leaf: int = param(100, "labels in a leaf at most", low=1, high=65535)
    C: float = param(1.0, "weight of the loss against the regulariser", low=1e-6)
    eps: float = param(0.03, "stop training a node when a pass moves no document by more than this part of C", low=0.0)
    max_passes: int = param(6, "passes over a node's documents at most", low=1)
    min_weight: float = param(0.1, "drop weights smaller than this", low=0.0)
    beam: int = param(10, "nodes kept per level when predicting", low=1)
    seed: int = param(0, "seed of the trees", low=0, high=2**32 - 1)

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> TreeModel:
        vectors = LabelVectors.from_documents(data, run)
        seeds = [(self.seed, tree) for tree in range(self.n_trees)]
        trees = balanced_binary_trees(vectors, self.max_leaf, seeds, run)
        solver = Solver("squared_hinge", self.C, self.eps, self.max_passes, self.seed)
        trained = train_trees(data, trees, solver, self.min_weight, run)
        return TreeModel(data.n_labels, data.n_features, "squared_hinge", self.beam, trained)

"""What Parabel, Bonsai and PLT have in common: how the nodes of a tree are trained and searched. They differ in how
their trees are grown, and in the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.labels.tree import LabelTree, SeedKey
from xmtc.linear.model import TreeModel
from xmtc.linear.solver import Solver
from xmtc.linear.tree_training import TreeTrainer

CHEAP_TREE_NODE_VISITS = 5_000_000  # for each of many nodes: as accurate as with more (docs/results/linear-engine.md)
ARITIES = (2, 4, 8, 16, 32, 64)  # of trees made from binary ones


def make_tiny_dataset(n_docs: int = 120, n_features: int = 40, n_labels: int = 60) -> Dataset:
    """Documents of which it only matters that they are few."""
    documents, features, labels = np.arange(n_docs)[:, None], np.arange(n_features), np.arange(n_labels)
    X = (documents * features % 7 == 1).astype(np.float32)
    Y = (documents % n_labels == labels) | (documents % 9 == labels)
    return Dataset.from_matrix(csr_array(X), csr_array(Y.astype(np.float32)))


@dataclass(frozen=True)
class LinearLabelTrees(Method):
    """Label trees with linear classifiers. A subclass grows the trees in `fit` and hands them to `train`."""

    has_weight_support: ClassVar[bool] = True
    has_cluster_support: ClassVar[bool] = True
    has_workdir_support: ClassVar[bool] = True
    loss: ClassVar[str] = "squared_hinge"

    n_trees: int = param(3, "trees, each grown from its own random start", low=1, high=1000)
    max_leaf: int = param(100, "labels of a node that is not divided any further", low=1, search=(20, 500), log=True)
    C: float = param(
        Solver.C, "weight of the loss against the regulariser", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    eps: float = param(
        Solver.eps, "stop training a node when a pass moves it by this part of the first or less", low=0.0, high=1e6
    )
    max_passes: int = param(
        Solver.max_passes,
        "passes over a node's documents at most; nodes with much data take 6, or 4 if they have two children",
        low=1,
        high=10_000,
    )
    min_weight: float = param(0.1, "drop weights smaller than this", low=0.0, high=1e9, search=(0.01, 0.3), log=True)
    match_negatives: bool = param(False, "train nodes also on documents that the levels above let through")
    beam: int = param(10, "nodes in question at a time, and leaves looked at, in a search; 0: all it takes", low=0)
    seed: int = param(0, "seed of the trees", low=0, high=2**32 - 1)

    @property
    def link(self) -> str:
        """How margins become probabilities, as TreeModel has it."""
        return self.loss

    @property
    def seeds(self) -> list[SeedKey]:
        """One for each tree, none of which another seed shares."""
        return [(self.seed, tree) for tree in range(self.n_trees)]

    def load_kernels(self) -> None:
        """By a tree of some labels, with inner nodes and leaves of two children and of more."""
        self.replace(n_trees=1, max_leaf=8).fit(make_tiny_dataset(), run=Run(threads=1))

    def train(self, data: Dataset, trees: list[LabelTree], run: Run) -> TreeModel:
        solver = Solver(self.loss, self.C, self.eps, self.max_passes, self.seed, cheap_visits=CHEAP_TREE_NODE_VISITS)
        solver.check_feature_scale(data.X, data.weights)
        min_weight = self.min_weight * data.bag.weight_scale
        trainer = TreeTrainer(
            solver, self.link, min_weight=min_weight, beam=self.beam, should_match_negatives=self.match_negatives
        )
        return trainer.train(data, trees, run)

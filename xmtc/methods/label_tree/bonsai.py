"""Bonsai: shallow label trees of many children, grown by k-means without balance. Khandagale, Xiao, Babbar: Bonsai -
Diverse and Shallow Trees for Extreme Multi-label Classification (2019; Machine Learning 2020).

Differs from the authors' code in: the solver, as in Parabel. Differs from Parabel in: a node has up to 100 children of
unequal size, so that a tree is two or three levels deep; labels may be clustered by the labels they occur with.
"""

from __future__ import annotations

from dataclasses import dataclass

from xmtc.data.dataset import Dataset
from xmtc.labels.tree import wide_trees
from xmtc.labels.vectors import LabelVectors
from xmtc.linear.solver import Solver
from xmtc.method import Method
from xmtc.methods.label_tree.model import TreeModel
from xmtc.methods.label_tree.training import TreeTrainer
from xmtc.params import param
from xmtc.run import Run

SPACES = {
    "input": LabelVectors.from_documents,
    "output": LabelVectors.from_labels,
    "joint": LabelVectors.from_both,
}


@dataclass(frozen=True)
class Bonsai(Method):
    """Shallow label trees of many children, grown by unbalanced k-means (Khandagale et al. 2019)."""

    n_trees: int = param(3, "trees, each grown from its own random start", low=1)
    arity: int = param(100, "children of a node at most", low=2)
    max_leaf: int = param(100, "labels of a node that is not divided any further", low=1)
    max_depth: int = param(3, "levels at most, the labels' own included", low=1, high=64)
    space: str = param("input", "cluster labels by their documents, companions, or both", choices=tuple(SPACES))
    C: float = param(1.0, "weight of the loss against the regulariser", low=1e-6)
    eps: float = param(0.005, "stop training a node when a pass moves no document by more than this part of C", low=0.0)
    max_passes: int = param(20, "passes over a node's documents at most; nodes with much data take 6", low=1)
    min_weight: float = param(0.1, "drop weights smaller than this", low=0.0)
    match_negatives: bool = param(False, "train nodes also on documents that the levels above let through")
    beam: int = param(10, "nodes kept per level when predicting; 0 searches exactly, best node first", low=0)
    seed: int = param(0, "seed of the trees", low=0, high=2**32 - 1)

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> TreeModel:
        vectors = SPACES[self.space](data, run)
        seeds = [(self.seed, tree) for tree in range(self.n_trees)]
        trees = wide_trees(vectors, self.max_leaf, self.arity, self.max_depth, seeds, run)
        solver = Solver("squared_hinge", self.C, self.eps, self.max_passes, self.seed)
        return TreeTrainer(solver, self.min_weight, self.beam, self.match_negatives).train(data, trees, run)

"""PLT: probabilistic label trees with logistic classifiers, so that scores are probabilities. Jasinska, Dembczyński,
Busa-Fekete, Pfannschmidt, Klerx, Hüllermeier: Extreme F-measure Maximization using Sparse Probability Estimates (ICML
2016), with trees grown as Parabel's, after napkinXC (Jasinska-Kobus et al. 2020).

Differs from napkinXC in: batch dual coordinate descent instead of LIBLINEAR or SGD. Differs from Parabel in: logistic
loss, one tree, and nodes of `arity` children, each so many levels of a binary tree made one.
"""

from __future__ import annotations

from dataclasses import dataclass

from xmtc.data.dataset import Dataset
from xmtc.labels.tree import balanced_binary_trees, compressed
from xmtc.labels.vectors import LabelVectors
from xmtc.linear.solver import Solver
from xmtc.method import Method
from xmtc.methods.label_tree.model import TreeModel
from xmtc.methods.label_tree.training import TreeTrainer
from xmtc.params import param
from xmtc.run import Run


@dataclass(frozen=True)
class PLT(Method):
    """Probabilistic label trees with logistic classifiers (Jasinska et al., ICML 2016)."""

    n_trees: int = param(1, "trees, each grown from its own random start", low=1)
    arity: int = param(16, "children of an inner node at most", choices=(2, 4, 8, 16, 32, 64))
    max_leaf: int = param(100, "labels in a leaf at most", low=1)
    C: float = param(10.0, "weight of the loss against the regulariser", low=1e-6)
    eps: float = param(0.005, "stop training a node when a pass moves no document by more than this part of C", low=0.0)
    max_passes: int = param(20, "passes over a node's documents at most; nodes with much data take 6", low=1)
    min_weight: float = param(0.1, "drop weights smaller than this", low=0.0)
    match_negatives: bool = param(False, "train nodes also on documents that the levels above let through")
    beam: int = param(10, "nodes kept per level when predicting; 0 searches exactly, best node first", low=0)
    seed: int = param(0, "seed of the trees", low=0, high=2**32 - 1)

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> TreeModel:
        vectors = LabelVectors.from_documents(data, run)
        seeds = [(self.seed, tree) for tree in range(self.n_trees)]
        binary = balanced_binary_trees(vectors, self.max_leaf, seeds, run)
        trees = [compressed(tree, self.arity.bit_length() - 1) for tree in binary]
        solver = Solver("logistic", self.C, self.eps, self.max_passes, self.seed)
        return TreeTrainer(solver, self.min_weight, self.beam, self.match_negatives).train(data, trees, run)

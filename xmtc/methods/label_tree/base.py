"""Base class of Parabel, Bonsai and PLT: training and search of label trees with linear classifiers.

The methods differ in how they build the trees and in the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.dataset_change import DatasetChange, ModelUpdate
from xmtc.core.hyperparameters import param
from xmtc.core.method import Method, Model
from xmtc.core.run import Run
from xmtc.labels.streaming_kmeans import build_label_vectors
from xmtc.labels.tree import LabelTree, SeedKey, build_balanced_trees, compress_tree
from xmtc.linear.model import MAX_PRECISION, PRECISION_PARAM, TreeModel
from xmtc.linear.solver import Solver
from xmtc.linear.tree_training import TreeTrainer
from xmtc.linear.tree_update import update_trees

# Documents × passes after which a node stops early (docs/explanation/linear-engine.md).
CHEAP_TREE_NODE_VISITS = 5_000_000
HOLDOUT_TREE_SHARE = 0.6  # of the trees in a held-out model; the scores of fewer differ (docs/results/calibration.md)
ARITIES = (2, 4, 8, 16, 32, 64)  # powers of two, because wide trees are compressed binary trees


def make_tiny_dataset(n_docs: int = 120, n_features: int = 40, n_labels: int = 60) -> Dataset:
    """Return a small synthetic data set for loading compiled code."""
    documents, features, labels = np.arange(n_docs)[:, None], np.arange(n_features), np.arange(n_labels)
    X = (documents * features % 13 == 1).astype(np.float32)  # sparse: dense features have another solver
    Y = (documents % n_labels == labels) | (documents % 9 == labels)
    return Dataset.from_matrix(csr_array(X), csr_array(Y.astype(np.float32)))


@dataclass(frozen=True)
class LinearLabelTrees(Method):
    """Label trees with linear classifiers; a subclass builds the trees in `fit` and passes them to `train`."""

    has_weight_support: ClassVar[bool] = True
    has_cluster_support: ClassVar[bool] = True
    has_workdir_support: ClassVar[bool] = True
    view_defaults: ClassVar[dict[str, Any]] = {"unit_length": True}  # as in the authors' code
    loss: ClassVar[str] = "squared_hinge"

    n_trees: int = param(3, "Number of trees T, each built from its own random seed.", low=1, high=1000)
    max_leaf: int = param(100, "Maximum number of labels M in a leaf.", low=1, search=(20, 500), log=True)
    C: float = param(
        Solver.C, "Weight C of the loss against the regulariser.", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    eps: float = param(
        Solver.eps,
        "Relative tolerance: a node is trained until a pass changes it by this fraction of the first pass.",
        low=0.0,
        high=1e6,
    )
    max_passes: int = param(
        Solver.max_passes,
        "Maximum number of passes over a node's documents; large nodes use 6, or 4 with two children.",
        low=1,
        high=10_000,
    )
    min_weight: float = param(
        0.1,
        "Pruning threshold Δ: smaller absolute weights, for features of unit length, are set to zero.",
        low=0.0,
        high=1e9,
        search=(0.01, 0.3),
        log=True,
    )
    match_negatives: bool = param(
        False, "Matcher-aware negatives: nodes are also trained on documents that the levels above route to them."
    )
    beam: int = param(10, "Beam width P of the search; 0 searches exhaustively.", low=0)
    precision: int = PRECISION_PARAM
    seed: int = param(0, "Random seed of the trees.", low=0, high=2**32 - 1)

    @property
    def link(self) -> str:
        """Function from margins to probabilities, one of the links of TreeModel."""
        return self.loss

    @property
    def seeds(self) -> list[SeedKey]:
        """Seeds of the trees, which no other value of `seed` shares."""
        return [(self.seed, tree) for tree in range(self.n_trees)]

    def for_holdout(self) -> LinearLabelTrees:
        return self.replace(n_trees=ceil(HOLDOUT_TREE_SHARE * self.n_trees))

    def load_kernels(self) -> None:
        # max_leaf=8 gives inner nodes and leaves with two children and with more, which use different kernels
        data, run = make_tiny_dataset(), Run(threads=1)
        self.replace(n_trees=1, max_leaf=8).fit(data, run=run).predict(data, run=run)

    def build_trees(self, data: Dataset, arity: int, run: Run) -> list[LabelTree]:
        """Return balanced trees with up to `arity` children per node, compressed from binary trees."""
        binary_trees = build_balanced_trees(build_label_vectors(data, run), self.max_leaf, self.seeds, run)
        return [compress_tree(tree, arity.bit_length() - 1) for tree in binary_trees]

    def train(self, data: Dataset, trees: list[LabelTree], run: Run) -> TreeModel:
        """Train the linear classifiers of all nodes."""
        return self.build_trainer(data).train(data, trees, run).with_precision(self.precision)

    def update(self, model: Model, change: DatasetChange, run: Run) -> ModelUpdate | None:
        """Keep the trees and train the classifiers that a change affects."""
        if not isinstance(model, TreeModel) or self.match_negatives or self.precision != MAX_PRECISION:
            return None
        if change.new.weights is not None:
            return None
        updated = update_trees(self.build_trainer(change.new), model.trees, change, run, self.max_leaf)
        if updated is None:
            return None
        trees = tuple(result.tree for result in updated)
        return ModelUpdate(
            replace(model, n_labels=change.new.n_labels, views=change.new.sizes, trees=trees),
            sum(result.n_trained for result in updated),
            sum(len(tree.bias) for tree in trees),
            np.concatenate([result.pending for result in updated]),
        )

    def build_trainer(self, data: Dataset) -> TreeTrainer:
        """Return the trainer of the nodes for some documents."""
        solver = Solver(self.loss, self.C, self.eps, self.max_passes, self.seed, cheap_visits=CHEAP_TREE_NODE_VISITS)
        solver.check_feature_scale(data.X, data.weights)
        solver = solver.for_features(data.X)
        min_weight = self.min_weight * data.bag.weight_scale / solver.feature_length
        return TreeTrainer(
            solver, self.link, min_weight=min_weight, beam=self.beam, should_match_negatives=self.match_negatives
        )

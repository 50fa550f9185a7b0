"""Gradient-boosted trees of scikit-learn as plain arrays, which a model folder can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.core.run import Run
from xmtc.storage.form import Form, array

LEAF = -1  # in place of the feature of a node
BLOCK_ROWS = 4096  # rows that a thread evaluates at a time


@dataclass(frozen=True, kw_only=True)
class BoostedTrees(Form):
    """Binary classifier: the sigmoid of a baseline and one value of each tree. Nodes of all trees are concatenated."""

    n_features: int
    baseline: float
    roots: np.ndarray = array(np.int32)  # (n_trees,), first node of each tree
    features: np.ndarray = array(np.int32)  # (n_nodes,), feature that a node tests, or LEAF
    thresholds: np.ndarray = array(np.float64)  # (n_nodes,), highest value of the left child
    left: np.ndarray = array(np.int32)  # (n_nodes,)
    right: np.ndarray = array(np.int32)  # (n_nodes,)
    values: np.ndarray = array(np.float64)  # (n_nodes,), log-odds that a leaf adds

    @classmethod
    def from_classifier(cls, classifier: Any) -> BoostedTrees:
        """Return the trees of a fitted HistGradientBoostingClassifier of two classes and numeric features."""
        trees = [predictor.nodes for (predictor,) in classifier._predictors]
        roots = np.cumsum([0, *(len(nodes) for nodes in trees)])[:-1].astype(np.int32)
        first = np.repeat(roots, [len(nodes) for nodes in trees])
        nodes = np.concatenate(trees)
        is_leaf = nodes["is_leaf"].astype(bool)
        return cls(
            n_features=classifier.n_features_in_,
            baseline=float(classifier._baseline_prediction.item()),
            roots=roots,
            features=np.where(is_leaf, LEAF, nodes["feature_idx"]).astype(np.int32),
            thresholds=np.where(is_leaf, 0.0, nodes["num_threshold"]).clip(-1e300, 1e300),
            left=np.where(is_leaf, 0, first + nodes["left"]).astype(np.int32),
            right=np.where(is_leaf, 0, first + nodes["right"]).astype(np.int32),
            values=nodes["value"].astype(np.float64),
        )

    def predict_proba(self, X: np.ndarray, run: Run = Run()) -> np.ndarray:
        """Return the probability of the positive class of each row, (n_rows,) float64."""
        log_odds = np.full(len(X), self.baseline)
        nodes = (self.roots, self.features, self.thresholds, self.left, self.right, self.values)

        def evaluate(first: int) -> None:
            block = slice(first, first + BLOCK_ROWS)
            add_tree_values(X[block], *nodes, log_odds[block])

        with run.open_thread_map() as map_blocks:
            for _ in map_blocks(evaluate, range(0, len(X), BLOCK_ROWS)):
                pass
        return 1 / (1 + np.exp(-log_odds))

    def check(self) -> None:
        n_nodes = len(self.features)
        if {len(part) for part in (self.thresholds, self.left, self.right, self.values)} != {n_nodes}:
            raise ValueError("the arrays of the trees have different lengths")
        if len(self.roots) and not 0 <= self.roots.min() <= self.roots.max() < n_nodes:
            raise ValueError(f"roots is out of range; expected numbers below {n_nodes}")
        inner = np.flatnonzero(self.features != LEAF)
        if len(inner) and not 0 <= self.features[inner].min() <= self.features[inner].max() < self.n_features:
            raise ValueError(f"features is out of range; expected {LEAF} or numbers below {self.n_features}")
        for children in (self.left[inner], self.right[inner]):  # a child after its parent: no cycles
            if (children <= inner).any() or (children >= n_nodes).any():
                raise ValueError("left or right is not a later node")


@kernel
def add_tree_values(X, roots, features, thresholds, left, right, values, log_odds):
    """Add the values of the leaves that each row reaches to its log-odds."""
    for row in range(len(X)):
        for tree in range(len(roots)):
            node = roots[tree]
            while features[node] >= 0:
                node = left[node] if X[row, features[node]] <= thresholds[node] else right[node]
            log_odds[row] += values[node]

"""Base class of FastXML and PfastreXML: training of a forest over documents.

The methods differ in the weights of the labels; PfastreXML also re-ranks the labels of the leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.memory import check_fits
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.core.sparse import to_kernel_arrays
from xmtc.methods.instance_tree.forest import TREE_ARRAYS, Forest
from xmtc.methods.instance_tree.tree_growth import grow_tree


@dataclass(frozen=True)
class InstanceTrees(Method):
    """Forest over documents; a subclass computes label weights and passes them to `grow_forest`."""

    has_cluster_support: ClassVar[bool] = True
    quick_parameters: ClassVar[dict[str, Any]] = {"C": 10.0}

    n_trees: int = param(50, "Number of trees T, each grown from its own random seed.", low=1, high=10_000)
    max_leaf: int = param(10, "Maximum number of documents in a leaf (MaxLeaf).", low=1, search=(5, 50), log=True)
    leaf_labels: int = param(100, "Maximum number of labels that a leaf stores.", low=1)
    C: float = param(
        1.0, "Weight C_δ of the loss against the regulariser.", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    seed: int = param(0, "Random seed of the trees.", low=0, high=2**32 - 1)

    def grow_forest(
        self, data: Dataset, split_weights: np.ndarray, leaf_weights: np.ndarray, is_normalised: bool, run: Run
    ) -> Forest:
        """Grow all trees, one per thread at a time.

        Splits maximise the nDCG, or the DCG if not `is_normalised`, with `split_weights`. Leaves store the label
        frequencies times `leaf_weights`. Weights are at most 1.
        """
        claim_checkpoint(run, self, data)
        check_fits(
            run.n_threads * estimate_tree_bytes(data), f"Growing {run.n_threads} trees in parallel", "use fewer threads"
        )
        gains, discounts = compute_gains(data, split_weights, is_normalised)
        X, Y = to_kernel_arrays(data.X), (*to_kernel_arrays(data.Y)[:2], gains)

        limits = self.C, min(self.max_leaf, data.n_docs), min(self.leaf_labels, data.n_labels)
        n_features, seed = data.X.shape[1], self.seed

        def grow(number: int) -> dict[str, np.ndarray]:
            arrays = grow_tree(X, Y, discounts, leaf_weights, n_features, *limits, derive_tree_state(seed, number))
            return dict(zip(TREE_ARRAYS, arrays, strict=True))

        trees = run.map_with_checkpoint(grow, range(self.n_trees), lambda number: f"tree-{number}", "growing trees")
        return Forest.from_trees(list(trees))


def derive_tree_state(seed: int, tree: int) -> np.uint64:
    """Return the non-zero initial state of a tree's random generator, which no other seed shares."""
    return np.random.SeedSequence((seed, tree)).generate_state(1, np.uint64)[0] | np.uint64(1)


def compute_gains(
    data: Dataset, label_weights: np.ndarray, is_normalised: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gain at rank 1 of each entry of Y, and the discounts of the ranks (FastXML, section 4.1).

    Gains in the nDCG are divided by the ideal DCG of the document, gains in the DCG are not.
    """
    Y = data.Y
    assert Y is not None
    discounts = 1 / np.log2(np.arange(Y.shape[1]) + 2)
    if not is_normalised:
        return label_weights[Y.indices], discounts
    counts = np.diff(Y.indptr)
    ideal_dcg = np.concatenate([[1.0], np.cumsum(discounts)])[counts]
    return label_weights[Y.indices] / np.repeat(ideal_dcg, counts), discounts


def estimate_tree_bytes(data: Dataset) -> int:
    """Return the maximum working memory for growing one tree.

    It holds the documents by column, and arrays with an entry for each document, feature or label.
    """
    assert data.Y is not None
    return 8 * (data.X.nnz + data.n_docs) + 120 * data.n_docs + 80 * data.X.shape[1] + 24 * data.n_labels

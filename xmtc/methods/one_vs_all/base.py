"""Base class of the one-vs-all methods DiSMEC, PPDSparse and ProXML.

Labels are trained independently of each other, in blocks, and the model is a label tree with a single node. The methods
differ in the loss, the regulariser and the solver.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array
from threadpoolctl import threadpool_limits

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.dataset_change import DatasetChange, ModelUpdate
from xmtc.core.events import Convergence
from xmtc.core.method import Method, Model
from xmtc.core.run import Run
from xmtc.linear.flat_update import update_flat_tree
from xmtc.linear.model import EXHAUSTIVE_BEAM, MAX_PRECISION, PRECISION_PARAM, TreeModel
from xmtc.linear.packing import (
    MAX_CHUNK_SLOTS,
    Chunk,
    SparseWeights,
    concatenate_slots,
    make_constant_weights,
    pack_tree,
)
from xmtc.linear.solver import MAX_BLOCK_LABELS, report_convergence
from xmtc.linear.tree import SAME_CHUNK, LinearTree
from xmtc.linear.tree_training import CERTAIN_MARGINS

MAX_NARROW_LABELS = 1024  # number of labels at the end that are trained in narrow blocks
NARROW_BLOCK_LABELS = 48  # per label as fast as blocks of 64, and a fifth slower than blocks of 128
# Arguments: indicator matrix of a block of labels, shape (n_docs, n_block_labels), and the number of its first label.
BlockTrainer = Callable[[csr_array, int], tuple[SparseWeights, Convergence]]


@dataclass(frozen=True)
class OneVsAll(Method):
    """One linear classifier per label; a subclass trains a block of labels."""

    # The scale of the L1 penalties; raw counts also make the squared hinge slow and less accurate.
    view_defaults: ClassVar[dict[str, Any]] = {"unit_length": True}
    has_weight_support: ClassVar[bool] = True
    has_cluster_support: ClassVar[bool] = True

    precision: int = PRECISION_PARAM

    @abstractmethod
    def build_block_trainer(self, data: Dataset) -> BlockTrainer:
        """Validate the data and return a function that trains a block of labels on it."""

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        claim_checkpoint(run, self, data)
        data = data.drop_zero_weights()
        train_block, label_columns = self.build_block_trainer(data), csc_array(data.Y)
        blocks = split_label_blocks(data.n_labels)

        def train(block: slice) -> dict[str, np.ndarray]:
            weights, convergence = train_block(csr_array(label_columns[:, block]), block.start)
            return vars(weights) | {"convergence": np.array(astuple(convergence), np.int64)}

        with threadpool_limits(1, "blas"):  # the blocks run in parallel, and BLAS threads would change the rounding
            pieces = list(run.map_with_checkpoint(train, blocks, lambda block: f"labels-{block.start}", "training"))
        report_convergence((Convergence(*map(int, piece.pop("convergence", ()))) for piece in pieces), run)
        return build_flat_model(data, [SparseWeights(**piece) for piece in pieces]).with_precision(self.precision)

    def update(self, model: Model, change: DatasetChange, run: Run) -> ModelUpdate | None:
        """Train the labels that a change affects."""
        if not isinstance(model, TreeModel) or self.precision != MAX_PRECISION or change.new.weights is not None:
            return None

        def train(labels: np.ndarray) -> Iterator[SparseWeights]:
            data = change.new.select_label_columns(labels)
            train_block, label_columns = self.build_block_trainer(data), csc_array(data.Y)
            parts = run.map(
                lambda block: train_block(csr_array(label_columns[:, block]), block.start),
                split_label_blocks(len(labels)),
                "training",
            )
            for weights, _ in parts:
                yield weights

        with threadpool_limits(1, "blas"):
            updated = update_flat_tree(model.trees[0], change, train)
        if updated is None:
            return None
        smaller = replace(model, n_labels=change.new.n_labels, views=change.new.sizes, trees=(updated.tree,))
        return ModelUpdate(smaller, updated.n_trained, change.new.n_labels, updated.pending)


def split_label_blocks(n_labels: int) -> list[slice]:
    """Return blocks of labels; the last ones are narrow, so that all threads finish at about the same time."""
    n_wide = max(n_labels - MAX_NARROW_LABELS, 0) // MAX_BLOCK_LABELS * MAX_BLOCK_LABELS
    starts = [*range(0, n_wide, MAX_BLOCK_LABELS), *range(n_wide, n_labels, NARROW_BLOCK_LABELS)]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], n_labels], strict=True)]


def build_flat_model(data: Dataset, parts: list[SparseWeights]) -> TreeModel:
    """Return a model that scores every label with σ(margin), which ranks labels like the margin."""
    return TreeModel(
        n_labels=data.n_labels,
        views=data.sizes,
        link="logistic",
        beam=EXHAUSTIVE_BEAM,
        trees=(build_flat_tree(parts),),
    )


def group_chunks(parts: list[SparseWeights]) -> list[list[SparseWeights]]:
    """Group consecutive parts into chunks of at most MAX_CHUNK_SLOTS labels."""
    groups, width = [parts[:1]], len(parts[0].bias)
    for part in parts[1:]:
        width += len(part.bias)
        if width > MAX_CHUNK_SLOTS:
            groups.append([])
            width = len(part.bias)
        groups[-1].append(part)
    return groups


def build_flat_tree(parts: list[SparseWeights]) -> LinearTree:
    """Return a tree with all labels below one node, or below as few nodes under the root as can hold them."""
    groups = [concatenate_slots(group) for group in group_chunks(parts)]
    first_labels = np.cumsum([0] + [len(group.bias) for group in groups])
    leaves = [
        Chunk(group, np.full(len(group.bias), SAME_CHUNK), start + np.arange(len(group.bias)))
        for group, start in zip(groups, first_labels[:-1], strict=True)
    ]
    if len(leaves) == 1:
        return pack_tree(leaves)
    n = len(leaves)
    root_weights = make_constant_weights(n, CERTAIN_MARGINS["logistic"])
    return pack_tree([Chunk(root_weights, np.full(n, SAME_CHUNK), -2 - np.arange(n)), *leaves])

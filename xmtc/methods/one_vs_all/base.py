"""What the one-against-rest methods have in common: labels are trained apart from each other, a block at a time, and
the model is a label tree of a single node. They differ in the loss, the regulariser and the solver."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.linear.model import EXHAUSTIVE_BEAM, TreeModel
from xmtc.linear.packing import (
    MAX_CHUNK_SLOTS,
    Chunk,
    SparseWeights,
    concatenate_slots,
    make_constant_weights,
    pack_tree,
)
from xmtc.linear.solver import MAX_BLOCK_LABELS
from xmtc.linear.tree import SAME_CHUNK, LinearTree
from xmtc.linear.tree_training import CERTAIN_MARGINS

MAX_NARROW_LABELS = 1024  # labels that are trained in narrow blocks
NARROW_BLOCK_LABELS = 48  # labels of such a one: as fast for each as 64, and a fifth slower than 128
BlockTrainer = Callable[
    [csr_array, int], SparseWeights
]  # from labels' documents (n_docs, n_labels) and the first label's number


@dataclass(frozen=True)
class OneVsAll(Method):
    """A linear classifier for each label. A subclass says how a block of them is trained."""

    has_weight_support: ClassVar[bool] = True
    has_cluster_support: ClassVar[bool] = True

    @abstractmethod
    def build_block_trainer(self, data: Dataset) -> BlockTrainer:
        """What trains a block of labels on these documents, after a look at whether it can."""

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        if run.checkpoint.folder:
            run.checkpoint.claim(f"{self} {data.fingerprint()}")
        data = data.drop_zero_weights()
        train_block, by_label = self.build_block_trainer(data), csc_array(data.Y)
        blocks = split_label_blocks(data.n_labels)

        def train(block: slice) -> dict[str, np.ndarray]:
            return vars(train_block(csr_array(by_label[:, block]), block.start))

        parts = run.map_with_checkpoint(train, blocks, lambda block: f"labels-{block.start}", "training")
        return build_flat_model(data, [SparseWeights(**part) for part in parts])


def split_label_blocks(n_labels: int) -> list[slice]:
    """Labels that are trained together. The last are narrow: where many threads end, each waits for a short one."""
    wide = max(n_labels - MAX_NARROW_LABELS, 0) // MAX_BLOCK_LABELS * MAX_BLOCK_LABELS
    starts = [*range(0, wide, MAX_BLOCK_LABELS), *range(wide, n_labels, NARROW_BLOCK_LABELS)]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], n_labels], strict=True)]


def build_flat_model(data: Dataset, parts: list[SparseWeights]) -> TreeModel:
    """Scores are σ(margin), which ranks as the margins do, and every label is looked at."""
    return TreeModel(
        n_labels=data.n_labels,
        views=data.sizes,
        link="logistic",
        beam=EXHAUSTIVE_BEAM,
        trees=(build_flat_tree(parts),),
    )


def group_chunks(parts: list[SparseWeights]) -> list[list[SparseWeights]]:
    """As many in a row together as a chunk can hold."""
    groups, width = [parts[:1]], len(parts[0].bias)
    for part in parts[1:]:
        width += len(part.bias)
        if width > MAX_CHUNK_SLOTS:
            groups.append([])
            width = len(part.bias)
        groups[-1].append(part)
    return groups


def build_flat_tree(parts: list[SparseWeights]) -> LinearTree:
    """All labels as the children of one root, or of as few nodes under the root as can hold them."""
    groups = [concatenate_slots(group) for group in group_chunks(parts)]
    first = np.cumsum([0] + [len(group.bias) for group in groups])
    leaves = [
        Chunk(group, np.full(len(group.bias), SAME_CHUNK), start + np.arange(len(group.bias)))
        for group, start in zip(groups, first[:-1], strict=True)
    ]
    if len(leaves) == 1:
        return pack_tree(leaves)
    n = len(leaves)
    return pack_tree(
        [
            Chunk(make_constant_weights(n, CERTAIN_MARGINS["logistic"]), np.full(n, SAME_CHUNK), -2 - np.arange(n)),
            *leaves,
        ]
    )

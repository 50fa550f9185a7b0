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
from xmtc.linear.model import EXACT, TreeModel
from xmtc.linear.packing import WIDEST, Chunk, Rows, constant, side_by_side, tree_of
from xmtc.linear.solver import BLOCK
from xmtc.linear.tree import HERE, Tree
from xmtc.linear.tree_training import CERTAIN

LAST = 1024  # labels that are trained in narrow blocks
NARROW = 48  # labels of such a one: as fast for each as 64, and a fifth slower than 128
TrainBlock = Callable[[csr_array, int], Rows]  # from labels' documents (n_docs, n_labels) and the first label's number


@dataclass(frozen=True)
class OneVsAll(Method):
    """A linear classifier for each label. A subclass says how a block of them is trained."""

    takes_weights: ClassVar[bool] = True
    spreads: ClassVar[bool] = True

    @abstractmethod
    def trainer(self, data: Dataset) -> TrainBlock:
        """What trains a block of labels on these documents, after a look at whether it can."""

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> TreeModel:
        if run.checkpoint.folder:
            run.checkpoint.claim(f"{self} {data.fingerprint()}")
        data = data.drop_zero_weights()
        train_block, by_label = self.trainer(data), csc_array(data.Y)
        blocks = blocks_of(data.n_labels)

        def train(block: slice) -> dict[str, np.ndarray]:
            return vars(train_block(csr_array(by_label[:, block]), block.start))

        parts = run.map_with_checkpoint(train, blocks, lambda block: f"labels-{block.start}", "training")
        return flat_model(data, [Rows(**part) for part in parts])


def blocks_of(n_labels: int) -> list[slice]:
    """Labels that are trained together. The last are narrow: where many threads end, each waits for a short one."""
    wide = max(n_labels - LAST, 0) // BLOCK * BLOCK
    starts = [*range(0, wide, BLOCK), *range(wide, n_labels, NARROW)]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], n_labels], strict=True)]


def flat_model(data: Dataset, parts: list[Rows]) -> TreeModel:
    """Scores are σ(margin), which ranks as the margins do, and every label is looked at."""
    return TreeModel(
        n_labels=data.n_labels,
        views=data.sizes,
        link="logistic",
        beam=EXACT,
        trees=(flat_tree(parts),),
    )


def in_chunks(parts: list[Rows]) -> list[list[Rows]]:
    """As many in a row together as a chunk can hold."""
    groups, width = [parts[:1]], len(parts[0].bias)
    for part in parts[1:]:
        width += len(part.bias)
        if width > WIDEST:
            groups.append([])
            width = len(part.bias)
        groups[-1].append(part)
    return groups


def flat_tree(parts: list[Rows]) -> Tree:
    """All labels as the children of one root, or of as few nodes under the root as can hold them."""
    groups = [side_by_side(group) for group in in_chunks(parts)]
    first = np.cumsum([0] + [len(group.bias) for group in groups])
    leaves = [
        Chunk(group, np.full(len(group.bias), HERE), start + np.arange(len(group.bias)))
        for group, start in zip(groups, first[:-1], strict=True)
    ]
    if len(leaves) == 1:
        return tree_of(leaves)
    n = len(leaves)
    return tree_of([Chunk(constant(n, CERTAIN["logistic"]), np.full(n, HERE), -2 - np.arange(n)), *leaves])

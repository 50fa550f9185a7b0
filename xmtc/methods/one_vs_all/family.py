"""What the one-against-rest methods have in common: labels are trained apart from each other, a block at a time, and
the model is a label tree of a single node. They differ in the loss, the regulariser and the solver."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.base.dataset import Dataset
from xmtc.base.method import Method
from xmtc.base.run import Run
from xmtc.linear.model import EXACT, TreeModel
from xmtc.linear.packing import WIDEST, Chunk, Rows, constant, side_by_side, tree_of
from xmtc.linear.solver import BLOCK
from xmtc.linear.training import CERTAIN
from xmtc.linear.tree import HERE, Tree

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
        data = data.without_weightless()
        train_block, by_label = self.trainer(data), csc_array(data.Y)
        starts = list(range(0, data.n_labels, BLOCK))

        def train(start: int) -> dict[str, np.ndarray]:
            return vars(train_block(csr_array(by_label[:, start : start + BLOCK]), start))

        parts = run.pieces(train, starts, lambda start: f"labels-{start}", "training")
        return flat_model(data, [Rows(**part) for part in parts])


def flat_model(data: Dataset, parts: list[Rows]) -> TreeModel:
    """Scores are σ(margin), which ranks as the margins do, and every label is looked at."""
    return TreeModel(
        n_labels=data.n_labels,
        views=data.sizes,
        link="logistic",
        beam=EXACT,
        trees=(flat_tree(parts),),
    )


def flat_tree(parts: list[Rows]) -> Tree:
    """All labels as the children of one root, or of as few nodes under the root as can hold them."""
    n_together = WIDEST // BLOCK
    groups = [side_by_side(parts[i : i + n_together]) for i in range(0, len(parts), n_together)]
    first = np.cumsum([0] + [len(group.bias) for group in groups])
    leaves = [
        Chunk(group, np.full(len(group.bias), HERE), start + np.arange(len(group.bias)))
        for group, start in zip(groups, first[:-1], strict=True)
    ]
    if len(leaves) == 1:
        return tree_of(leaves)
    n = len(leaves)
    return tree_of([Chunk(constant(n, CERTAIN["logistic"]), np.full(n, HERE), -2 - np.arange(n)), *leaves])

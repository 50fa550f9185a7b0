"""DiSMEC: one linear classifier per label against all documents, small weights dropped. Babbar, Schölkopf: DiSMEC -
Distributed Sparse Machines for Extreme Multi-label Classification (WSDM 2017).

Differs from the authors' code in: dual coordinate descent for a block of labels at a time instead of LIBLINEAR's
primal Newton for one; blocks are pruned as they are finished, so that dense weights of a block or two are all that is
ever held. Scores are σ(margin), which ranks as the margins do. The model is a label tree of a single node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.base.dataset import Dataset
from xmtc.base.method import Method
from xmtc.base.params import param
from xmtc.base.run import Run
from xmtc.linear.model import EXACT, TreeModel
from xmtc.linear.packing import WIDEST, Chunk, Rows, constant, pruned, side_by_side, tree_of
from xmtc.linear.solver import BLOCK, Solver, shuffled
from xmtc.linear.training import CERTAIN
from xmtc.linear.tree import HERE, Tree


@dataclass(frozen=True)
class DiSMEC(Method):
    """One linear classifier per label against all documents (Babbar and Schölkopf, WSDM 2017)."""

    takes_weights: ClassVar[bool] = True

    C: float = param(
        Solver.C, "weight of the loss against the regulariser", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    eps: float = param(
        Solver.eps, "stop training labels when a pass moves no document by more than this part of C", low=0.0, high=1e6
    )
    max_passes: int = param(
        Solver.max_passes, "passes over the documents at most; where there are many, 6", low=1, high=10_000
    )
    min_weight: float = param(0.01, "drop weights smaller than this", low=0.0, high=1e9, search=(0.001, 0.1), log=True)
    seed: int = param(0, "seed of the order of documents", low=0, high=2**32 - 1)

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> TreeModel:
        if run.checkpoint.folder:
            run.checkpoint.claim(f"{self} {data.fingerprint()}")
        data = data.without_weightless()
        self.solver.check(data.X, data.weights)
        data = data.rows(shuffled(data.n_docs, self.seed))
        by_label = csc_array(data.Y)
        starts = list(range(0, data.n_labels, BLOCK))

        def train(start: int) -> Rows:
            kept = run.checkpoint.recall(f"labels-{start}")
            if kept is not None:
                return Rows(**kept)
            labels = self._train(data, csr_array(by_label[:, start : start + BLOCK]))
            run.checkpoint.keep(f"labels-{start}", vars(labels))
            return labels

        parts = list(run.map(train, starts, "training", total=len(starts)))
        return TreeModel(
            n_labels=data.n_labels,
            views=data.sizes,
            link="logistic",
            beam=EXACT,
            trees=(flat_tree(parts),),
        )

    @property
    def solver(self) -> Solver:
        return Solver(C=self.C, eps=self.eps, max_passes=self.max_passes, seed=self.seed)

    def _train(self, data: Dataset, positives: csr_array) -> Rows:
        return pruned(self.solver.fit(data.X, np.arange(data.n_docs), positives, data.weights), self.min_weight)


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

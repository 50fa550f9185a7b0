"""PD-Sparse: all labels against each other, with few weights and few dual variables. Yen, Huang, Zhong, Ravikumar,
Dhillon: PD-Sparse - A Primal and Dual Sparse Approach to Extreme Multiclass and Multilabel Classification (ICML 2016).

Where DiSMEC asks of each label whether a document has it, this asks that a document's own labels stay a margin of 1
above all others: only the worst of its own and the best of the others count. So there is no bias, and no training by
label. The best state, and how long it is polished without the penalty, are found by P@1 of held-out documents.
Differs from the authors' code in: labels are searched for in weights of up to 128 documents ago, so that threads can
search side by side; weights are held as one matrix of features × labels, as in the faster of the authors' two programs;
every search adds five times as many labels as documents have on the mean, 100 at most; it is judged four times a pass,
and the polishing too. Scores are σ(margin), and mean nothing but their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.checkpoint import Checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.memory import check_fits
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.core.sparse import CompactMatrix, compact
from xmtc.data.splits import sample_labelled_rows, train_valid_split
from xmtc.linear.frank_wolfe import (
    PASS_PARTS,
    DualVariables,
    FrankWolfeSolver,
    predict_top_labels,
    recompute_weights,
    threshold_weights,
)
from xmtc.linear.model import TreeModel
from xmtc.linear.packing import SparseWeights, prune_weights
from xmtc.linear.solver import MAX_BLOCK_LABELS, LinearWeights, Solver
from xmtc.methods.one_vs_all.base import build_flat_model

CHECKPOINT_INTERVAL_PARTS = (
    5 * PASS_PARTS
)  # parts of passes, after which weights are added up anew from the dual variables: all that a checkpoint keeps
DUAL_STATES = ("duals", "best")
LABELS_PER_SEARCH_RATIO, MAX_LABELS_PER_SEARCH = (
    5,
    100,
)  # labels that a search adds, for each that documents have on the mean; and in all
MAX_VALID_DOCUMENTS = 1000  # held-out documents, if none are given: they are judged by all labels, again and again
MIN_NONZERO_WEIGHT = 1e-9  # a weight that is not zero


@dataclass(frozen=True)
class PDSparse(Method):
    """Own labels a margin above all others, with few weights and dual variables (Yen et al., ICML 2016)."""

    quick_parameters: ClassVar[dict[str, Any]] = {"max_passes": 30}

    C: float = param(1.0, "weight of the loss against the regularisers", low=1e-6, high=1e9, search=(0.1, 10), log=True)
    penalty: float = param(
        FrankWolfeSolver.penalty, "λ, of the L1 penalty: larger, and fewer weights are kept", low=0.0, high=1e9,
        search=(0.01, 1), log=True,
    )  # fmt: skip
    max_passes: int = param(200, "passes over the documents at most", low=1, high=10_000)
    patience: int = param(3, "stop after this many passes without a gain in held-out P@1", low=1, high=10_000)
    polish: int = param(
        200, "passes without penalty over the weights found, at most as many as found them", low=0, high=10_000
    )
    draws: int = param(
        FrankWolfeSolver.draws,
        "features of a document, drawn by size, that a search for labels looks at",
        low=1,
        high=10**9,
    )
    seed: int = param(0, "seed of held-out documents, draws and the order of documents", low=0, high=2**32 - 1)

    def select_held_out_rows(self, data: Dataset) -> np.ndarray:
        return sample_labelled_rows(data, self.seed, max_rows=MAX_VALID_DOCUMENTS)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        Solver(C=self.C).check_feature_scale(data.X)
        training, held_out = train_valid_split(data, valid, self.seed, max_valid=MAX_VALID_DOCUMENTS)
        if run.checkpoint.folder:
            run.checkpoint.claim(f"{self} {training.fingerprint()} {held_out.fingerprint()}")
        X = compact(training.X, np.arange(training.n_docs))
        check_fits(
            4 * (len(X.columns) + MAX_BLOCK_LABELS) * data.n_labels,
            f"pd_sparse with {len(X.columns):,} features × {data.n_labels:,} labels",
            "give it fewer features (min_df), or use ppd_sparse, which needs no such matrix",
        )
        W = np.zeros((len(X.columns), data.n_labels), np.float32)
        self.train(X, training.Y, held_out, W, run)
        return build_flat_model(data, prune_blocks(X.columns, W))

    def train(self, X: CompactMatrix, Y: csr_array, held_out: Dataset, W: np.ndarray, run: Run) -> None:
        """The best state by P@1 of held-out documents, then polished; the weights are left in W."""
        select = min(
            MAX_LABELS_PER_SEARCH,
            max(1, round(LABELS_PER_SEARCH_RATIO * Y.nnz / max(np.count_nonzero(np.diff(Y.indptr)), 1))),
        )
        solver = FrankWolfeSolver(self.penalty, self.C, select, self.draws, self.seed)
        now = PDSparseState(DualVariables.from_labels(Y, select)).restore_checkpoint(run.checkpoint)
        seen, truth = select_columns(held_out.X, X.columns), csr_array(held_out.Y)

        def score(penalty: float) -> float:
            found = predict_top_labels(seen, W, penalty, run.n_threads)
            return float(truth[np.arange(len(found)), found].mean())

        with run.stage("training", PASS_PARTS * self.max_passes) as shown:
            while now.parts < PASS_PARTS * self.max_passes and now.parts - now.best_part < PASS_PARTS * self.patience:
                if now.parts % CHECKPOINT_INTERVAL_PARTS == 0:
                    now.save_checkpoint(run.checkpoint)
                    recompute_weights(X, now.duals, W)
                solver.train_part(X, now.duals, W, now.parts, run.n_threads)
                now.update_best(score(self.penalty))
                shown.advance()
                shown.set_status(f"P@1 {100 * now.best_score:.2f}")
        with run.stage("polishing"):
            self.polish_weights(solver, X, now, W, score)

    def polish_weights(
        self,
        solver: FrankWolfeSolver,
        X: CompactMatrix,
        now: PDSparseState,
        W: np.ndarray,
        score: Callable[[float], float],
    ) -> None:
        """As many passes without penalty as are best for held-out documents; none, and not even their weights from
        before the proximal step, if that is."""

        def polished(n_passes: int) -> Iterator[int]:
            recompute_weights(X, now.best, W)
            threshold_weights(W, np.float32(self.penalty), n_passes < 0)
            duals = now.best.copy()
            for number in range(n_passes):
                yield number
                solver.polish(X, duals, W, number)
            yield n_passes

        best_score, best = now.best_score, -1
        for number in polished(min(self.polish, -(-now.best_part // PASS_PARTS))) if self.polish else ():
            if (found := score(0.0)) > best_score:
                best_score, best = found, number
            if number - best > self.patience:
                break
        for _ in polished(best):
            pass


@dataclass
class PDSparseState:
    """How far a training is, and its best state."""

    duals: DualVariables
    parts: int = 0  # of passes
    best_part: int = 0
    best_score: float = -1.0

    def __post_init__(self) -> None:
        self.best = self.duals.copy()

    def update_best(self, score: float) -> None:
        self.parts += 1
        if score > self.best_score:
            self.best, self.best_part, self.best_score = self.duals.copy(), self.parts, score

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        numbers = np.array([self.parts, self.best_part, self.best_score])
        parts = {f"{name} {key}": value for name in DUAL_STATES for key, value in vars(getattr(self, name)).items()}
        checkpoint.save_piece("duals", parts | {"numbers": numbers})

    def restore_checkpoint(self, checkpoint: Checkpoint) -> PDSparseState:
        kept = checkpoint.load_piece("duals")
        if kept is not None:
            self.parts, self.best_part, self.best_score = (
                int(kept["numbers"][0]),
                int(kept["numbers"][1]),
                kept["numbers"][2],
            )
            self.duals, self.best = (
                DualVariables(**{key: kept[f"{name} {key}"] for key in vars(self.duals)}) for name in DUAL_STATES
            )
        return self


def select_columns(X: csr_array, columns: np.ndarray) -> CompactMatrix:
    """These columns alone, numbered as they are listed."""
    left = csr_array(X[:, columns])
    return CompactMatrix(left.indptr.astype(np.int64), left.indices.astype(np.uint32), left.data, columns)


def prune_blocks(features: np.ndarray, W: np.ndarray) -> list[SparseWeights]:
    """The weights without zeros, for a block of labels at a time; no label has a bias."""
    parts = []
    for start in range(0, W.shape[1], MAX_BLOCK_LABELS):
        block = W[:, start : start + MAX_BLOCK_LABELS]
        without_bias = np.vstack([block, np.zeros((1, block.shape[1]), np.float32)])
        parts.append(prune_weights(LinearWeights(features, without_bias, block.shape[1]), MIN_NONZERO_WEIGHT))
    return parts

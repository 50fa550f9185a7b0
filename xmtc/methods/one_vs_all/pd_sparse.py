"""PD-Sparse: a max-margin loss over all labels, with sparse weights and sparse dual variables.

Paper: Yen, Huang, Zhong, Ravikumar, Dhillon: PD-Sparse - A Primal and Dual Sparse Approach to Extreme Multiclass and
Multilabel Classification (ICML 2016).

Idea: the separation ranking loss asks that a document's positive labels score at least 1 above all negative labels; it
depends only on the worst positive and the best negative label. With an L1 penalty λ‖W‖₁ both the weights W and the dual
variables α are sparse, and a block-coordinate Frank-Wolfe algorithm only visits the non-zero ones. There is no bias.
The best state, and the number of final passes without the penalty, are chosen by P@1 on held-out documents. Scores are
σ(margin); only their order has a meaning.

Differs from the authors' code as follows. The search for violating labels uses weights from up to 128 documents ago, so
threads can search in parallel. The weights are one dense matrix of features × labels, as in the faster of the authors'
two programs. A search adds five times the mean number of labels per document, at most 100. P@1 is measured four times
per pass, and also after each final pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.checkpoint import Checkpoint, claim_checkpoint
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

# A checkpoint has the dual variables only. Weights are recomputed from them at the same interval in every training, so
# that a resumed training has the same rounding errors as an uninterrupted one.
CHECKPOINT_INTERVAL_PARTS = 5 * PASS_PARTS
DUAL_STATES = ("duals", "best")  # attributes of PDSparseState, and names in the checkpoint
LABELS_PER_SEARCH_RATIO = 5  # labels that a search adds, per label that documents have on average
MAX_LABELS_PER_SEARCH = 100
MAX_VALID_DOCUMENTS = 1000  # fewer than usual, because all their labels are scored four times per pass
MIN_NONZERO_WEIGHT = 1e-9


@dataclass(frozen=True)
class PDSparse(Method):
    """Max-margin classifier with sparse weights and dual variables (Yen et al., ICML 2016).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import PDSparse
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(PDSparse(max_passes=10)).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"max_passes": 30}
    view_defaults: ClassVar[dict[str, Any]] = {"unit_length": True}  # the scale of its penalty

    C: float = param(
        1.0, "Weight C of the loss against the regularisers.", low=1e-6, high=1e9, search=(0.1, 10), log=True
    )
    penalty: float = param(
        FrankWolfeSolver.penalty,
        "Weight λ of the L1 penalty; a larger value keeps fewer weights.",
        low=0.0,
        high=1e9,
        search=(0.01, 1),
        log=True,
    )
    max_passes: int = param(200, "Maximum number of passes over the documents.", low=1, high=10_000)
    patience: int = param(
        3, "Number of passes without a gain in held-out P@1 before training stops.", low=1, high=10_000
    )
    polish: int = param(
        200,
        "Maximum number of final passes without the penalty over the non-zero weights; never more than were trained.",
        low=0,
        high=10_000,
    )
    draws: int = param(
        FrankWolfeSolver.draws,
        "Number of features of a document, sampled by size, that a search for violating labels uses.",
        low=1,
        high=10**9,
    )
    seed: int = param(
        0, "Random seed of held-out documents, sampling and the order of documents.", low=0, high=2**32 - 1
    )

    def select_held_out_rows(self, data: Dataset) -> np.ndarray:
        return sample_labelled_rows(data, self.seed, max_rows=MAX_VALID_DOCUMENTS)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TreeModel:
        Solver(C=self.C).check_feature_scale(data.X)
        training, held_out = train_valid_split(data, valid, self.seed, max_valid=MAX_VALID_DOCUMENTS)
        claim_checkpoint(run, self, training, held_out)
        X = compact(training.X, np.arange(training.n_docs))
        check_fits(
            4 * (len(X.columns) + MAX_BLOCK_LABELS) * data.n_labels,
            f"pd_sparse with {len(X.columns):,} features × {data.n_labels:,} labels",
            "reduce the number of features (min_df), or use ppd_sparse, which needs no dense matrix",
        )
        W = np.zeros((len(X.columns), data.n_labels), np.float32)
        self.train(X, training.Y, held_out, W, run)
        return build_flat_model(data, prune_blocks(X.columns, W))

    def train(self, X: CompactMatrix, Y: csr_array, held_out: Dataset, W: np.ndarray, run: Run) -> None:
        """Train until held-out P@1 stops improving, then polish the best state; write the weights into W."""
        n_added = count_labels_per_search(Y)
        solver = FrankWolfeSolver(self.penalty, self.C, n_added, self.draws, self.seed)
        state = PDSparseState(DualVariables.from_labels(Y, n_added))
        state.restore_checkpoint(run.checkpoint)
        valid_X, valid_Y = select_columns(held_out.X, X.columns), csr_array(held_out.Y)

        def compute_precision(penalty: float) -> float:
            top_labels = predict_top_labels(valid_X, W, penalty, run.n_threads)
            return float(valid_Y[np.arange(len(top_labels)), top_labels].mean())

        max_parts, patience = PASS_PARTS * self.max_passes, PASS_PARTS * self.patience
        with run.stage("training", max_parts) as progress:
            while state.parts < max_parts and state.parts - state.best_part < patience:
                if state.parts % CHECKPOINT_INTERVAL_PARTS == 0:
                    state.save_checkpoint(run.checkpoint)
                    recompute_weights(X, state.duals, W)
                solver.train_part(X, state.duals, W, state.parts, run.n_threads)
                state.update_best(compute_precision(self.penalty))
                progress.advance()
                progress.set_status(f"P@1 {100 * state.best_score:.2f}")
        with run.stage("polishing"):
            self.polish_weights(solver, X, state, W, compute_precision)

    def polish_weights(
        self,
        solver: FrankWolfeSolver,
        X: CompactMatrix,
        state: PDSparseState,
        W: np.ndarray,
        compute_precision: Callable[[float], float],
    ) -> None:
        """Train the non-zero weights without the penalty, for the number of passes that is best on held-out documents.

        The best number may be 0. If even the weights before the proximal step are worse, they are kept after it (−1).
        """

        def start_from_best(shrink: bool) -> DualVariables:
            recompute_weights(X, state.best, W)
            threshold_weights(W, np.float32(self.penalty), shrink)
            return state.best.copy()

        best_score, best_passes = state.best_score, -1
        if self.polish:
            duals = start_from_best(shrink=False)
            for n_passes in range(min(self.polish, -(-state.best_part // PASS_PARTS)) + 1):
                if n_passes:
                    solver.polish(X, duals, W, n_passes - 1)
                score = compute_precision(0.0)
                if score > best_score:
                    best_score, best_passes = score, n_passes
                if n_passes - best_passes > self.patience:
                    break

        duals = start_from_best(shrink=best_passes < 0)  # repeat the best passes, which saves copies of W
        for number in range(best_passes):
            solver.polish(X, duals, W, number)


@dataclass
class PDSparseState:
    """Current and best state of a training."""

    duals: DualVariables
    parts: int = 0  # finished parts of passes
    best_part: int = 0
    best_score: float = -1.0  # held-out P@1

    def __post_init__(self) -> None:
        self.best = self.duals.copy()

    def update_best(self, score: float) -> None:
        self.parts += 1
        if score > self.best_score:
            self.best, self.best_part, self.best_score = self.duals.copy(), self.parts, score

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        numbers = np.array([self.parts, self.best_part, self.best_score])
        arrays = {f"{name} {key}": value for name in DUAL_STATES for key, value in vars(getattr(self, name)).items()}
        checkpoint.save_piece("duals", arrays | {"numbers": numbers})

    def restore_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Load the state from a checkpoint, if there is one."""
        arrays = checkpoint.load_piece("duals")
        if arrays is None:
            return
        parts, best_part, self.best_score = arrays["numbers"]
        self.parts, self.best_part = int(parts), int(best_part)
        for name in DUAL_STATES:
            setattr(self, name, DualVariables(**{key: arrays[f"{name} {key}"] for key in vars(self.duals)}))


def count_labels_per_search(Y: csr_array) -> int:
    """Return the number of labels that a search adds to the active labels of a document."""
    n_labelled = max(np.count_nonzero(np.diff(Y.indptr)), 1)
    return min(MAX_LABELS_PER_SEARCH, max(1, round(LABELS_PER_SEARCH_RATIO * Y.nnz / n_labelled)))


def select_columns(X: csr_array, columns: np.ndarray) -> CompactMatrix:
    """Return some columns of a matrix, renumbered in the order of `columns`."""
    selected = csr_array(X[:, columns])
    return CompactMatrix(selected.indptr.astype(np.int64), selected.indices.astype(np.uint32), selected.data, columns)


def prune_blocks(features: np.ndarray, W: np.ndarray) -> list[SparseWeights]:
    """Return the non-zero weights in blocks of labels, with a bias of zero."""
    parts = []
    for start in range(0, W.shape[1], MAX_BLOCK_LABELS):
        block = W[:, start : start + MAX_BLOCK_LABELS]
        with_zero_bias = np.vstack([block, np.zeros((1, block.shape[1]), np.float32)])
        parts.append(prune_weights(LinearWeights(features, with_zero_bias, block.shape[1]), MIN_NONZERO_WEIGHT))
    return parts

"""The trained form of the linear label-tree methods, and of one-against-rest."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.linear.search import CUBED_HINGE, LOGISTIC, SQUARED_HINGE, rank_by_mean, search
from xmtc.linear.tree import LinearTree

LINK_CODES = {"squared_hinge": SQUARED_HINGE, "cubed_hinge": CUBED_HINGE, "logistic": LOGISTIC}
EXHAUSTIVE_BEAM = 0  # the beam that stands for a search without bounds
MIN_LABELS_PER_TREE = 20  # labels that each of several trees looks for, if not for more
MAX_BATCH_DOCUMENTS, MAX_WAITING_CHUNKS = (
    8192,
    1 << 21,
)  # documents searched by one thread at a time, and chunks waiting for them


@dataclass(frozen=True, kw_only=True)
class TreeModel(Model):
    """The mean over the trees of P(label) = Π P(child | parent) down the path, where P(child | parent) is
    exp(−max(0, 1 − margin)²) after a squared hinge (Parabel's model), or to the power of 3 (PECOS's), and σ(margin)
    after a logistic loss."""

    link: str  # one of LINKS
    beam: int  # chunks that wait, and leaves scored, at most; or EXACT
    trees: tuple[LinearTree, ...]

    @property
    def n_features(self) -> int:
        return sum(self.views.values())

    def _predict(self, data: Dataset, k: int, run: Run, label_weights: np.ndarray | None = None) -> Predictions:
        """The k best labels; label_weights, such as inverse propensities, multiply the probabilities."""
        k = min(k, self.n_labels)
        logs = np.zeros(0, np.float32) if label_weights is None else np.log(label_weights).astype(np.float32)
        most_waiting = max(self.beam_width(tree) for tree in self.trees)
        share = -(-data.n_docs // run.n_threads) if data.n_docs > 1 else 1
        size = max(1, min(MAX_BATCH_DOCUMENTS, MAX_WAITING_CHUNKS // most_waiting, share))
        batches = [slice(i, min(i + size, data.n_docs)) for i in range(0, data.n_docs, size)]

        def work(batch: slice) -> Predictions:
            return Predictions.from_valid_arrays(
                *rank_by_mean(*self._search(data, batch, k, logs), self.n_labels, k, len(self.trees))
            )

        if data.n_docs == 1:  # to tell of it would take as long as the answer
            return work(slice(0, 1))
        empty = Predictions.from_valid_arrays(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        return Predictions.stack([empty, *run.map(work, batches, "predicting", total=len(batches))])

    def to_exhaustive(self) -> TreeModel:
        return self if self.beam == EXHAUSTIVE_BEAM else replace(self, beam=EXHAUSTIVE_BEAM)

    def beam_width(self, tree: LinearTree) -> int:
        """How many chunks of a tree may wait: there are not always as many as the beam lets."""
        return tree.n_chunks if self.beam == EXHAUSTIVE_BEAM else min(self.beam, tree.n_chunks)

    def _search(self, data: Dataset, batch: slice, k: int, label_logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best labels that each tree finds for the documents of a batch, side by side, and their log probabilities.
        Several trees look further than k, because the best of the mean need not be among the best of each."""
        n_trees = len(self.trees)
        width = k if n_trees == 1 else min(max(k, MIN_LABELS_PER_TREE), self.n_labels)
        found = [
            search(data.X, batch, tree, LINK_CODES[self.link], self.beam_width(tree), width, label_logs)
            for tree in self.trees
        ]
        return np.hstack([labels for labels, _ in found]), np.hstack([logs for _, logs in found])

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """What each word adds to the margins of the classifiers on the label's path, averaged over the trees."""
        (view,) = self.views
        x = np.zeros(self.n_features, np.float32)
        x[document.X.indices] = document.X.data
        total = np.zeros(self.n_features, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # whoever asked refuses what is no number
            for tree in self.trees:
                for chunk, slot in tree.find_path(label):
                    features, weights = tree.slot_weights(chunk, slot)
                    total[features] += weights * x[features] / len(self.trees)
        features = np.flatnonzero(total)
        return Explanation.from_occurrences(view, features, total[features])

    def check(self) -> None:
        if self.link not in LINK_CODES or self.beam < 0 or not self.trees:
            raise ValueError("its label trees cannot be searched")
        for tree in self.trees:
            tree.check_sizes(self.n_labels, self.n_features)

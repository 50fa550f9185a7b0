"""Model of the linear label-tree methods and of one-vs-all methods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import Predictions
from xmtc.core.ranking_steps import list_steps, rank_in_steps
from xmtc.core.run import Run
from xmtc.linear.packing import shorten_weights
from xmtc.linear.search import CUBED_HINGE, LOGISTIC, SQUARED_HINGE, log_probability, rank_by_mean, search
from xmtc.linear.tree import LinearTree

LINK_CODES = {"squared_hinge": SQUARED_HINGE, "cubed_hinge": CUBED_HINGE, "logistic": LOGISTIC}
MAX_PRECISION = 16  # bits of a trained weight
PRECISION_PARAM: Any = param(
    MAX_PRECISION, "Bits of a weight; 8 makes the model smaller, but `xmtc update` trains it again.", choices=(8, 16)
)
EXHAUSTIVE_BEAM = 0  # beam width of an exhaustive search
FIRST_STEP_LABELS = 20  # labels of each of several trees that rank the first labels; more are read for a larger k
MAX_BATCH_DOCUMENTS = 8192  # documents that one thread searches at a time
MAX_WAITING_CHUNKS = 1 << 21  # queued chunks of all documents of a batch


@dataclass(frozen=True, kw_only=True)
class TreeModel(Model):
    """Ensemble of label trees: the mean over the trees of P(label) = Π P(child | parent) along the path.

    With margin m, P(child | parent) is exp(−max(0, 1 − m)²) for link "squared_hinge" (Parabel),
    exp(−max(0, 1 − m)³) for "cubed_hinge" (PECOS) and σ(m) for "logistic".
    """

    link: str  # key of LINK_CODES
    beam: int  # maximum queued chunks, and maximum scored leaves; EXHAUSTIVE_BEAM: no limit
    trees: tuple[LinearTree, ...]

    @property
    def n_features(self) -> int:
        return sum(self.views.values())

    def _predict(self, data: Dataset, k: int, run: Run, label_weights: np.ndarray | None = None) -> Predictions:
        """Return the k best labels. `label_weights`, such as inverse propensities, multiply the probabilities."""
        k = min(k, self.n_labels)
        label_logs = np.zeros(0, np.float32) if label_weights is None else np.log(label_weights).astype(np.float32)
        steps = [k] if len(self.trees) == 1 else list_steps(k, FIRST_STEP_LABELS)
        max_waiting = max(self.beam_width(tree) for tree in self.trees)
        docs_per_thread = -(-data.n_docs // run.n_threads) if data.n_docs > 1 else 1
        size = max(1, min(MAX_BATCH_DOCUMENTS, MAX_WAITING_CHUNKS // max_waiting, docs_per_thread))
        batches = [slice(i, min(i + size, data.n_docs)) for i in range(0, data.n_docs, size)]

        def predict_batch(batch: slice) -> Predictions:
            labels, logs = self._search(data, batch, steps[-1], label_logs)

            def rank(step: int, n: int) -> Predictions:
                first = labels[:, :, :step], logs[:, :, :step]
                return Predictions.from_valid_arrays(*rank_by_mean(*first, self.n_labels, n))

            return rank_in_steps(rank, steps, k)

        if data.n_docs == 1:  # events would take as long as the search
            return predict_batch(slice(0, 1))
        empty = Predictions.from_valid_arrays(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        return Predictions.stack([empty, *run.map(predict_batch, batches, "predicting", total=len(batches))])

    def with_precision(self, precision: int) -> TreeModel:
        """Return the model with weights of 16 bits, as trained, or of 8 bits."""
        return self if precision == MAX_PRECISION else replace(self, trees=tuple(map(shorten_weights, self.trees)))

    def to_exhaustive(self) -> TreeModel:
        return self if self.beam == EXHAUSTIVE_BEAM else replace(self, beam=EXHAUSTIVE_BEAM)

    def beam_width(self, tree: LinearTree) -> int:
        """Return the maximum number of queued chunks of a tree."""
        return tree.n_chunks if self.beam == EXHAUSTIVE_BEAM else min(self.beam, tree.n_chunks)

    def _search(self, data: Dataset, batch: slice, width: int, label_logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best labels of every tree for a batch of documents, and their log probabilities, shape
        (n_docs, n_trees, width)."""
        width = min(width, self.n_labels)
        results = [
            search(data.X, batch, tree, LINK_CODES[self.link], self.beam_width(tree), width, label_logs)
            for tree in self.trees
        ]
        return np.stack([labels for labels, _ in results], axis=1), np.stack([logs for _, logs in results], axis=1)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the contribution of each feature to the label's margin, or in a label tree, to its log probability.

        At each node on the path, log P(child | parent) less its value without any feature is divided among the features
        in proportion to their parts of the margin. Several trees are weighted by their shares of the score.
        """
        (view,) = self.views
        x = np.zeros(self.n_features, np.float32)
        x[document.X.indices] = document.X.data
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for nan and infinity
            parts = [self._explain_in_tree(tree, x, label) for tree in self.trees]
            logs = np.array([weights.sum() + bias for weights, bias in parts])
            shares = np.exp(logs - logs.max())
            shares /= shares.sum()
            total = sum(share * weights for share, (weights, _) in zip(shares, parts, strict=True))
            bias = float(sum(share * bias for share, (_, bias) in zip(shares, parts, strict=True)))
        features = np.flatnonzero(total)
        return Explanation.from_occurrences(view, features, total[features], bias=bias)

    def _explain_in_tree(self, tree: LinearTree, x: np.ndarray, label: int) -> tuple[np.ndarray, float]:
        """Return the contributions of all features in one tree, and the value without any feature."""
        total, base, path = np.zeros(self.n_features), 0.0, tree.find_path(label)
        for chunk, slot in path:
            features, weights = tree.slot_weights(chunk, slot)
            products, bias = weights * x[features], float(tree.bias[slot])
            if len(path) == 1:  # one-vs-all: the margin itself
                return np.bincount(features, products, self.n_features), bias
            margin = bias + float(products.sum(dtype=np.float64))
            before, after = self._log_probability(bias), self._log_probability(margin)
            if margin != bias:
                total[features] += products * (after - before) / (margin - bias)
            base += before
        return total, base

    def _log_probability(self, margin: float) -> float:
        return float(log_probability(np.float32(margin), LINK_CODES[self.link]))

    def check(self) -> None:
        if self.link not in LINK_CODES or self.beam < 0 or not self.trees:
            raise ValueError("its label trees have an unknown link, a negative beam or no tree")
        for tree in self.trees:
            tree.check_sizes(self.n_labels, self.n_features)

"""The trained form of the linear label-tree methods, and of one-against-rest, which is a tree of one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.data.dataset import Dataset
from xmtc.method import Explanation, Model
from xmtc.methods.label_tree.best_first import best_first_search
from xmtc.methods.label_tree.search import LOGISTIC, SQUARED_HINGE, beam_search, rank
from xmtc.predictions import Predictions
from xmtc.run import Run

LINKS = {"squared_hinge": SQUARED_HINGE, "logistic": LOGISTIC}
EXACT = 0  # the beam that stands for an exact search
LOOK_FURTHER = 10
MOST_DOCS, MOST_SCORES = 2048, 1 << 22  # documents searched by one thread at a time, and scores held for them


@dataclass(frozen=True)
class Tree:
    """Nodes are numbered level by level from the root, 0; their children fill slots in the same order. Slot s is node
    s + 1 while there is such a node; the slots after those are labels. A node's weights lie together: the features
    that any of its children uses, ascending, and per feature the (child, weight) entries, weights as 16-bit numbers
    times the node's scale."""

    children: NDArray[np.int64]  # (n_nodes + 1,), node n has slots children[n]:children[n + 1]
    labels: NDArray[np.int32]  # (n_labels,), the labels in the last slots
    bias: NDArray[np.float32]  # (n_slots,)
    scale: NDArray[np.float32]  # (n_nodes,)
    rows: NDArray[np.int64]  # (n_nodes + 1,), node n has feature rows rows[n]:rows[n + 1]
    features: NDArray[np.int32]  # (n_rows,)
    firsts: NDArray[np.int64]  # (n_nodes + 1,), node n has entries firsts[n]:firsts[n + 1]
    starts: NDArray[np.uint32]  # (n_rows + n_nodes,), where a node's rows begin and its last ends, from firsts[n] on
    entry_child: np.ndarray  # (n_entries,) uint8 or uint32, the slot less the node's first slot
    entry_weight: NDArray[np.int16]  # (n_entries,)

    @property
    def arrays(self) -> Any:
        return (
            self.children, self.labels, self.bias, self.scale, self.rows,
            self.features, self.firsts, self.starts, self.entry_child, self.entry_weight,
        )  # fmt: skip

    @property
    def widest(self) -> int:
        return int(np.diff(self.children).max())

    def path(self, label: int) -> list[tuple[int, int]]:
        """The (node, slot) pairs from the label up to the root."""
        n_nodes = len(self.children) - 1
        slot = n_nodes - 1 + int(np.flatnonzero(self.labels == label)[0])
        steps = []
        while slot >= 0:
            node = int(np.searchsorted(self.children, slot, side="right")) - 1
            steps.append((node, slot))
            slot = node - 1
        return steps

    def slot_weights(self, node: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """The features and weights of one child's classifier."""
        begin, end = self.rows[node], self.rows[node + 1]
        counts = np.diff(self.starts[begin + node : end + node + 1]).astype(np.int64)
        entries = slice(self.firsts[node], self.firsts[node + 1])
        mine = self.entry_child[entries] == slot - self.children[node]
        weights = self.entry_weight[entries][mine] * self.scale[node]
        return np.repeat(self.features[begin:end], counts)[mine], weights

    def check(self, n_labels: int, n_features: int) -> None:
        """Refuse arrays that would lead a search out of its memory."""
        n_nodes, n_rows, n_entries = len(self.children) - 1, len(self.features), len(self.entry_weight)
        sound = (
            all(array.ndim == 1 for array in self.arrays)
            and self.entry_child.dtype in (np.uint8, np.uint32)
            and climbs(self.children, len(self.bias))
            and n_nodes >= 1
            and len(self.labels) == len(self.bias) - (n_nodes - 1)
            and climbs(self.rows, n_rows, n_nodes)
            and climbs(self.firsts, n_entries, n_nodes)
            and len(self.scale) == n_nodes
            and len(self.starts) == n_rows + n_nodes
            and len(self.entry_child) == n_entries
            and within(self.labels, n_labels)
            and within(self.features, n_features)
            and np.diff(self.children).min(initial=1) >= 1
            and rows_fit(self)
            and within(self.entry_child, self.widest)
        )
        if not sound:
            raise ValueError("the arrays of a label tree do not fit together")


def climbs(offsets: np.ndarray, end: int, n: int | None = None) -> bool:
    right_length = len(offsets) >= 2 if n is None else len(offsets) == n + 1
    return bool(right_length and offsets[0] == 0 and offsets[-1] == end and (np.diff(offsets) >= 0).all())


def within(numbers: np.ndarray, end: int) -> bool:
    return bool(len(numbers) == 0 or (numbers.min() >= 0 and numbers.max() < end))


def rows_fit(tree: Tree) -> bool:
    """Every node's rows begin at its first entry, climb, and end at its last; no child number exceeds its node's."""
    starts, n_nodes = tree.starts.astype(np.int64), len(tree.rows) - 1
    first = tree.rows[:-1] + np.arange(n_nodes)
    last = tree.rows[1:] + np.arange(n_nodes)
    steps = np.diff(starts)
    steps[last[:-1]] = 0  # from one node's end to the next one's begin
    if (starts[first] != 0).any() or (starts[last] != np.diff(tree.firsts)).any() or (steps < 0).any():
        return False
    filled = np.flatnonzero(np.diff(tree.firsts))
    highest = np.maximum.reduceat(tree.entry_child, tree.firsts[filled]) if len(filled) else np.zeros(0)
    return bool((highest < np.diff(tree.children)[filled]).all())


@dataclass(frozen=True)
class TreeModel(Model):
    """The mean over the trees of P(label) = Π P(child | parent) down the path, where P(child | parent) is
    exp(−max(0, 1 − margin)²) after a squared hinge (Parabel's model) and σ(margin) after a logistic loss."""

    n_labels: int
    n_features: int
    link: str  # one of LINKS
    beam: int  # nodes kept per level, or EXACT
    trees: tuple[Tree, ...]

    def predict(
        self, data: Dataset, k: int = 5, run: Run = Run(), label_weights: np.ndarray | None = None
    ) -> Predictions:
        """The k best labels; label_weights, such as inverse propensities, multiply the probabilities."""
        k = min(k, self.n_labels)
        widths = self._widths(k)
        size = max(1, min(MOST_DOCS, MOST_SCORES // sum(widths), -(-data.n_docs // run.threads)))
        batches = [slice(i, min(i + size, data.n_docs)) for i in range(0, data.n_docs, size)]
        weights = np.zeros(0, np.float32) if label_weights is None else label_weights.astype(np.float32)

        def work(batch: slice) -> Predictions:
            found = self._search(data, batch, widths)
            return Predictions(*rank(*found, self.n_labels, k, len(self.trees), weights))

        empty = Predictions(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        return Predictions.stack([empty, *run.map(work, batches, "predicting", total=len(batches))])

    def _widths(self, k: int) -> list[int]:
        """How many labels the search finds in each tree. Exact searches of several trees look further than k, because
        the best of the mean need not be among the best of each."""
        if self.beam == EXACT:
            return [min(self.n_labels, k if len(self.trees) == 1 else LOOK_FURTHER * k) for _ in self.trees]
        return [min(self.beam, len(tree.children) - 1) * tree.widest for tree in self.trees]

    def _search(self, data: Dataset, batch: slice, widths: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The labels that each tree finds for the documents of a batch, side by side, and their log probabilities."""
        X, n_docs, ends = data.X, batch.stop - batch.start, np.cumsum([0, *widths])
        labels, logs = np.empty((n_docs, ends[-1]), np.int32), np.empty((n_docs, ends[-1]), np.float32)
        for tree, begin, end in zip(self.trees, ends[:-1], ends[1:], strict=True):
            found = labels[:, begin:end], logs[:, begin:end]
            documents = X.indptr, X.indices, X.data, batch.start, batch.stop
            link = LINKS[self.link]
            if self.beam == EXACT:
                best_first_search(*documents, link, self.n_features, *tree.arrays, *found)
            else:
                beam = min(self.beam, len(tree.children) - 1)
                beam_search(*documents, beam, link, self.n_features, *tree.arrays, *found)
        return labels, logs

    def explain(self, document: Dataset, label: int) -> Explanation:
        """What each word adds to the margins of the classifiers on the label's path, averaged over the trees."""
        x = np.zeros(self.n_features, np.float32)
        x[document.X.indices] = document.X.data
        total = np.zeros(self.n_features, np.float32)
        for tree in self.trees:
            for node, slot in tree.path(label):
                features, weights = tree.slot_weights(node, slot)
                total[features] += weights * x[features] / len(self.trees)
        features = np.flatnonzero(total)
        order = np.argsort(-total[features], kind="stable")
        return Explanation(features[order].astype(np.int32), total[features[order]])

    def check(self) -> None:
        if self.link not in LINKS or self.beam < 0 or not self.trees:
            raise ValueError("its label trees cannot be searched")
        for tree in self.trees:
            tree.check(self.n_labels, self.n_features)

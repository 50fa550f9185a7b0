"""The trained form of every label-tree method: trees of linear classifiers, searched with a beam."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from xmtc.data.dataset import Dataset
from xmtc.method import Explanation, Model
from xmtc.predictions import NO_LABEL, Predictions
from xmtc.run import Run

BATCH = 256  # documents scored by one thread at a time


@dataclass(frozen=True)
class Tree:
    """Nodes are numbered level by level from the root, 0; their children fill slots in the same order. Slot s is node
    s + 1 while there is such a node; the slots after those are labels. A node's weights lie together: the features
    that any of its children uses, ascending, and per feature the (child, weight) entries."""

    children: np.ndarray  # (n_nodes + 1,) int64, node n has slots children[n]:children[n + 1]
    labels: np.ndarray  # (n_labels,) int32, the labels in the last slots
    bias: np.ndarray  # (n_slots,) float32
    rows: np.ndarray  # (n_nodes + 1,) int64, node n has feature rows rows[n]:rows[n + 1]
    features: np.ndarray  # (n_rows,) int32
    entries: np.ndarray  # (n_rows + 1,) int64, row r has entries entries[r]:entries[r + 1]
    entry_child: np.ndarray  # (n_entries,) uint16, the slot less the node's first slot
    entry_weight: np.ndarray  # (n_entries,) float32

    @property
    def arrays(
        self,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return (
            self.children, self.labels, self.bias, self.rows,
            self.features, self.entries, self.entry_child, self.entry_weight,
        )  # fmt: skip

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
        rows = slice(self.rows[node], self.rows[node + 1])
        counts = np.diff(self.entries[self.rows[node] : self.rows[node + 1] + 1])
        begin, end = self.entries[self.rows[node]], self.entries[self.rows[node + 1]]
        mine = self.entry_child[begin:end] == slot - self.children[node]
        return np.repeat(self.features[rows], counts)[mine], self.entry_weight[begin:end][mine]


@dataclass(frozen=True)
class TreeModel(Model):
    """The mean over the trees of P(label) = Π P(child | parent) down the path, where P(child | parent) is
    exp(−max(0, 1 − margin)²): Parabel's probability model for the squared hinge."""

    n_labels: int
    n_features: int
    beam: int
    trees: tuple[Tree, ...]

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        k = min(k, self.n_labels)
        batches = [slice(i, min(i + BATCH, data.n_docs)) for i in range(0, data.n_docs, BATCH)]
        parts = run.map(lambda batch: self._predict(data, batch, k), batches, "predicting", total=len(batches))
        empty = Predictions(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        return Predictions.stack([empty, *parts])

    def _predict(self, data: Dataset, batch: slice, k: int) -> Predictions:
        X, n_docs = data.X, batch.stop - batch.start
        totals = np.zeros((n_docs, self.n_labels), np.float32)
        for tree in self.trees:
            add_scores(X.indptr, X.indices, X.data, batch.start, batch.stop, self.beam, *tree.arrays, totals)
        return Predictions(*best(totals, k, len(self.trees)))

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


@njit(nogil=True, cache=True)
def score_children(indices, data, begin, end, node, bias, children, rows, features, entries, child, weight, scores):
    """scores[:n] = log P(child | node) of the node's n children for the document indices[begin:end]."""
    first, n = children[node], children[node + 1] - children[node]
    scores[:n] = bias[first : first + n]
    low, last = rows[node], rows[node + 1]
    for i in range(begin, end):
        feature, high = indices[i], last
        while low < high:  # both lists ascend, so each search starts where the last one ended
            middle = (low + high) // 2
            if features[middle] < feature:
                low = middle + 1
            else:
                high = middle
        if low == last:
            break
        if features[low] == feature:
            for entry in range(entries[low], entries[low + 1]):
                scores[child[entry]] += data[i] * weight[entry]
    for c in range(n):
        loss = max(np.float32(0), 1 - scores[c])
        scores[c] = -loss * loss
    return n


@njit(nogil=True, cache=True)
def add_scores(
    indptr, indices, data, start, stop, beam, children, labels, bias, rows, features, entries, child, weight, totals
):
    """Add each document's label probabilities under one tree to totals: a beam search from the root, level by level."""
    n_nodes, widest = len(children) - 1, 0
    for node in range(n_nodes):
        widest = max(widest, children[node + 1] - children[node])
    scores = np.empty(widest, np.float32)
    for doc in range(start, stop):
        nodes, logs = np.zeros(1, np.int64), np.zeros(1, np.float32)
        while len(nodes):
            next_nodes, next_logs = np.empty(len(nodes) * widest, np.int64), np.empty(len(nodes) * widest, np.float32)
            found = 0
            for b in range(len(nodes)):
                node = nodes[b]
                n = score_children(
                    indices, data, indptr[doc], indptr[doc + 1], node,
                    bias, children, rows, features, entries, child, weight, scores,
                )  # fmt: skip
                for c in range(n):
                    slot, log = children[node] + c, logs[b] + scores[c]
                    if slot + 1 < n_nodes:
                        next_nodes[found], next_logs[found] = slot + 1, log
                        found += 1
                    else:
                        totals[doc - start, labels[slot + 1 - n_nodes]] += np.exp(log)
            keep = np.argsort(-next_logs[:found], kind="mergesort")[:beam]
            nodes, logs = next_nodes[keep], next_logs[keep]


@njit(nogil=True, cache=True)
def best(totals, k, n_trees):
    """The k largest positive totals of each row, as means over the trees; equal ones rank by label number."""
    n_docs, n_labels = totals.shape
    top = np.full((n_docs, k), NO_LABEL, np.int32)
    scores = np.zeros((n_docs, k), np.float32)
    for doc in range(n_docs):
        for label in range(n_labels):
            score = totals[doc, label]
            if score <= scores[doc, k - 1]:
                continue
            place = k - 1
            while place > 0 and scores[doc, place - 1] < score:
                scores[doc, place], top[doc, place] = scores[doc, place - 1], top[doc, place - 1]
                place -= 1
            scores[doc, place], top[doc, place] = score, label
        for place in range(k):
            scores[doc, place] = min(scores[doc, place] / n_trees, np.float32(1))
    return top, scores

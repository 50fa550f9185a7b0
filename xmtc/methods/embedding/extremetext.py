"""extremeText: fastText with a probabilistic label tree.

Paper: Wydmuch, Jasinska, Kuznetsov, Busa-Fekete, Dembczyński: A no-regret generalization of hierarchical softmax to
extreme multi-label classification (NeurIPS 2018).

Idea: a document is the mean h of the vectors of its words, weighted by tf-idf. A logistic classifier at each node of a
label tree estimates the probability that the document has a label below the node, given that it has one below the
parent; the product along a path is the probability of the label. fastText's hierarchical softmax trains the path of one
random label per document, which does not find the most probable labels; the label tree trains the paths of all labels.
The tree is built by balanced k-means over label vectors, and a best-first search finds the best labels exactly.

Differs from the authors' code as follows. One thread visits the documents in random order, so that the same seed gives
the same model. L2 regularisation decays the node vectors only; the authors also decay the gradient of a document while
they sum it. A node with a single child is left out. The tf-idf weights are those of the view, so matrices of
features work too; negative features count in the mean with their absolute value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.batching import predict_in_batches
from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.memory import check_fits
from xmtc.core.method import Explanation, Method, Model
from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.core.sparse import to_kernel_arrays
from xmtc.labels.streaming_kmeans import build_label_vectors
from xmtc.labels.tree import LabelTree, build_balanced_trees, compress_tree
from xmtc.linear.search import is_ranked_before, sift_down
from xmtc.methods.embedding.fasttext import VectorTrainer
from xmtc.methods.embedding.fasttext_kernels import (
    DIVERGED_LOSS,
    MAX_SQUARED_NORM,
    PARTIAL_SUMS,
    compute_mean_vector,
    multiply_vectors,
    sigmoid,
    update_output_row,
    update_vectors,
)
from xmtc.methods.label_tree.base import ARITIES
from xmtc.storage.form import array

MAX_BATCH_DOCUMENTS = 256


@dataclass(frozen=True)
class ExtremeText(Method):
    """fastText with a probabilistic label tree (Wydmuch et al., NeurIPS 2018).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import ExtremeText
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> method = ExtremeText(dimension=8, epochs=50)
    >>> classifier = Classifier(method).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"dimension": 32, "max_leaf": 8, "epochs": 30}

    dimension: int = param(500, "Dimension of the vectors.", low=1, search=(100, 500), log=True)
    rate: float = param(
        0.5, "Initial learning rate, which decreases linearly to 0.", low=1e-6, high=1e3, search=(0.1, 2.0), log=True
    )
    epochs: int = param(10, "Number of passes over the documents.", low=1, search=(5, 50), log=True)
    l2: float = param(0.0, "Weight of the L2 regulariser of the node vectors.", low=0.0, high=1.0)
    arity: int = param(2, "Maximum number of children of a node above the last level.", choices=ARITIES)
    max_leaf: int = param(
        100, "Maximum number of labels below a node of the last level.", low=1, search=(20, 500), log=True
    )
    seed: int = param(
        0, "Random seed of the tree, the initial vectors and the order of documents.", low=0, high=2**32 - 1
    )

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> ExtremeTextModel:
        claim_checkpoint(run, self, data)
        assert data.Y is not None
        starts, labels = flatten_tree(self.build_tree(data, run))
        n_values = (data.X.shape[1] + len(labels)) * self.dimension
        vectors = f"{data.X.shape[1]:,} vectors of features, and {len(labels):,} of nodes"
        check_fits(4 * n_values, vectors, "lower the dimension")
        trainer = ExtremeTextTrainer(self, compute_feature_shares(data.X), data.Y, starts, labels)
        trainer.train(np.maximum(1, np.diff(data.X.indptr)), run)
        return ExtremeTextModel(
            n_labels=data.n_labels,
            views=data.sizes,
            starts=starts,
            labels=labels,
            vectors=trainer.vectors,
            outputs=trainer.outputs,
        )

    def build_tree(self, data: Dataset, run: Run) -> LabelTree:
        (tree,) = build_balanced_trees(build_label_vectors(data, run), self.max_leaf, [(self.seed, 0)], run)
        return compress_tree(tree, self.arity.bit_length() - 1)


def flatten_tree(tree: LabelTree) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes of a tree in breadth-first order, as the arrays `starts` and `labels` of ExtremeTextModel.

    A node with a single child is replaced by the child, because the child's classifier would have nothing to learn.
    """
    depth = len(tree.levels)

    def list_children(level: int, node: int) -> list[int]:
        indptr, indices = tree.levels[level].indptr, tree.levels[level].indices
        return indices[indptr[node] : indptr[node + 1]].tolist()

    def skip_single_children(level: int, node: int) -> tuple[int, int]:
        while level < depth and len(children := list_children(level, node)) == 1:
            level, node = level + 1, children[0]
        return level, node

    queue, starts, labels = [skip_single_children(0, 0)], [1], []
    for level, node in queue:  # the loop appends to the queue
        labels.append(node if level == depth else NO_LABEL)
        if level < depth:
            queue.extend(skip_single_children(level + 1, child) for child in list_children(level, node))
        starts.append(len(queue))
    return np.array(starts, np.int64), np.array(labels, np.int32)


def list_parents(starts: np.ndarray) -> np.ndarray:
    """Return the parent of each node; the root is its own parent."""
    return np.concatenate([[0], np.repeat(np.arange(len(starts) - 1), np.diff(starts))])


def list_label_nodes(labels: np.ndarray) -> np.ndarray:
    """Return the node of each label."""
    nodes = np.flatnonzero(labels != NO_LABEL)
    return nodes[np.argsort(labels[nodes])]


def compute_feature_shares(X: csr_array) -> csr_array:
    """Return X with rows whose absolute values sum to 1, so that X · V has the means of feature vectors."""
    counts = np.diff(X.indptr)
    rows = np.repeat(np.arange(X.shape[0]), counts)
    totals = np.bincount(rows, np.abs(X.data.astype(np.float64)), minlength=X.shape[0])
    data = (X.data / np.repeat(np.where(totals > 0, totals, 1), counts)).astype(np.float32)
    return csr_array((data, X.indices, X.indptr), shape=X.shape)


class ExtremeTextTrainer(VectorTrainer):
    """Training state of extremeText: feature and node vectors."""

    def __init__(self, method: ExtremeText, X: csr_array, Y: csr_array, starts: np.ndarray, labels: np.ndarray):
        super().__init__(X, Y, method.dimension, method.rate, method.epochs, method.seed)
        self.outputs = np.zeros((len(labels), method.dimension), np.float32)
        self.l2, self.starts = method.l2, starts
        self.parents, self.label_nodes = list_parents(starts), list_label_nodes(labels)

    def step(self, docs: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> float:
        decays = (1 - rates * min(self.l2, 1 / self.rate)).astype(np.float32)
        Y = self.Y.indptr.astype(np.int64), self.Y.indices
        tree = self.starts, self.parents, self.label_nodes
        marks = np.zeros(len(self.parents), bool), np.empty(len(self.parents), np.int64)
        X = to_kernel_arrays(self.X)
        return train_label_tree(
            *X, *Y, docs, rates, decays, *tree, *marks, self.vectors, self.outputs, self.allocate_work()
        )


@dataclass(frozen=True, kw_only=True)
class ExtremeTextModel(Model):
    """Label probabilities Π σ(h · w) along the path of a label, from the weighted mean h of the feature vectors.

    Nodes are numbered in breadth-first order, so that the children of a node have consecutive numbers.
    """

    starts: np.ndarray = array(np.int64)  # (n_nodes + 1,), node n has the children starts[n]:starts[n + 1]
    labels: np.ndarray = array(np.int32)  # (n_nodes,), label of a leaf, NO_LABEL for other nodes
    vectors: np.ndarray = array(np.float32, ndim=2)  # (n_features, dimension), V
    outputs: np.ndarray = array(np.float32, ndim=2)  # (n_nodes, dimension), W; that of the root, node 0, is not used

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        X, k = to_kernel_arrays(compute_feature_shares(data.X)), min(k, self.n_labels)

        def predict_batch(batch: slice) -> Predictions:
            n_docs, n_nodes, d = batch.stop - batch.start, len(self.labels), self.vectors.shape[1]
            labels, scores = np.empty((n_docs, k), np.int32), np.empty((n_docs, k), np.float32)
            work = (
                np.empty(d, np.float32),
                np.empty(PARTIAL_SUMS, np.float32),
                np.empty(n_nodes),
                np.empty(n_nodes, int),
            )
            model = self.vectors, self.outputs, self.starts, self.labels
            search_label_tree(*X, batch.start, *model, *work, labels, scores)
            return Predictions.from_valid_arrays(labels, scores)

        return predict_in_batches(predict_batch, data.n_docs, k, MAX_BATCH_DOCUMENTS, run)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the contribution of each feature to the sum of the scores h · w of the nodes above the label."""
        (view,), shares = self.views, compute_feature_shares(document.X)
        weights = shares.data * (self.vectors[shares.indices] @ self.outputs[self.list_path(label)].sum(axis=0))
        return Explanation.from_occurrences(view, shares.indices, weights, bias=0.0)

    def list_path(self, label: int) -> list[int]:
        """Return the nodes on the path to a label, without the root."""
        path, (parents, label_nodes) = [], self.paths
        node = int(label_nodes[label])
        while node:
            path.append(node)
            node = int(parents[node])
        return path

    @cached_property
    def paths(self) -> tuple[np.ndarray, np.ndarray]:
        return list_parents(self.starts), list_label_nodes(self.labels)

    def check(self) -> None:
        n_nodes, n_features = len(self.labels), sum(self.views.values())
        if not is_breadth_first(self.starts, n_nodes):
            raise ValueError("starts are not the children of a tree in breadth-first order")
        is_leaf = self.starts[1:] == self.starts[:-1]
        if not np.array_equal(np.sort(self.labels[is_leaf]), np.arange(self.n_labels)) or (
            (self.labels[~is_leaf] != NO_LABEL).any()
        ):
            raise ValueError(f"labels are not one leaf for each of {self.n_labels} labels")
        if len(self.vectors) != n_features or self.outputs.shape != (n_nodes, self.vectors.shape[1]):
            raise ValueError(
                f"vectors and outputs have the shapes {self.vectors.shape} and {self.outputs.shape}; expected "
                f"{n_features} features and {n_nodes} nodes with vectors of the same length"
            )


def is_breadth_first(starts: np.ndarray, n_nodes: int) -> bool:
    """Return True if each node but the root is the child of an earlier node."""
    return bool(
        n_nodes > 0
        and starts.shape == (n_nodes + 1,)
        and starts[0] == 1
        and starts[-1] == n_nodes
        and (starts[1:] >= starts[:-1]).all()
        and (starts[:-1] > np.arange(n_nodes))[1:].all()
    )


@kernel
def mark_positive_nodes(labels, parents, label_nodes, is_positive, positive):
    """Mark and list the nodes on the paths to some labels, and return their number."""
    n = np.int64(0)
    for label in labels:
        node = label_nodes[label]
        while not is_positive[node]:
            is_positive[node] = True
            positive[n] = node
            n += 1
            node = parents[node]
    return n


@fast_kernel
def train_label_tree(
    indptr, indices, values, label_indptr, labels, docs, rates, decays,
    starts, parents, label_nodes, is_positive, positive, vectors, outputs, work,
):  # fmt: skip
    """Train the children of all nodes above the labels of each document; return the loss, or DIVERGED_LOSS.

    The target of a child is 1 if it is above a label of the document too. `is_positive` is False before and after.
    """
    h, gradient, lanes = work
    loss = 0.0
    for i in range(len(docs)):
        doc = docs[i]
        if compute_mean_vector(indptr, indices, values, doc, vectors, h) > MAX_SQUARED_NORM:
            return DIVERGED_LOSS
        for j in range(len(h)):
            gradient[j] = 0
        doc_labels = labels[label_indptr[doc] : label_indptr[doc + 1]]
        n = mark_positive_nodes(doc_labels, parents, label_nodes, is_positive, positive)
        for node in positive[:n]:
            for child in range(starts[node], starts[node + 1]):
                w = outputs[child]
                loss += update_output_row(h, w, is_positive[child], rates[i], decays[i], lanes, gradient)
        for node in positive[:n]:
            is_positive[node] = False
        update_vectors(indptr, indices, values, doc, gradient, vectors)
    return loss


@kernel
def push_node(key, item, keys, items, n):
    """Add an item to a heap whose root is ranked last (see `sift_down`)."""
    at = n
    while at > 0 and is_ranked_before(keys[(at - 1) // 2], items[(at - 1) // 2], key, item):
        keys[at], items[at] = keys[(at - 1) // 2], items[(at - 1) // 2]
        at = (at - 1) // 2
    keys[at], items[at] = key, item


@fast_kernel
def search_label_tree(
    indptr, indices, values, begin, vectors, outputs, starts, node_labels, h, lanes, keys, items, labels, scores
):
    """Write the most probable labels of documents from `begin` on, found by best-first search.

    The heap holds negative probabilities and negative node numbers, so that its root is the most probable node, the
    first among equals.
    """
    k = labels.shape[1]
    for row in range(len(labels)):
        compute_mean_vector(indptr, indices, values, begin + row, vectors, h)
        keys[0], items[0], n, n_found = -1.0, 0, 1, 0
        while n and n_found < k:
            probability, node = -keys[0], -items[0]
            n -= 1
            keys[0], items[0] = keys[n], items[n]
            if n:
                sift_down(keys, items, 0, n)
            if node_labels[node] != NO_LABEL:
                labels[row, n_found], scores[row, n_found] = node_labels[node], probability
                n_found += 1
            for child in range(starts[node], starts[node + 1]):
                p = probability * np.float64(sigmoid(multiply_vectors(h, outputs[child], lanes)))
                push_node(-p, -child, keys, items, n)
                n += 1
        for i in range(n_found, k):
            labels[row, i], scores[row, i] = NO_LABEL, 0

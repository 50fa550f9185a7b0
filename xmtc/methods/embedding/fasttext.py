"""fastText: the mean of word and n-gram vectors, and a linear layer.

Paper: Joulin, Grave, Bojanowski, Mikolov: Bag of Tricks for Efficient Text Classification (EACL 2017).

Idea: a document is the mean h of the vectors of its words and hashed word n-grams. A linear layer scores the labels,
with a hierarchical softmax over a Huffman tree, a full softmax, negative sampling or one-vs-all logistic loss. Where
the paper gives no detail, the authors' code is followed: each pass samples one label per document, except with
one-vs-all, and the learning rate decreases linearly to 0.

Differs from the authors' code as follows. One thread visits the documents in random order, so that the same seed gives
the same model; the authors' threads update shared weights without locks (Hogwild). A word that occurs several times in
a document is looked up once. N-grams that do not occur in training have no vector. There are no character n-grams,
because a model knows words only by number.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Dataset
from xmtc.core.events import Pass, measure_peak_memory
from xmtc.core.hyperparameters import param
from xmtc.core.memory import check_fits
from xmtc.core.method import Method
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods.embedding.fasttext_kernels import DIVERGED_LOSS, PARTIAL_SUMS, train_dense_output, train_selected_rows
from xmtc.methods.embedding.fasttext_model import (
    HIERARCHICAL,
    LOSSES,
    MAX_BUCKETS,
    MAX_NGRAM_WORDS,
    OVA,
    SOFTMAX,
    VIEW,
    FastTextModel,
    compute_term_shares,
    hash_all_word_ngrams,
)

DOCUMENTS_PER_STEP = 1000  # documents per call of a kernel, between two updates of the progress


@dataclass(frozen=True)
class FastText(Method):
    """Mean of word and n-gram vectors, and a linear layer (Joulin et al., EACL 2017).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import FastText
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> method = FastText(dimension=8, loss="ova", epochs=50)
    >>> classifier = Classifier(method).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    required_views: ClassVar[tuple[str, ...]] = (VIEW,)
    quick_parameters: ClassVar[dict[str, Any]] = {"dimension": 32, "loss": "ova", "rate": 0.5, "epochs": 60}

    dimension: int = param(100, "Dimension of the vectors.", low=1, search=(50, 300), log=True)
    loss: str = param(
        HIERARCHICAL,
        "Loss: hierarchical softmax (hs), softmax, one-vs-all (ova) or negative sampling (ns).",
        choices=LOSSES,
    )
    rate: float = param(
        0.5,
        "Initial learning rate, which decreases linearly to 0.",
        low=1e-6,
        high=1e3,
        search=(0.1, 2.0),
        log=True,
    )
    epochs: int = param(25, "Number of passes over the documents.", low=1, search=(5, 50), log=True)
    word_ngrams: int = param(
        1, "Maximum length of word n-grams that have their own vectors.", low=1, high=MAX_NGRAM_WORDS, search=(1, 2)
    )
    buckets: int = param(2_000_000, "Number of hash buckets for n-grams.", low=1, high=MAX_BUCKETS)
    negatives: int = param(5, "Number of sampled negative labels per step with loss=ns.", low=1, high=10_000)
    seed: int = param(
        0, "Random seed of the initial vectors, the order of documents and sampling.", low=0, high=2**32 - 1
    )

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> FastTextModel:
        claim_checkpoint(run, self, data)
        assert data.Y is not None
        tokens = data.tokens(VIEW)
        begins, _, buckets = hash_all_word_ngrams(tokens, self.word_ngrams, self.buckets)
        seen_buckets, ngram_ids = np.unique(buckets, return_inverse=True)
        X = compute_term_shares(tokens, begins, tokens.size + ngram_ids, tokens.size + len(seen_buckets))
        self.check_memory(X.shape[1], data.n_labels)
        trainer = FastTextTrainer(self, X, data.Y)
        trainer.train(tokens.lengths, run)
        return FastTextModel(
            n_labels=data.n_labels,
            views=data.sizes,
            loss=self.loss,
            ngrams=self.word_ngrams,
            n_buckets=self.buckets,
            buckets=seen_buckets,
            vectors=trainer.vectors,
            outputs=trainer.transpose_outputs(),
            children=trainer.children,
        )

    def check_memory(self, n_rows: int, n_labels: int) -> None:
        """Raise an error before training if the vectors do not fit into memory."""
        n_values = (n_rows + 2 * n_labels) * self.dimension
        vectors = f"{n_rows:,} vectors of words and n-grams, and {n_labels:,} of labels"
        check_fits(4 * n_values, vectors, "lower the dimension or the number of buckets")


class VectorTrainer:
    """Stochastic gradient descent on feature vectors and output vectors; a subclass has the loss in `step`."""

    def __init__(self, X: csr_array, Y: csr_array, dimension: int, rate: float, epochs: int, seed: int):
        self.X, self.Y = X, Y
        self.rate, self.epochs, self.seed = rate, epochs, seed
        rng = np.random.default_rng(seed)
        self.vectors = ((2 * rng.random((X.shape[1], dimension), np.float32) - 1) / dimension).astype(np.float32)
        self.outputs = np.zeros((0, dimension), np.float32)

    def train(self, lengths: np.ndarray, run: Run) -> None:
        """Run all passes, or those after the checkpoint, over the documents that have labels."""
        labelled = np.flatnonzero(np.diff(self.Y.indptr))
        first, saved_at = self.restore_checkpoint(run), time.monotonic()
        with run.stage("training", self.epochs * len(labelled)) as progress:
            progress.advance(first * len(labelled))
            for number in range(first, self.epochs):
                begin, loss = time.monotonic(), 0.0
                rng = np.random.default_rng((self.seed, number))
                docs = rng.permutation(labelled)
                rates = self.compute_learning_rates(lengths[docs], number)
                for part in range(0, len(docs), DOCUMENTS_PER_STEP):
                    batch = slice(part, part + DOCUMENTS_PER_STEP)
                    loss += self.check_loss(self.step(docs[batch], rates[batch], rng))
                    progress.advance(len(docs[batch]))
                self.report_epoch(run, number, loss / max(1, len(docs)), rates, time.monotonic() - begin)
                if time.monotonic() - saved_at >= run.checkpoint.interval_seconds:
                    self.save_checkpoint(run, number + 1)
                    saved_at = time.monotonic()

    def step(self, docs: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> float:
        """Train on some documents in order and return the sum of their losses."""
        raise NotImplementedError

    def check_loss(self, loss: float) -> float:
        if loss == DIVERGED_LOSS or not np.isfinite(loss):
            raise XmtcError(
                f"The training diverged with rate={self.rate:g}: the vectors became too large; lower the rate."
            )
        return loss

    def report_epoch(self, run: Run, epoch: int, loss: float, rates: np.ndarray, seconds: float) -> None:
        rate = float(rates[-1]) if len(rates) else 0.0
        run.notify(Pass(run.qualify_name("network"), epoch + 1, loss, rate, seconds, memory=measure_peak_memory()))

    def save_checkpoint(self, run: Run, n_epochs: int) -> None:
        arrays = {"vectors": self.vectors, "outputs": self.outputs, "n_passes": np.array(n_epochs)}
        run.checkpoint.save_piece("vectors", arrays)

    def restore_checkpoint(self, run: Run) -> int:
        """Load the vectors from the checkpoint, if there is one, and return the number of finished passes."""
        arrays = run.checkpoint.load_piece("vectors")
        if arrays is None:
            return 0
        self.vectors, self.outputs = arrays["vectors"], arrays["outputs"]
        return int(arrays["n_passes"])

    def compute_learning_rates(self, lengths: np.ndarray, epoch: int) -> np.ndarray:
        """Return the rate for each document of a pass, which decreases with the number of words read so far."""
        words_before = np.cumsum(lengths) - lengths
        remaining = 1 - (epoch + words_before / max(1, lengths.sum())) / self.epochs
        return (self.rate * remaining).astype(np.float32)

    def allocate_work(self) -> tuple[np.ndarray, ...]:
        """Return the work arrays of the kernels: mean vector, gradient and partial sums."""
        dimension = self.vectors.shape[1]
        return tuple(np.empty(n, np.float32) for n in (dimension, dimension, PARTIAL_SUMS))


class FastTextTrainer(VectorTrainer):
    """Training state of fastText: word and output vectors."""

    def __init__(self, method: FastText, X: csr_array, Y: csr_array):
        super().__init__(X, Y, method.dimension, method.rate, method.epochs, method.seed)
        self.method, self.n_labels, d = method, Y.shape[1], method.dimension
        self.counts = np.bincount(Y.indices, minlength=self.n_labels)
        self.children = build_huffman_tree(self.counts) if method.loss == HIERARCHICAL else np.zeros((0, 2), np.int32)
        rows = max(1, self.n_labels - 1) if method.loss == HIERARCHICAL else self.n_labels
        width = -(-self.n_labels // PARTIAL_SUMS) * PARTIAL_SUMS
        self.outputs = np.zeros((d, width) if self.has_dense_output else (rows, d), np.float32)
        self.paths = list_label_paths(self.children, self.n_labels) if method.loss == HIERARCHICAL else None

    @property
    def has_dense_output(self) -> bool:
        return self.method.loss in (OVA, SOFTMAX)

    def transpose_outputs(self) -> np.ndarray:
        """Return the output vectors in the layout of FastTextModel, shape (dimension, n_outputs)."""
        if self.has_dense_output:
            return np.ascontiguousarray(self.outputs[:, : self.n_labels])
        n = self.n_labels - 1 if self.method.loss == HIERARCHICAL else self.n_labels
        return np.ascontiguousarray(self.outputs[:n].T)

    def step(self, docs: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> float:
        X, work = (self.X.indptr, self.X.indices, self.X.data), self.allocate_work()
        if self.has_dense_output:
            starts, labels = self.gather_labels(docs) if self.method.loss == OVA else self.draw_labels(docs, rng)
            scores, is_softmax = np.empty(self.outputs.shape[1], np.float32), self.method.loss == SOFTMAX
            return train_dense_output(
                *X, docs, rates, starts, labels, is_softmax, self.vectors, self.outputs, self.n_labels, scores, work
            )
        starts, rows, codes = self.select_output_rows(self.draw_labels(docs, rng)[1], rng)
        return train_selected_rows(*X, docs, rates, starts, rows, codes, self.vectors, self.outputs, work)

    def gather_labels(self, docs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets, and the labels of all documents one after the other."""
        starts, counts = self.Y.indptr[docs], np.diff(self.Y.indptr)[docs]
        return concatenate_slices(self.Y.indices, starts, counts)

    def draw_labels(self, docs: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets, and one random label of each document."""
        counts = np.diff(self.Y.indptr)[docs]
        labels = self.Y.indices[self.Y.indptr[docs] + rng.integers(counts)]
        return np.arange(len(docs) + 1), labels

    def select_output_rows(
        self, labels: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return offsets, output rows and their targets (1 or 0) for the steps of some labels.

        The rows are the nodes above a label (hs), or the label and random negatives (ns).
        """
        if self.paths is not None:
            offsets, nodes, codes = self.paths
            starts, rows = concatenate_slices(nodes, offsets[labels], np.diff(offsets)[labels])
            return starts, rows, concatenate_slices(codes, offsets[labels], np.diff(offsets)[labels])[1]
        n = self.method.negatives
        cumulative = np.cumsum(np.sqrt(self.counts))
        draws = cumulative[-1] * rng.random((len(labels), n))
        negatives = np.searchsorted(cumulative, draws, side="right").astype(np.int32)
        rows = np.column_stack([labels, negatives])
        is_used = np.column_stack([np.ones(len(labels), bool), negatives != labels[:, None]])
        codes = np.broadcast_to(np.arange(n + 1) == 0, rows.shape)
        starts = np.concatenate([[0], np.cumsum(is_used.sum(1))])
        return starts, rows[is_used], codes[is_used].astype(np.float32)


def concatenate_slices(values: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets, and the concatenated slices of an array."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return starts, values[np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)]


def build_huffman_tree(counts: np.ndarray) -> np.ndarray:
    """Return the children of each node of a Huffman tree over label frequencies, shape (n_labels - 1, 2).

    A child is a label, or n_labels + the number of an earlier node. The root is the last node; frequent labels are near
    it.
    """
    heap = [(int(count), label) for label, count in enumerate(counts)]
    heapq.heapify(heap)
    children = np.zeros((len(counts) - 1, 2), np.int32)
    for node in range(len(children)):
        (first_count, first), (second_count, second) = heapq.heappop(heap), heapq.heappop(heap)
        children[node] = first, second
        heapq.heappush(heap, (first_count + second_count, len(counts) + node))
    return children


def list_label_paths(children: np.ndarray, n_labels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return offsets, the nodes above each label, and 1 where the path leads to the second child of the node."""
    paths: list[list[tuple[int, int]]] = [[] for _ in range(2 * n_labels - 1)]
    for node in range(n_labels - 2, -1, -1):
        for side, child in enumerate(children[node]):
            paths[child] = [*paths[n_labels + node], (node, side)]
    steps = [step for path in paths[:n_labels] for step in path]
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in paths[:n_labels]])])
    nodes, codes = np.array(steps, np.int64).reshape(-1, 2).T
    return offsets, nodes.astype(np.int32), codes.astype(np.float32)

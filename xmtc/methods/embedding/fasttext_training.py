"""How fastText's vectors are trained: passes over the documents, one after the other, with rates that fall to 0."""

from __future__ import annotations

import heapq
import time
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.events import Pass, measure_peak_memory
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods.embedding.fasttext_kernels import DIVERGED, LANES, train_all, train_some
from xmtc.methods.embedding.fasttext_model import HIERARCHICAL, OVA, SOFTMAX

if TYPE_CHECKING:
    from xmtc.methods.embedding.fasttext import FastText

DOCS = 1000  # trained on between two looks at the clock
KEEP_SECONDS = 600.0  # between checkpoints


class Training:
    """Vectors while they are trained."""

    def __init__(self, method: FastText, X: csr_array, Y: csr_array):
        self.method, self.X, self.Y = method, X, Y
        self.n_labels, d = Y.shape[1], method.dimension
        rng = np.random.default_rng(method.seed)
        self.vectors = ((2 * rng.random((X.shape[1], d), np.float32) - 1) / d).astype(np.float32)
        self.counts = np.bincount(Y.indices, minlength=self.n_labels)
        self.children = huffman(self.counts) if method.loss == HIERARCHICAL else np.zeros((0, 2), np.int32)
        rows = max(1, self.n_labels - 1) if method.loss == HIERARCHICAL else self.n_labels
        width = -(-self.n_labels // LANES) * LANES
        self.outputs = np.zeros((d, width) if self.looks_at_all else (rows, d), np.float32)
        self.paths = paths_in(self.children, self.n_labels) if method.loss == HIERARCHICAL else None

    @property
    def looks_at_all(self) -> bool:
        return self.method.loss in (OVA, SOFTMAX)

    def outputs_of_labels(self) -> np.ndarray:
        """(d, n) as the model has them."""
        if self.looks_at_all:
            return np.ascontiguousarray(self.outputs[:, : self.n_labels])
        n = self.n_labels - 1 if self.method.loss == HIERARCHICAL else self.n_labels
        return np.ascontiguousarray(self.outputs[:n].T)

    def run(self, lengths: np.ndarray, run: Run) -> None:
        """All passes, or those that are left of a training that was stopped. Documents without labels are left out."""
        labelled = np.flatnonzero(np.diff(self.Y.indptr))
        first, kept_at = self.resume(run), time.monotonic()
        with run.stage("training", self.method.epochs * len(labelled)) as progress:
            progress.advance(first * len(labelled))
            for number in range(first, self.method.epochs):
                begin, loss = time.monotonic(), 0.0
                rng = np.random.default_rng((self.method.seed, number))
                docs = rng.permutation(labelled)
                rates = self.rates(lengths[docs], number)
                for part in range(0, len(docs), DOCS):
                    some = slice(part, part + DOCS)
                    loss += self.checked(self.step(docs[some], rates[some], rng))
                    progress.advance(len(docs[some]))
                self.tell(run, number, loss / max(1, len(docs)), rates, time.monotonic() - begin)
                if time.monotonic() - kept_at > KEEP_SECONDS:
                    self.keep(run, number + 1)
                    kept_at = time.monotonic()

    def checked(self, loss: float) -> float:
        if loss == DIVERGED or not np.isfinite(loss):
            raise XmtcError(
                f"The training diverged: vectors have grown beyond all use; try a lower rate than {self.method.rate:g}."
            )
        return loss

    def tell(self, run: Run, number: int, loss: float, rates: np.ndarray, seconds: float) -> None:
        rate = float(rates[-1]) if len(rates) else 0.0
        run.notify(Pass(run.qualify_name("network"), number + 1, loss, rate, seconds, memory=measure_peak_memory()))

    def keep(self, run: Run, n_passes: int) -> None:
        arrays = {"vectors": self.vectors, "outputs": self.outputs, "n_passes": np.array(n_passes)}
        run.checkpoint.save_piece("vectors", arrays)

    def resume(self, run: Run) -> int:
        """How many passes are behind it."""
        kept = run.checkpoint.load_piece("vectors")
        if kept is None:
            return 0
        self.vectors, self.outputs = kept["vectors"], kept["outputs"]
        return int(kept["n_passes"])

    def rates(self, lengths: np.ndarray, number: int) -> np.ndarray:
        """Of each document of a pass: they fall with the words that have been read, to 0 at the end of the last."""
        before = np.cumsum(lengths) - lengths
        left = 1 - (number + before / max(1, lengths.sum())) / self.method.epochs
        return (self.method.rate * left).astype(np.float32)

    def step(self, docs: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> float:
        """One after the other; the sum of their losses."""
        X, d = (self.X.indptr, self.X.indices, self.X.data), self.method.dimension
        work = tuple(np.empty(n, np.float32) for n in (d, d, LANES))
        if self.looks_at_all:
            starts, labels = self.labels_of(docs) if self.method.loss == OVA else self.drawn(docs, rng)
            scores, one = np.empty(self.outputs.shape[1], np.float32), self.method.loss == SOFTMAX
            return train_all(
                *X, docs, rates, starts, labels, one, self.vectors, self.outputs, self.n_labels, scores, work
            )
        starts, rows, codes = self.rows_of(self.drawn(docs, rng)[1], rng)
        return train_some(*X, docs, rates, starts, rows, codes, self.vectors, self.outputs, work)

    def labels_of(self, docs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of all documents, end to end."""
        starts, counts = self.Y.indptr[docs], np.diff(self.Y.indptr)[docs]
        return end_to_end(self.Y.indices, starts, counts)

    def drawn(self, docs: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """One label of each document."""
        counts = np.diff(self.Y.indptr)[docs]
        labels = self.Y.indices[self.Y.indptr[docs] + rng.integers(counts)]
        return np.arange(len(docs) + 1), labels

    def rows_of(self, labels: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows that take part in the steps of these labels, and which way is right at each."""
        if self.paths is not None:
            offsets, nodes, codes = self.paths
            starts, rows = end_to_end(nodes, offsets[labels], np.diff(offsets)[labels])
            return starts, rows, end_to_end(codes, offsets[labels], np.diff(offsets)[labels])[1]
        n = self.method.negatives
        odds = np.cumsum(np.sqrt(self.counts))
        others = np.searchsorted(odds, odds[-1] * rng.random((len(labels), n)), side="right").astype(np.int32)
        rows = np.column_stack([labels, others])
        keep = np.column_stack([np.ones(len(labels), bool), others != labels[:, None]])
        codes = np.broadcast_to(np.arange(n + 1) == 0, rows.shape)
        starts = np.concatenate([[0], np.cumsum(keep.sum(1))])
        return starts, rows[keep], codes[keep].astype(np.float32)


def end_to_end(values: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stretches of an array one after the other, and where each begins."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return starts, values[np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)]


def huffman(counts: np.ndarray) -> np.ndarray:
    """(n_labels - 1, 2) int32: the children of each node, labels or n_labels + the number of a node before. The rarest
    come together first, so that frequent labels are near the root, which is the last."""
    heap = [(int(count), label) for label, count in enumerate(counts)]
    heapq.heapify(heap)
    children = np.zeros((len(counts) - 1, 2), np.int32)
    for node in range(len(children)):
        (a, one), (b, other) = heapq.heappop(heap), heapq.heappop(heap)
        children[node] = one, other
        heapq.heappush(heap, (a + b, len(counts) + node))
    return children


def paths_in(children: np.ndarray, n_labels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of all labels end to end, the nodes above each, and 1 where the way leads to the second child."""
    above: list[list[tuple[int, int]]] = [[] for _ in range(2 * n_labels - 1)]
    for node in range(n_labels - 2, -1, -1):
        for side, child in enumerate(children[node]):
            above[child] = [*above[n_labels + node], (node, side)]
    steps = [step for path in above[:n_labels] for step in path]
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in above[:n_labels]])])
    nodes, codes = np.array(steps, np.int64).reshape(-1, 2).T
    return offsets, nodes.astype(np.int32), codes.astype(np.float32)

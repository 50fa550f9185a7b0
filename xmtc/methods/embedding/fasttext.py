"""fastText: the mean of the vectors of a text's words and n-grams, and a linear layer over it. Joulin, Grave,
Bojanowski, Mikolov: Bag of Tricks for Efficient Text Classification (EACL 2017), and the authors' code where it is
silent: one label of a document, drawn anew in each pass, for all losses but one against the rest; rates that fall to 0.

Differs from the code in: documents come in random order, one after the other by one thread, so that the same seed gives
the same bytes, while theirs work on each other's numbers (Hogwild); words are read once, and a word that a document has
several times is looked up once; n-grams that training has not seen have no vector. It has no n-grams of letters:
a model here knows words by their numbers.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

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


@dataclass(frozen=True)
class FastText(Method):
    """The mean of the vectors of words and n-grams, and a linear layer (Joulin et al., EACL 2017)."""

    required_views: ClassVar[tuple[str, ...]] = (VIEW,)
    quick_parameters: ClassVar[dict[str, Any]] = {"dimension": 32, "loss": "ova", "rate": 0.5, "epochs": 60}

    dimension: int = param(100, "length of a vector", low=1, search=(50, 300), log=True)
    loss: str = param(
        HIERARCHICAL,
        "hs: softmax down a tree; softmax; ova: one against the rest; ns: some others, drawn at random",
        choices=LOSSES,
    )
    rate: float = param(
        0.5, "learning rate at the beginning, from where it falls to 0", low=1e-6, high=1e3, search=(0.1, 2.0), log=True
    )
    epochs: int = param(25, "passes over the documents", low=1, search=(5, 50), log=True)
    word_ngrams: int = param(
        1, "words of the longest n-grams that have vectors of their own", low=1, high=MAX_NGRAM_WORDS, search=(1, 2)
    )
    buckets: int = param(2_000_000, "numbers that n-grams are hashed to", low=1, high=MAX_BUCKETS)
    negatives: int = param(5, "with loss=ns, labels drawn at random in each step", low=1, high=10_000)
    seed: int = param(0, "seed of the first vectors, the order of documents and what is drawn", low=0, high=2**32 - 1)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> FastTextModel:
        if run.checkpoint.folder:
            run.checkpoint.claim(f"{self} {data.fingerprint()}")
        assert data.Y is not None
        tokens = data.tokens(VIEW)
        begins, _, buckets = hash_all_word_ngrams(tokens, self.word_ngrams, self.buckets)
        seen, which = np.unique(buckets, return_inverse=True)
        X = compute_term_shares(tokens, begins, tokens.size + which, tokens.size + len(seen))
        self.check_room(X.shape[1], data.n_labels)
        training = FastTextTrainer(self, X, data.Y)
        training.train(tokens.lengths, run)
        return FastTextModel(
            n_labels=data.n_labels,
            views=data.sizes,
            loss=self.loss,
            ngrams=self.word_ngrams,
            n_buckets=self.buckets,
            buckets=seen,
            vectors=training.vectors,
            outputs=training.transpose_outputs(),
            children=training.children,
        )

    def check_room(self, n_rows: int, n_labels: int) -> None:
        """Refuse, before it begins, a training that memory cannot hold."""
        numbers = (n_rows + 2 * n_labels) * self.dimension
        what = f"{n_rows:,} vectors of words and n-grams, and {n_labels:,} of labels"
        check_fits(4 * numbers, what, "give them fewer numbers, or hash n-grams to fewer buckets")


if TYPE_CHECKING:
    pass

DOCUMENTS_PER_STEP = 1000  # trained on between two looks at the clock
CHECKPOINT_SECONDS = 600.0  # between checkpoints


class FastTextTrainer:
    """Vectors while they are trained."""

    def __init__(self, method: FastText, X: csr_array, Y: csr_array):
        self.method, self.X, self.Y = method, X, Y
        self.n_labels, d = Y.shape[1], method.dimension
        rng = np.random.default_rng(method.seed)
        self.vectors = ((2 * rng.random((X.shape[1], d), np.float32) - 1) / d).astype(np.float32)
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
        """(d, n) as the model has them."""
        if self.has_dense_output:
            return np.ascontiguousarray(self.outputs[:, : self.n_labels])
        n = self.n_labels - 1 if self.method.loss == HIERARCHICAL else self.n_labels
        return np.ascontiguousarray(self.outputs[:n].T)

    def train(self, lengths: np.ndarray, run: Run) -> None:
        """All passes, or those that are left of a training that was stopped. Documents without labels are left out."""
        labelled = np.flatnonzero(np.diff(self.Y.indptr))
        first, kept_at = self.restore_checkpoint(run), time.monotonic()
        with run.stage("training", self.method.epochs * len(labelled)) as progress:
            progress.advance(first * len(labelled))
            for number in range(first, self.method.epochs):
                begin, loss = time.monotonic(), 0.0
                rng = np.random.default_rng((self.method.seed, number))
                docs = rng.permutation(labelled)
                rates = self.compute_learning_rates(lengths[docs], number)
                for part in range(0, len(docs), DOCUMENTS_PER_STEP):
                    some = slice(part, part + DOCUMENTS_PER_STEP)
                    loss += self.check_loss(self.step(docs[some], rates[some], rng))
                    progress.advance(len(docs[some]))
                self.report_epoch(run, number, loss / max(1, len(docs)), rates, time.monotonic() - begin)
                if time.monotonic() - kept_at > CHECKPOINT_SECONDS:
                    self.save_checkpoint(run, number + 1)
                    kept_at = time.monotonic()

    def check_loss(self, loss: float) -> float:
        if loss == DIVERGED_LOSS or not np.isfinite(loss):
            raise XmtcError(
                f"The training diverged: vectors have grown beyond all use; try a lower rate than {self.method.rate:g}."
            )
        return loss

    def report_epoch(self, run: Run, epoch: int, loss: float, rates: np.ndarray, seconds: float) -> None:
        rate = float(rates[-1]) if len(rates) else 0.0
        run.notify(Pass(run.qualify_name("network"), epoch + 1, loss, rate, seconds, memory=measure_peak_memory()))

    def save_checkpoint(self, run: Run, n_epochs: int) -> None:
        arrays = {"vectors": self.vectors, "outputs": self.outputs, "n_passes": np.array(n_epochs)}
        run.checkpoint.save_piece("vectors", arrays)

    def restore_checkpoint(self, run: Run) -> int:
        """How many passes are behind it."""
        kept = run.checkpoint.load_piece("vectors")
        if kept is None:
            return 0
        self.vectors, self.outputs = kept["vectors"], kept["outputs"]
        return int(kept["n_passes"])

    def compute_learning_rates(self, lengths: np.ndarray, epoch: int) -> np.ndarray:
        """Of each document of a pass: they fall with the words that have been read, to 0 at the end of the last."""
        before = np.cumsum(lengths) - lengths
        left = 1 - (epoch + before / max(1, lengths.sum())) / self.method.epochs
        return (self.method.rate * left).astype(np.float32)

    def step(self, docs: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> float:
        """One after the other; the sum of their losses."""
        X, d = (self.X.indptr, self.X.indices, self.X.data), self.method.dimension
        work = tuple(np.empty(n, np.float32) for n in (d, d, PARTIAL_SUMS))
        if self.has_dense_output:
            starts, labels = self.gather_labels(docs) if self.method.loss == OVA else self.draw_labels(docs, rng)
            scores, one = np.empty(self.outputs.shape[1], np.float32), self.method.loss == SOFTMAX
            return train_dense_output(
                *X, docs, rates, starts, labels, one, self.vectors, self.outputs, self.n_labels, scores, work
            )
        starts, rows, codes = self.select_output_rows(self.draw_labels(docs, rng)[1], rng)
        return train_selected_rows(*X, docs, rates, starts, rows, codes, self.vectors, self.outputs, work)

    def gather_labels(self, docs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of all documents, end to end."""
        starts, counts = self.Y.indptr[docs], np.diff(self.Y.indptr)[docs]
        return concatenate_slices(self.Y.indices, starts, counts)

    def draw_labels(self, docs: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """One label of each document."""
        counts = np.diff(self.Y.indptr)[docs]
        labels = self.Y.indices[self.Y.indptr[docs] + rng.integers(counts)]
        return np.arange(len(docs) + 1), labels

    def select_output_rows(
        self, labels: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows that take part in the steps of these labels, and which way is right at each."""
        if self.paths is not None:
            offsets, nodes, codes = self.paths
            starts, rows = concatenate_slices(nodes, offsets[labels], np.diff(offsets)[labels])
            return starts, rows, concatenate_slices(codes, offsets[labels], np.diff(offsets)[labels])[1]
        n = self.method.negatives
        odds = np.cumsum(np.sqrt(self.counts))
        others = np.searchsorted(odds, odds[-1] * rng.random((len(labels), n)), side="right").astype(np.int32)
        rows = np.column_stack([labels, others])
        keep = np.column_stack([np.ones(len(labels), bool), others != labels[:, None]])
        codes = np.broadcast_to(np.arange(n + 1) == 0, rows.shape)
        starts = np.concatenate([[0], np.cumsum(keep.sum(1))])
        return starts, rows[keep], codes[keep].astype(np.float32)


def concatenate_slices(values: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stretches of an array one after the other, and where each begins."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return starts, values[np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)]


def build_huffman_tree(counts: np.ndarray) -> np.ndarray:
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


def list_label_paths(children: np.ndarray, n_labels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of all labels end to end, the nodes above each, and 1 where the way leads to the second child."""
    above: list[list[tuple[int, int]]] = [[] for _ in range(2 * n_labels - 1)]
    for node in range(n_labels - 2, -1, -1):
        for side, child in enumerate(children[node]):
            above[child] = [*above[n_labels + node], (node, side)]
    steps = [step for path in above[:n_labels] for step in path]
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in above[:n_labels]])])
    nodes, codes = np.array(steps, np.int64).reshape(-1, 2).T
    return offsets, nodes.astype(np.int32), codes.astype(np.float32)

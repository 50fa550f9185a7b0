"""Model of fastText: vectors of words and n-grams, and output vectors of labels or tree nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import is_ascending
from xmtc.core.batching import predict_in_batches
from xmtc.core.dataset import Dataset, Tokens
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.core.sparse import narrow_indptr
from xmtc.methods.embedding.fasttext_kernels import (
    compute_output_probabilities,
    multiply_tree_probabilities,
    select_top_labels,
)
from xmtc.storage.form import array

VIEW = "words"
# The view uses this id for unknown words, which are skipped here; its vector is used for the end of a text.
END_OF_TEXT_ID = 0
LOSSES = OVA, SOFTMAX, HIERARCHICAL, NEGATIVE = "ova", "softmax", "hs", "ns"
MAX_THREAD_SCORES = 2**22  # scores that a thread has in memory at a time
MAX_NGRAM_WORDS, MAX_BUCKETS = 100, 2**31 - 1
MAX_INSERTION_SORT_LABELS = 100  # for more labels, sorting all scores is faster
HASH_MULTIPLIER = np.uint64(116049371)  # the same as in the authors' code


def hash_word_ngrams(tokens: Tokens, n: int, n_buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the start of each n-gram of known words in `tokens.ids`, and its hash bucket."""
    begins = np.flatnonzero(np.arange(len(tokens.ids)) + n <= np.repeat(tokens.offsets[1:], tokens.lengths))
    hashes, is_known = np.zeros(len(begins), np.uint64), np.ones(len(begins), bool)
    with np.errstate(over="ignore"):
        for place in range(n):
            ids = tokens.ids[begins + place]
            hashes = hashes * HASH_MULTIPLIER + ids.astype(np.uint64)
            is_known &= ids != END_OF_TEXT_ID
        hashes ^= hashes >> np.uint64(29)  # mix the bits, because the lowest depend on the last word only
        hashes *= np.uint64(0xBF58476D1CE4E5B9)
    return begins[is_known], (hashes[is_known] >> np.uint64(20)) % np.uint64(n_buckets)


def hash_all_word_ngrams(tokens: Tokens, longest: int, n_buckets: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, number of words and hash bucket of each n-gram of 2 to `longest` words."""
    ngrams = [(*hash_word_ngrams(tokens, n, n_buckets), n) for n in range(2, longest + 1)]
    begins = np.concatenate([np.zeros(0, np.int64), *(starts for starts, _, _ in ngrams)])
    sizes = np.concatenate([np.zeros(0, np.int64), *(np.full(len(starts), n) for starts, _, n in ngrams)])
    buckets = np.concatenate([np.zeros(0, np.uint64), *(hashes for _, hashes, _ in ngrams)]).astype(np.int64)
    return begins, sizes, buckets


def compute_term_shares(tokens: Tokens, begins: np.ndarray, rows: np.ndarray, n_rows: int) -> csr_array:
    """Return the share of each word, n-gram and end of text among the terms of each document.

    The result has the shape (n_docs, n_rows). `begins` and `rows` have the start and the column of each n-gram.
    """
    known = np.flatnonzero(tokens.ids != END_OF_TEXT_ID)
    doc_of = np.repeat(np.arange(tokens.n_docs), tokens.lengths)
    docs = np.concatenate([np.arange(tokens.n_docs), doc_of[known], doc_of[begins]])
    columns = np.concatenate([np.full(tokens.n_docs, END_OF_TEXT_ID), tokens.ids[known], rows])
    counts = csr_array((np.ones(len(docs), np.float32), (docs, columns)), shape=(tokens.n_docs, n_rows))
    counts.sum_duplicates()
    totals = np.bincount(docs, minlength=tokens.n_docs)
    data = counts.data / np.repeat(totals, np.diff(counts.indptr)).astype(np.float32)
    indices = np.ascontiguousarray(counts.indices, np.int32)
    return csr_array((data, indices, narrow_indptr(counts.indptr)), shape=counts.shape)


@dataclass(frozen=True, kw_only=True)
class FastTextModel(Model):
    """Label probabilities from the mean h of the vectors of a document's words and n-grams.

    The probability is σ(h · w) (ova, ns), the softmax over all labels (softmax), or the product of σ along the path in
    a tree (hs).
    """

    loss: str  # one of LOSSES
    ngrams: int  # maximum number of words of an n-gram
    n_buckets: int
    buckets: np.ndarray = array(np.int64)  # buckets of n-grams seen in training, ascending; others have no vector
    vectors: np.ndarray = array(np.float32, ndim=2)  # (1 + n_words + n_ngrams, dimension), V; the first is end of text
    outputs: np.ndarray = array(np.float32, ndim=2)  # (dimension, n_labels or n_nodes), W
    children: np.ndarray = array(np.int32, ndim=2)  # (n_nodes, 2), labels, or n_labels + number of an earlier node

    def transform_tokens(self, tokens: Tokens) -> csr_array:
        """Return the share of each row of `vectors` in each document, shape (n_docs, n_vectors)."""
        begins, _, buckets = hash_all_word_ngrams(tokens, self.ngrams, self.n_buckets)
        rows, is_seen = self.find_ngram_rows(buckets)
        return compute_term_shares(tokens, begins[is_seen], rows[is_seen], len(self.vectors))

    def find_ngram_rows(self, buckets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row of each bucket in `vectors`, and whether training has seen the bucket."""
        if not len(self.buckets):
            return np.zeros(len(buckets), np.int64), np.zeros(len(buckets), bool)
        places = np.minimum(np.searchsorted(self.buckets, buckets), len(self.buckets) - 1)
        return self.views[VIEW] + places, self.buckets[places] == buckets

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        X, k = self.transform_tokens(data.tokens(VIEW)), min(k, self.n_labels)

        def predict_batch(batch: slice) -> Predictions:
            return self.select_top_predictions(self.compute_probabilities(X, batch), k)

        return predict_in_batches(predict_batch, data.n_docs, k, MAX_THREAD_SCORES // self.n_labels, run)

    def compute_probabilities(self, X: csr_array, batch: slice) -> np.ndarray:
        """Return the probabilities of all labels for a batch of rows, shape (n_batch_docs, n_labels)."""
        n_docs, (dimension, n_outputs) = batch.stop - batch.start, self.outputs.shape
        probabilities, h = np.empty((n_docs, n_outputs), np.float32), np.empty(dimension, np.float32)
        is_softmax = self.loss == SOFTMAX
        compute_output_probabilities(
            X.indptr, X.indices, X.data, batch.start, self.vectors, self.outputs, is_softmax, h, probabilities
        )
        if self.loss != HIERARCHICAL:
            return probabilities
        label_probabilities = np.empty((n_docs, self.n_labels), np.float32)
        work = np.empty(2 * self.n_labels - 1)
        multiply_tree_probabilities(probabilities, self.children, label_probabilities, work)
        return label_probabilities

    def select_top_predictions(self, scores: np.ndarray, k: int) -> Predictions:
        if k > MAX_INSERTION_SORT_LABELS:
            labels = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
            return Predictions.from_valid_arrays(labels, np.take_along_axis(scores, labels, 1))
        labels, best = np.zeros((len(scores), k), np.int32), np.zeros((len(scores), k), np.float32)
        select_top_labels(scores, labels, best)
        return Predictions.from_valid_arrays(labels, best)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the contribution of each word to the label's score h · w; n-grams are divided among their words.

        With a tree, the score is the sum over the nodes above the label. The contributions and the bias, which is the
        part of the end of text, add up to the score.
        """
        tokens, direction = document.tokens(VIEW), self.compute_label_vector(label)
        begins, sizes, buckets = hash_all_word_ngrams(tokens, self.ngrams, self.n_buckets)
        rows, is_seen = self.find_ngram_rows(buckets)
        begins, sizes, rows = begins[is_seen], sizes[is_seen], rows[is_seen]
        weights = np.where(tokens.ids != END_OF_TEXT_ID, self.vectors[tokens.ids] @ direction, 0)
        places = np.repeat(begins, sizes) + np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        np.add.at(weights, places, np.repeat((self.vectors[rows] @ direction) / sizes, sizes))
        n_terms = 1 + np.count_nonzero(tokens.ids != END_OF_TEXT_ID) + len(rows)
        end_of_text = float(self.vectors[END_OF_TEXT_ID] @ direction) / n_terms
        return Explanation.from_occurrences(VIEW, tokens.ids, weights / n_terms, per_token=True, bias=end_of_text)

    def compute_label_vector(self, label: int) -> np.ndarray:
        """Return w of a label; with a tree, the signed sum of the vectors of the nodes above it."""
        if self.loss != HIERARCHICAL:
            return self.outputs[:, label]
        total, node = np.zeros(len(self.outputs), np.float32), label
        while node in self.parents:
            node, sign = self.parents[node]
            total += sign * self.outputs[:, node]
            node += self.n_labels
        return total

    @cached_property
    def parents(self) -> dict[int, tuple[int, int]]:
        """Parent of each label and node except the root, and 1 for a second or −1 for a first child."""
        return {
            int(child): (node, 2 * side - 1)
            for node, pair in enumerate(self.children)
            for side, child in enumerate(pair)
        }

    def check(self) -> None:
        n_outputs = self.n_labels - 1 if self.loss == HIERARCHICAL else self.n_labels
        if self.loss not in LOSSES:
            raise ValueError(f"loss is {self.loss!r}; expected one of {', '.join(LOSSES)}")
        if set(self.views) != {VIEW}:
            raise ValueError(f"views are {', '.join(self.views)}; expected {VIEW}")
        if not 1 <= self.ngrams <= MAX_NGRAM_WORDS:
            raise ValueError(f"ngrams is {self.ngrams}; expected a number from 1 to {MAX_NGRAM_WORDS}")
        if not 1 <= self.n_buckets <= MAX_BUCKETS:
            raise ValueError(f"n_buckets is {self.n_buckets}; expected a number from 1 to {MAX_BUCKETS}")
        if len(self.vectors) != self.views[VIEW] + len(self.buckets) or not is_ascending(self.buckets, strict=True):
            raise ValueError("vectors and buckets do not fit the number of words and n-grams")
        if self.outputs.shape != (self.vectors.shape[1], n_outputs):
            raise ValueError(
                f"outputs has the shape {self.outputs.shape}; expected {(self.vectors.shape[1], n_outputs)}"
            )
        if self.loss == HIERARCHICAL:
            check_tree(self.children, self.n_labels)


def check_tree(children: np.ndarray, n_labels: int) -> None:
    """Raise an error if a node is a child twice, or above itself."""
    below = n_labels + np.arange(n_labels - 1)[:, None]
    if children.shape != (n_labels - 1, 2) or not ((children >= 0) & (children < below)).all():
        raise ValueError("children has the wrong shape, or a number of a node that is missing or above its parent")
    if len(np.unique(children)) != children.size:
        raise ValueError("children has a node twice")

"""The trained form of fastText: a vector for every word and n-gram, and one for every label or node of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.array_validation import is_ascending
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
END_OF_TEXT_ID = (
    0  # the id of the end of a text, which every document has; in the view, that of unknown words, which are left out
)
LOSSES = OVA, SOFTMAX, HIERARCHICAL, NEGATIVE = "ova", "softmax", "hs", "ns"
MAX_THREAD_SCORES = 2**22  # scores held by one thread at a time
MAX_NGRAM_WORDS, MAX_BUCKETS = 100, 2**31 - 1  # words of an n-gram, and numbers that n-grams are hashed to
MAX_INSERTION_SORT_LABELS = 100  # labels up to which an answer is found faster than by sorting all
HASH_MULTIPLIER = np.uint64(116049371)  # fastText's, of hashes


def hash_word_ngrams(tokens: Tokens, n: int, n_buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the runs of n known words begin in the flat array of ids, and the bucket of each."""
    begins = np.flatnonzero(np.arange(len(tokens.ids)) + n <= np.repeat(tokens.offsets[1:], tokens.lengths))
    hashes, known = np.zeros(len(begins), np.uint64), np.ones(len(begins), bool)
    with np.errstate(over="ignore"):
        for place in range(n):
            ids = tokens.ids[begins + place]
            hashes = hashes * HASH_MULTIPLIER + ids.astype(np.uint64)
            known &= ids != END_OF_TEXT_ID
        hashes ^= hashes >> np.uint64(29)  # whose lower digits would be those of the last word
        hashes *= np.uint64(0xBF58476D1CE4E5B9)
    return begins[known], (hashes[known] >> np.uint64(20)) % np.uint64(n_buckets)


def hash_all_word_ngrams(tokens: Tokens, longest: int, n_buckets: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the runs of 2 to `longest` words: where each begins, how many words it has, its bucket."""
    found = [(*hash_word_ngrams(tokens, n, n_buckets), n) for n in range(2, longest + 1)]
    begins = np.concatenate([np.zeros(0, np.int64), *(b for b, _, _ in found)])
    sizes = np.concatenate([np.zeros(0, np.int64), *(np.full(len(b), n) for b, _, n in found)])
    return begins, sizes, np.concatenate([np.zeros(0, np.uint64), *(h for _, h, _ in found)]).astype(np.int64)


def compute_term_shares(tokens: Tokens, begins: np.ndarray, rows: np.ndarray, n_rows: int) -> csr_array:
    """(n_docs, n_rows) float32: of all words, n-grams and the end of each text, the share that each of them has.
    N-grams are those of `rows`, at `begins`."""
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
    """σ(h · w) of each label (ova, ns), the softmax of all (softmax), or the product of σ down a tree (hs), where h is
    the mean of the vectors of a document's words and n-grams."""

    loss: str  # one of LOSSES
    ngrams: int  # words of the longest
    n_buckets: int
    buckets: np.ndarray = array(np.int64)  # of n-grams that training has seen, ascending: others have no vector
    vectors: np.ndarray = array(np.float32, ndim=2)  # (end of text, words and seen n-grams, d)
    outputs: np.ndarray = array(np.float32, ndim=2)  # (d, labels or nodes)
    children: np.ndarray = array(
        np.int32, ndim=2
    )  # (nodes, 2) of a tree; of node i, labels or n_labels + nodes below i

    def transform_tokens(self, tokens: Tokens) -> csr_array:
        """(n_docs, rows of vectors) shares."""
        begins, _, buckets = hash_all_word_ngrams(tokens, self.ngrams, self.n_buckets)
        rows, seen = self.find_ngram_rows(buckets)
        return compute_term_shares(tokens, begins[seen], rows[seen], len(self.vectors))

    def find_ngram_rows(self, buckets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of n-grams, and which of them training has seen."""
        if not len(self.buckets):
            return np.zeros(len(buckets), np.int64), np.zeros(len(buckets), bool)
        places = np.minimum(np.searchsorted(self.buckets, buckets), len(self.buckets) - 1)
        return self.views[VIEW] + places, self.buckets[places] == buckets

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        X, k = self.transform_tokens(data.tokens(VIEW)), min(k, self.n_labels)
        share = -(-data.n_docs // run.n_threads) if data.n_docs > 1 else 1
        size = max(1, min(MAX_THREAD_SCORES // self.n_labels, share))
        batches = [slice(i, min(i + size, data.n_docs)) for i in range(0, data.n_docs, size)]

        def work(batch: slice) -> Predictions:
            return self.select_top_predictions(self.compute_probabilities(X, batch), k)

        empty = Predictions.from_valid_arrays(np.zeros((0, k), np.int32), np.zeros((0, k), np.float32))
        return Predictions.stack([empty, *run.map(work, batches, "predicting", total=len(batches))])

    def compute_probabilities(self, X: csr_array, batch: slice) -> np.ndarray:
        """(documents of the batch, n_labels)"""
        n_docs, (d, n_outputs) = batch.stop - batch.start, self.outputs.shape
        found, h = np.empty((n_docs, n_outputs), np.float32), np.empty(d, np.float32)
        is_softmax = self.loss == SOFTMAX
        compute_output_probabilities(
            X.indptr, X.indices, X.data, batch.start, self.vectors, self.outputs, is_softmax, h, found
        )
        if self.loss != HIERARCHICAL:
            return found
        of_labels = np.empty((n_docs, self.n_labels), np.float32)
        multiply_tree_probabilities(found, self.children, of_labels, np.empty(2 * self.n_labels - 1))
        return of_labels

    def select_top_predictions(self, scores: np.ndarray, k: int) -> Predictions:
        if k > MAX_INSERTION_SORT_LABELS:
            labels = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
            return Predictions.from_valid_arrays(labels, np.take_along_axis(scores, labels, 1))
        labels, best = np.zeros((len(scores), k), np.int32), np.zeros((len(scores), k), np.float32)
        select_top_labels(scores, labels, best)
        return Predictions.from_valid_arrays(labels, best)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """What each word adds to the label's logit, or to those of the nodes above it; n-grams are shared out among
        their words. All of it, but for the end of the text, adds up to h · w."""
        tokens, direction = document.tokens(VIEW), self.compute_label_vector(label)
        begins, sizes, buckets = hash_all_word_ngrams(tokens, self.ngrams, self.n_buckets)
        rows, seen = self.find_ngram_rows(buckets)
        begins, sizes, rows = begins[seen], sizes[seen], rows[seen]
        weights = np.where(tokens.ids != END_OF_TEXT_ID, self.vectors[tokens.ids] @ direction, 0)
        places = np.repeat(begins, sizes) + np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        np.add.at(weights, places, np.repeat((self.vectors[rows] @ direction) / sizes, sizes))
        n_all = 1 + np.count_nonzero(tokens.ids != END_OF_TEXT_ID) + len(rows)
        return Explanation.from_occurrences(VIEW, tokens.ids, weights / n_all, per_token=True)

    def compute_label_vector(self, label: int) -> np.ndarray:
        """(d,) w of a label; of one in a tree, the sum of the nodes' above it, in the direction of the label."""
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
        """Of each label or node but the root: the node above, and whether it is its second child (1) or first (−1)."""
        return {
            int(child): (node, 2 * side - 1)
            for node, pair in enumerate(self.children)
            for side, child in enumerate(pair)
        }

    def check(self) -> None:
        n_outputs = self.n_labels - 1 if self.loss == HIERARCHICAL else self.n_labels
        if self.loss not in LOSSES or set(self.views) != {VIEW}:
            raise ValueError("it is for other documents, or of another loss")
        if not 1 <= self.ngrams <= MAX_NGRAM_WORDS or not 1 <= self.n_buckets <= MAX_BUCKETS:
            raise ValueError("its n-grams are longer, or more, than any method makes them")
        if len(self.vectors) != self.views[VIEW] + len(self.buckets) or not is_ascending(self.buckets, strict=True):
            raise ValueError("its vectors are not those of its words and n-grams")
        if self.outputs.shape != (self.vectors.shape[1], n_outputs):
            raise ValueError("its vectors do not fit its labels")
        if self.loss == HIERARCHICAL:
            check_tree(self.children, self.n_labels)


def check_tree(children: np.ndarray, n_labels: int) -> None:
    """Refuse a tree in which a node stands twice, or above itself."""
    below = n_labels + np.arange(n_labels - 1)[:, None]
    if children.shape != (n_labels - 1, 2) or not ((children >= 0) & (children < below)).all():
        raise ValueError("its tree has nodes that are not there")
    if len(np.unique(children)) != children.size:
        raise ValueError("its tree has a node twice")

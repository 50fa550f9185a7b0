"""Word vectors from a corpus itself: words that stand near the same words get similar vectors.

The matrix of positive pointwise mutual information, of which singular vectors are taken (Levy, Goldberg, Dagan,
"Improving distributional similarity with lessons learned from word embeddings", 2015): neighbours count 1 / distance,
context frequencies are smoothed by the power 0.75, singular values by the square root."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from xmtc.core.dataset import Tokens

WINDOW_WORDS = 5  # words to either side that count as near
CONTEXT_EXPONENT = 0.75
TARGET_STD = 0.4  # standard deviation of the vectors' numbers, about that of GloVe's
OVERSAMPLING, POWER_ITERATIONS = (
    20,
    3,
)  # of the search for singular vectors: directions beyond those wanted, multiplications


def compute_corpus_vectors(tokens: Tokens, dimension: int, seed: int = 0) -> np.ndarray:
    """(n_words, dimension) float32; zeros for words without neighbours, and beyond what the words span."""
    weights = compute_ppmi(count_cooccurrences(tokens))
    with threadpool_limits(1, "blas"):  # which would take every core; and their number may change a digit
        left, values = compute_singular_vectors(weights, min(dimension, weights.shape[0]), seed)
    vectors = np.zeros((weights.shape[0], dimension), np.float32)
    vectors[:, : left.shape[1]] = left * np.sqrt(values)
    return vectors * (TARGET_STD / max(float(vectors.std()), 1e-12))


def count_cooccurrences(tokens: Tokens) -> csr_array:
    """(n_words, n_words): how often two words stand near each other. The unknown word is nobody's neighbour."""
    doc = np.repeat(np.arange(tokens.n_docs, dtype=np.int32), tokens.lengths)
    counts = csr_array((tokens.size, tokens.size), dtype=np.float32)
    for distance in range(1, min(WINDOW_WORDS, len(doc) - 1) + 1):
        left, right = tokens.ids[:-distance], tokens.ids[distance:]
        near = (doc[:-distance] == doc[distance:]) & (left != 0) & (right != 0)
        weights = np.full(int(near.sum()), 1 / distance, np.float32)
        counts = counts + csr_array((weights, (left[near], right[near])), shape=counts.shape)
    return csr_array(counts + counts.T)


def compute_ppmi(counts: csr_array) -> csr_array:
    """log P(word, context) / P(word) P(context), where it is positive."""
    pairs = counts.tocoo()
    totals = np.asarray(counts.sum(axis=1), np.float64)
    contexts = totals**CONTEXT_EXPONENT
    row, column = pairs.coords
    expected = totals[row] * (contexts / max(contexts.sum(), 1e-12))[column]
    weights = np.log(pairs.data / expected).astype(np.float32)
    kept = weights > 0
    return csr_array((weights[kept], (row[kept], column[kept])), shape=counts.shape)


def compute_singular_vectors(matrix: csr_array, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The n largest left singular vectors and their values, by multiplying random directions (Halko, Martinsson, Tropp,
    2011)."""
    width = min(n + OVERSAMPLING, matrix.shape[1])
    directions = np.random.default_rng(seed).standard_normal((matrix.shape[1], width), np.float32)
    for _ in range(POWER_ITERATIONS):
        directions = np.linalg.qr(matrix.T @ np.linalg.qr(matrix @ directions)[0])[0]
    base = np.linalg.qr(matrix @ directions)[0]
    left, values, _ = np.linalg.svd((matrix.T @ base).T, full_matrices=False)
    return (base @ left)[:, :n], values[:n]

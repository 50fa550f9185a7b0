"""Word vectors from the co-occurrences of a corpus.

The vectors are singular vectors of the matrix of positive pointwise mutual information (Levy, Goldberg, Dagan,
"Improving distributional similarity with lessons learned from word embeddings", 2015). Neighbours count 1 / distance,
context frequencies are raised to the power 0.75, and singular values enter by their square root."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from xmtc.core.dataset import Tokens

WINDOW_WORDS = 5  # context words on either side
CONTEXT_EXPONENT = 0.75
TARGET_STD = 0.4  # standard deviation of the vectors' values, about that of GloVe
OVERSAMPLING = 20  # additional random directions of the randomized SVD
POWER_ITERATIONS = 3


def compute_corpus_vectors(tokens: Tokens, dimension: int, seed: int = 0) -> np.ndarray:
    """Return word vectors, shape (n_words, dimension); zero for words without neighbours and for excess dimensions."""
    weights = compute_ppmi(count_cooccurrences(tokens))
    with threadpool_limits(1, "blas"):  # BLAS would use all cores, and results depend on their number
        left, values = compute_singular_vectors(weights, min(dimension, weights.shape[0]), seed)
    vectors = np.zeros((weights.shape[0], dimension), np.float32)
    vectors[:, : left.shape[1]] = left * np.sqrt(values)
    return vectors * (TARGET_STD / max(float(vectors.std()), 1e-12))


def count_cooccurrences(tokens: Tokens) -> csr_array:
    """Return weighted co-occurrence counts, shape (n_words, n_words), without the unknown word."""
    doc = np.repeat(np.arange(tokens.n_docs, dtype=np.int32), tokens.lengths)
    counts = csr_array((tokens.size, tokens.size), dtype=np.float32)
    for distance in range(1, min(WINDOW_WORDS, len(doc) - 1) + 1):
        left, right = tokens.ids[:-distance], tokens.ids[distance:]
        near = (doc[:-distance] == doc[distance:]) & (left != 0) & (right != 0)
        weights = np.full(int(near.sum()), 1 / distance, np.float32)
        counts = counts + csr_array((weights, (left[near], right[near])), shape=counts.shape)
    return csr_array(counts + counts.T)


def compute_ppmi(counts: csr_array) -> csr_array:
    """Return log(P(word, context) / (P(word) P(context))) where it is positive."""
    pairs = counts.tocoo()
    totals = np.asarray(counts.sum(axis=1), np.float64)
    contexts = totals**CONTEXT_EXPONENT
    row, column = pairs.coords
    expected = totals[row] * (contexts / max(contexts.sum(), 1e-12))[column]
    weights = np.log(pairs.data / expected).astype(np.float32)
    kept = weights > 0
    return csr_array((weights[kept], (row[kept], column[kept])), shape=counts.shape)


def compute_singular_vectors(matrix: csr_array, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the n largest left singular vectors and values by randomized SVD (Halko, Martinsson, Tropp, 2011)."""
    width = min(n + OVERSAMPLING, matrix.shape[1])
    directions = np.random.default_rng(seed).standard_normal((matrix.shape[1], width), np.float32)
    for _ in range(POWER_ITERATIONS):
        directions = np.linalg.qr(matrix.T @ np.linalg.qr(matrix @ directions)[0])[0]
    base = np.linalg.qr(matrix @ directions)[0]
    left, values, _ = np.linalg.svd((matrix.T @ base).T, full_matrices=False)
    return (base @ left)[:, :n], values[:n]

"""The word vectors that a training starts from: of a file or a name, or random."""

from __future__ import annotations

import numpy as np

from xmtc.core.dataset import Bag, Tokens
from xmtc.core.memory import check_fits
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.text.cooccurrence import compute_corpus_vectors
from xmtc.text.word_vectors import read_word_vectors


def load_token_vectors(
    tokens: Tokens, source: str = "", dimension: int = 100, corpus_dimension: int = 0, run: Run = Run()
) -> np.ndarray:
    """(size, d) float32: the unknown word's vector first, then the vocabulary's. Random ones have `dimension` numbers;
    `corpus_dimension` more say which words each stands near in these documents."""
    width = corpus_dimension + (0 if source else dimension)
    check_fits(8 * tokens.size * width, f"{tokens.size:,} word vectors of {width:,} numbers", "give them fewer")
    vectors = load_word_vectors(tokens, source, dimension, run)
    if corpus_dimension:
        vectors = np.hstack([vectors, compute_corpus_vectors(tokens, corpus_dimension)])
    return vectors


def load_word_vectors(tokens: Tokens, source: str, dimension: int, run: Run) -> np.ndarray:
    if not source:
        return draw_uniform(tokens.size, dimension, seed=0)
    assert tokens.vocabulary is not None
    known = read_word_vectors(source, tokens.vocabulary, run)
    # another seed than there: the unknown word must not begin where a word without a vector does
    return np.concatenate([draw_uniform(1, known.shape[1], seed=1), known])


def load_term_vectors(bag: Bag, source: str, run: Run = Run()) -> np.ndarray:
    """(size, d) float32: the vectors of a bag's terms."""
    if bag.vocabulary is None:
        raise XmtcError(f"vectors={source!r} are of words, but the corpus holds features; leave them out.")
    return read_word_vectors(source, bag.vocabulary, run)


def draw_uniform(n: int, dimension: int, seed: int) -> np.ndarray:
    """(n, dimension) float32 between -1 and 1."""
    return 2 * np.random.default_rng(seed).random((n, dimension), np.float32) - 1

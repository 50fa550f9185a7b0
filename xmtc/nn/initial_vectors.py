"""Initial word vectors: pretrained or random."""

from __future__ import annotations

import os

import numpy as np

from xmtc.core.dataset import Bag, Terms, Tokens
from xmtc.core.memory import check_fits
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.nn.encoder_vectors import compute_encoder_vectors, is_encoder
from xmtc.text.cooccurrence import compute_corpus_vectors
from xmtc.text.word_vectors import read_word_vectors


def load_token_vectors(
    tokens: Tokens, source: str = "", dimension: int = 100, corpus_dimension: int = 0, run: Run = Run()
) -> np.ndarray:
    """Return float32 vectors of shape (size, d); row 0 is the unknown word.

    Without a source, vectors are random with `dimension` components. `corpus_dimension` further components describe the
    co-occurrence of words in these documents.
    """
    width = corpus_dimension + (0 if source else dimension)
    check_fits(8 * tokens.size * width, f"{tokens.size:,} word vectors of {width:,} components", "reduce the dimension")
    vectors = load_word_vectors(tokens, source, dimension, run)
    if corpus_dimension:
        vectors = np.hstack([vectors, compute_corpus_vectors(tokens, corpus_dimension)])
    return vectors


def load_word_vectors(tokens: Tokens, source: str, dimension: int, run: Run) -> np.ndarray:
    if not source:
        return draw_uniform(tokens.size, dimension, seed=0)
    assert tokens.vocabulary is not None
    pretrained = load_pretrained_vectors(source, tokens.vocabulary, run)
    # A different seed than in read_word_vectors: the unknown word must differ from words without a pretrained vector.
    return np.concatenate([draw_uniform(1, pretrained.shape[1], seed=1), pretrained])


def load_term_vectors(bag: Bag, source: str, run: Run = Run()) -> np.ndarray:
    """Return the float32 vectors of a bag's terms, shape (size, d)."""
    if bag.vocabulary is None:
        raise XmtcError(
            f"vectors={source!r} are word vectors, but the corpus has features without words; remove vectors."
        )
    return load_pretrained_vectors(source, bag.vocabulary, run)


def load_pretrained_vectors(source: str, vocabulary: Terms, run: Run) -> np.ndarray:
    """Return the vectors of all sources of `vectors`, which are separated by +, side by side."""
    parts = [source] if os.path.exists(source) else source.split("+")
    readers = [compute_encoder_vectors if is_encoder(part) else read_word_vectors for part in parts]
    return np.hstack([read(part, vocabulary, run) for read, part in zip(readers, parts, strict=True)])


def draw_uniform(n: int, dimension: int, seed: int) -> np.ndarray:
    """Return float32 numbers between -1 and 1, shape (n, dimension)."""
    return 2 * np.random.default_rng(seed).random((n, dimension), np.float32) - 1

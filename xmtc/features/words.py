"""Texts as sequences of words, for the methods that read words in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from xmtc.base.dataset import Tokens
from xmtc.base.params import Recipe, param
from xmtc.base.run import Run
from xmtc.errors import XmtcError
from xmtc.text.tokenizer import Sequences, Tokenizer, batches
from xmtc.text.vocabulary import FREE, Vocabulary, merge, most_frequent


@dataclass(frozen=True)
class Words(Recipe):
    """How texts become sequences of words."""

    max_words: int = param(500_000, "keep this many words, the most frequent by documents", low=1)
    max_tokens: int = param(500, "read this many words of a text, from its beginning", low=1)
    lowercase: bool = param(True, "treat upper and lower case alike")
    vectors: str = param(
        "", "word vectors to start from: a file (GloVe, word2vec, fastText) or a name; random if left out"
    )
    dimension: int = param(100, "length of random word vectors, where none are given", low=1)
    own: int = param(0, "numbers that the corpus itself adds to each word's vector: what words it stands near", low=0)

    def fit_transform(self, texts: Iterable[str], run: Run = Run()) -> tuple[Sequencer, Tokens]:
        """Learn the vocabulary and number the words of the same texts; the Tokens hold the vectors that training starts
        from. Texts may be a stream: only the numbers of their words are kept."""
        tokenizer = Tokenizer(self.lowercase, min_chars=1)

        def read(batch: list[str]) -> Sequences:
            return tokenizer.number(batch, self.max_tokens)

        parts = list(run.map(read, batches(texts), "reading texts", size=len))
        words, ends, numbers = merge([(part.text, part.ends) for part in parts])
        frequencies = np.zeros(len(ends) - 1, np.int64)
        for part, number in zip(parts, numbers, strict=True):
            frequencies[number] += part.frequencies
        kept = most_frequent(words, ends, frequencies, n=self.max_words)
        if not len(kept):
            raise nothing_to_learn_from(sum(len(part.starts) - 1 for part in parts))
        sequencer = Sequencer(tokenizer, Vocabulary.picked(words, ends, kept), self.max_tokens)
        places = np.full(len(ends) - 1, FREE, np.int32)
        places[kept] = np.arange(len(kept), dtype=np.int32)
        tokens = joined(parts, [places[number] for number in numbers], sequencer.n_words)
        vectors = self._first_vectors(sequencer.vocabulary, run)
        if self.own:
            from xmtc.text.cooccurrence import corpus_vectors

            vectors = np.hstack([vectors, corpus_vectors(tokens, self.own)])
        return sequencer, replace(tokens, vectors=vectors)

    def _first_vectors(self, vocabulary: Vocabulary, run: Run) -> np.ndarray:
        """(n_words, d) float32: the unknown word's vector first, then the vocabulary's."""
        if not self.vectors:
            return uniform(len(vocabulary) + 1, self.dimension, seed=0)
        from xmtc.text.vectors import word_vectors

        known = word_vectors(self.vectors, vocabulary, run)
        # another seed than there: the unknown word must not begin where a word without a vector does
        return np.concatenate([uniform(1, known.shape[1], seed=1), known])


@dataclass(frozen=True)
class Sequencer:
    """Numbers of words learnt from a corpus: 1 and the word's place in the vocabulary, or 0 for an unknown word."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary
    max_tokens: int
    n_features: ClassVar[int] = 0

    @property
    def n_words(self) -> int:
        return len(self.vocabulary) + 1

    def word(self, number: int) -> str:
        """What a number of Tokens stands for."""
        return self.vocabulary[number - 1] if number else "(unknown words)"

    def transform(self, texts: Iterable[str], run: Run = Run()) -> Tokens:
        """The numbers of the words of new texts; a text without known words is one unknown word."""

        def read(batch: list[str]) -> tuple[Sequences, np.ndarray]:
            part = self.tokenizer.number(batch, self.max_tokens)
            return part, self.vocabulary.find(part.text, part.ends)

        pairs = list(run.map(read, batches(texts), "reading texts", size=len))
        return joined([part for part, _ in pairs], [places for _, places in pairs], self.n_words)

    def check(self) -> None:
        self.tokenizer.check()
        self.vocabulary.check()
        if not 0 < self.max_tokens < 2**63:
            raise ValueError(f"it reads {self.max_tokens} words of a text")


def joined(parts: list[Sequences], places: list[np.ndarray], n_words: int) -> Tokens:
    """Batches end to end, given the place in the vocabulary of each batch's words, FREE for those it lacks."""
    lengths = [np.diff(part.starts) for part in parts]
    starts = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
    ids, begin = np.empty(starts[-1], np.int32), 0
    for part, place in zip(parts, places, strict=True):
        numbers = np.concatenate([np.zeros(1, np.int32), place + np.int32(1)])
        ids[begin : begin + len(part.ids)] = numbers[part.ids]
        begin += len(part.ids)
    return with_something_known(Tokens(ids, starts, n_words))


def with_something_known(tokens: Tokens) -> Tokens:
    """A document of unknown words alone becomes a single one: how many there were says nothing."""
    if not tokens.n_docs:
        return tokens
    unknown = np.maximum.reduceat(tokens.ids, tokens.starts[:-1]) == 0  # no document is empty
    lengths = np.where(unknown, 1, tokens.lengths)
    dropped = np.repeat(unknown, tokens.lengths)
    dropped[tokens.starts[:-1]] = False
    return replace(tokens, ids=tokens.ids[~dropped], starts=np.concatenate([[0], np.cumsum(lengths)]))


def uniform(n: int, dimension: int, seed: int) -> np.ndarray:
    """(n, dimension) float32 between -1 and 1."""
    return 2 * np.random.default_rng(seed).random((n, dimension), np.float32) - 1


def nothing_to_learn_from(n_docs: int) -> XmtcError:
    return XmtcError(
        f"None of the {n_docs} documents holds a word, so there is nothing to learn from; check the text field."
    )

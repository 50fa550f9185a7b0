"""Tf-idf beside more of the same texts: vectors of its words, for networks that read them in no order, and sequences of
words, for methods that combine others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xmtc.base.dataset import Dataset
from xmtc.base.params import param
from xmtc.base.run import Run
from xmtc.features.tfidf import Tfidf, Vectorizer
from xmtc.features.words import Sequencer, Words, uniform
from xmtc.text.vocabulary import FREE


@dataclass(frozen=True)
class TfidfAndVectors(Tfidf):
    """How texts become features, and where the vectors of their words start from."""

    vectors: str = param(
        "", "word vectors to start from: a file (GloVe, word2vec, fastText) or a name; random if left out"
    )

    def fit_transform(self, texts: Iterable[str], run: Run = Run()) -> tuple[Vectorizer, Dataset]:
        vectorizer, X = super().fit_transform(texts, run)
        if not self.vectors:
            return vectorizer, Dataset(X)
        from xmtc.text.vectors import word_vectors

        return vectorizer, Dataset(X, vectors=word_vectors(self.vectors, vectorizer.vocabulary, run))


@dataclass(frozen=True)
class BagAndWords(Words, Tfidf):
    """How texts become features and sequences of words. It has the parameters of both; what they share is set once."""

    def fit_transform(  # type: ignore[override]  # gives more than either
        self, texts: Iterable[str], run: Run = Run()
    ) -> tuple[BagAndSequences, Dataset]:
        """Learn both from the same texts, which are held together for that: each passes over them once."""
        held = list(texts)
        bag, X = Tfidf.fit_transform(self, held, run)
        words, tokens = Words.fit_transform(self, held, run)
        return BagAndSequences(bag, words), Dataset(X, tokens=tokens)


@dataclass(frozen=True)
class BagVectorsAndWords(BagAndWords):
    """The same, for methods of which some read the vectors of words without their order."""

    def fit_transform(  # type: ignore[override]
        self, texts: Iterable[str], run: Run = Run()
    ) -> tuple[BagAndSequences, Dataset]:
        """A term that is a word has the word's vector; any other starts at random."""
        both, data = super().fit_transform(texts, run)
        if not self.vectors:
            return both, data
        assert data.tokens is not None
        assert data.tokens.vectors is not None
        terms, of_words = both.bag.vocabulary, data.tokens.vectors
        places = both.words.vocabulary.find(terms.text, terms.ends)
        of_terms = uniform(len(terms), of_words.shape[1], seed=2)
        of_terms[places != FREE] = of_words[1 + places[places != FREE]]
        return both, replace(data, vectors=of_terms)


@dataclass(frozen=True)
class BagAndSequences:
    """Text features and numbers of words learnt from a corpus."""

    bag: Vectorizer
    words: Sequencer

    @property
    def n_features(self) -> int:
        return self.bag.n_features

    @property
    def n_words(self) -> int:
        return self.words.n_words

    def word(self, column: int) -> str:
        """What a column of X stands for."""
        return self.bag.word(column)

    def transform(self, texts: Iterable[str], run: Run = Run()) -> Dataset:
        held = list(texts)
        return Dataset(self.bag.transform(held, run), tokens=self.words.transform(held, run))

    def check(self) -> None:
        self.bag.check()
        self.words.check()

"""Tf-idf and sequences of words of the same texts, for methods that combine linear and neural ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xmtc.data.dataset import Dataset
from xmtc.run import Run
from xmtc.text.sequences import Sequencer, Words
from xmtc.text.tfidf import Tfidf, Vectorizer


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

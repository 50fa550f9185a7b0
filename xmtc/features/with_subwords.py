"""Subwords of a pretrained encoder beside features or words of the same texts, for methods that combine others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scipy.sparse import csr_array

from xmtc.base.dataset import Dataset, Tokens
from xmtc.base.run import Run
from xmtc.features.both import BagAndSequences, BagAndWords, BagVectorsAndWords, TfidfAndVectors
from xmtc.features.subwords import SubwordReader, Subwords
from xmtc.features.tfidf import Tfidf, Vectorizer
from xmtc.features.words import Sequencer, Words


@dataclass(frozen=True)
class WithSubwords:
    """What was learnt from a corpus, and the subwords of an encoder."""

    rest: Vectorizer | Sequencer | BagAndSequences
    reader: SubwordReader

    @property
    def n_features(self) -> int:
        return self.rest.n_features

    @property
    def n_words(self) -> int:
        return self.rest.n_words

    @property
    def n_subwords(self) -> int:
        return self.reader.n_subwords

    def word(self, number: int) -> str:
        """What a column of X stands for, or without X a number of Tokens."""
        return self.rest.word(number)

    def transform(self, texts: Iterable[str], run: Run = Run()) -> Dataset:
        held = list(texts)
        return joined(self.rest.transform(held, run), self.reader.transform(held, run))

    def check(self) -> None:
        self.rest.check()
        self.reader.check()


def joined(made: csr_array | Tokens | Dataset, subwords: Tokens) -> Dataset:
    if isinstance(made, Tokens):
        made = Dataset.of_tokens(made)
    return replace(made if isinstance(made, Dataset) else Dataset(made), subwords=subwords)


class Both(Subwords):
    """Has the parameters of both, and learns both from the same texts, which are held together for that."""

    def fit_transform(  # type: ignore[override]  # gives more than either
        self, texts: Iterable[str], run: Run = Run()
    ) -> tuple[WithSubwords, Dataset]:
        held = list(texts)
        rest, made = super(Subwords, self).fit_transform(held, run)  # type: ignore[misc]  # of the class beside
        reader, subwords = Subwords.fit_transform(self, held, run)
        return WithSubwords(rest, reader), joined(made, subwords)


@dataclass(frozen=True)
class TfidfAndSubwords(Both, Tfidf):  # type: ignore[misc]
    """How texts become features and subwords."""


@dataclass(frozen=True)
class VectorsAndSubwords(Both, TfidfAndVectors):  # type: ignore[misc]
    """How texts become features with word vectors and subwords."""


@dataclass(frozen=True)
class WordsAndSubwords(Both, Words):  # type: ignore[misc]
    """How texts become sequences of words and of subwords."""


@dataclass(frozen=True)
class BagWordsAndSubwords(Both, BagAndWords):  # type: ignore[misc]
    """How texts become features and sequences, of words and of subwords."""


@dataclass(frozen=True)
class BagVectorsWordsAndSubwords(Both, BagVectorsAndWords):  # type: ignore[misc]
    """The same, for methods of which some read the vectors of words without their order."""

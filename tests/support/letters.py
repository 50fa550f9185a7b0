"""View of documents as counts of letter n-grams within words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from xmtc import Run, param
from xmtc.core.dataset import Bag
from xmtc.features.view import FittedView, View
from xmtc.text.string_index import StringIndex
from xmtc.text.tokenizer import Tokenizer
from xmtc.text.word_spans import Span, find_spans


@dataclass(frozen=True)
class Letters(View):
    """Counts of letter n-grams."""

    title: ClassVar[str] = "Runs of letters"

    length: int = param(4, "Letters per n-gram.", low=1)

    def fit(self, contents: Iterable[str], run: Run = Run()) -> tuple[FittedLetters, Bag]:
        counter = CountVectorizer(analyzer="char_wb", ngram_range=(self.length, self.length))
        matrix = counter.fit_transform(contents).astype(np.float32)
        runs = StringIndex.from_strings(counter.get_feature_names_out())
        return FittedLetters(length=self.length, runs=runs), Bag(matrix, runs)


@dataclass(frozen=True, kw_only=True)
class FittedLetters(FittedView):
    length: int
    runs: StringIndex

    @property
    def size(self) -> int:
        return len(self.runs)

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Bag:
        lengths, runs = (self.length, self.length), self.runs.words()
        counter = CountVectorizer(analyzer="char_wb", ngram_range=lengths, vocabulary=runs)
        return Bag(counter.transform(contents).astype(np.float32), self.runs)

    def term(self, number: int) -> str:
        return self.runs[number]

    def spans(self, text: str) -> list[Span]:
        """Return the words of a text with the numbers of their n-grams."""
        words = find_spans(Tokenizer(), text)
        return [word._replace(numbers=tuple(self.transform([word.word]).matrix.indices)) for word in words]

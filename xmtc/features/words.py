"""Texts as sequences of words, for the methods that read words in their order."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xmtc.core.array_validation import construct_unchecked
from xmtc.core.dataset import Tokens
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.features.view import ANALYZER_PARAM, UNKNOWN_ID, FittedView, View, empty_corpus_error
from xmtc.text.analyzers import AUTO, WORDS, check_analyzer_name, get_analyzer, has_grams, parse_analyzer_names
from xmtc.text.string_index import NOT_FOUND, StringIndex, merge_word_batches, select_most_frequent
from xmtc.text.tokenizer import Tokenizer, WordSequences, batch_texts, count_per_document
from xmtc.text.word_spans import Span, find_spans


@dataclass(frozen=True)
class Words(View):
    """How texts become sequences of words."""

    title: ClassVar[str] = "Sequences of words"
    unit: ClassVar[str] = "words"
    has_batch_support: ClassVar[bool] = True

    max_words: int = param(500_000, "keep this many words, the most frequent by documents", low=1)
    max_tokens: int = param(500, "read this many words of a text, from its beginning", low=1)
    lowercase: bool = param(True, "treat upper and lower case alike")
    analyzer: str = ANALYZER_PARAM

    def __post_init__(self) -> None:
        super().__post_init__()
        self._stem_analyzer()

    def _stem_analyzer(self) -> str:
        """The analyzer of words in their order: auto leaves them as they are, and grams beside them are left out."""
        names = [name for name in parse_analyzer_names(self.analyzer) if not has_grams(name)]
        if self.analyzer != AUTO and len(names) != 1:
            raise XmtcError(
                f"Words: analyzer={self.analyzer} does not fit words in their order; expected words, "
                "snowball:LANGUAGE or simplemma:LANGUAGE."
            )
        get_analyzer(name := names[0] if names else WORDS)
        return name

    def fit(self, contents: Iterable[str], run: Run = Run()) -> tuple[FittedWords, Tokens]:
        """Learn the vocabulary and number the words of the same texts, which may be a stream: only the numbers of
        their words are kept."""
        tokenizer, analyzer = Tokenizer(self.lowercase, min_chars=1), self._stem_analyzer()

        def read(batch: Collection[str]) -> WordSequences:
            return stem_sequences(tokenizer.index_words(batch, self.max_tokens), analyzer)

        parts = list(run.map(read, batch_texts(contents), "reading texts", size=len))
        words, ends, numbers = merge_word_batches([(part.text, part.ends) for part in parts])
        frequencies = np.zeros(len(ends) - 1, np.int64)
        for part, number in zip(parts, numbers, strict=True):
            frequencies[number] += part.frequencies

        kept = select_most_frequent(words, ends, frequencies, n=self.max_words)
        if not len(kept):
            raise empty_corpus_error(sum(len(part.starts) - 1 for part in parts))

        learnt: dict[str, Any] = {
            "tokenizer": tokenizer,
            "vocabulary": StringIndex.from_subset(words, ends, kept),
            "max_tokens": self.max_tokens,
        }
        fitted = FittedWords(**learnt) if analyzer == WORDS else FittedStems(**learnt, analyzer=analyzer)
        ranks = np.full(len(ends) - 1, NOT_FOUND, np.int32)
        ranks[kept] = np.arange(len(kept), dtype=np.int32)
        return fitted, fitted.join_batches(parts, [ranks[number] for number in numbers])


@dataclass(frozen=True, kw_only=True)
class FittedWords(FittedView):
    """Ids of words learnt from a corpus: 1 and the word's number in the vocabulary, or UNKNOWN."""

    tokenizer: Tokenizer
    vocabulary: StringIndex
    max_tokens: int

    @property
    def size(self) -> int:
        return len(self.vocabulary) + 1

    @property
    def max_length(self) -> int:
        return self.max_tokens

    def term(self, number: int) -> str:
        return "(unknown words)" if number == UNKNOWN_ID else self.vocabulary[number - 1]

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Tokens:
        """The ids of the words of new texts; a text without known words is one unknown word."""

        def read(batch: Collection[str]) -> tuple[WordSequences, np.ndarray]:
            part = self.tokenize(batch)
            return part, self.vocabulary.find_packed(part.text, part.ends)

        pairs = list(run.map(read, batch_texts(contents), "reading texts", size=len))
        return self.join_batches([part for part, _ in pairs], [numbers for _, numbers in pairs])

    def tokenize(self, batch: Collection[str]) -> WordSequences:
        return self.tokenizer.index_words(batch, self.max_tokens)

    def spans(self, text: str) -> list[Span]:
        """A word is one token, as far as the text is read. A text without known words is read as a single token."""
        words = find_spans(self.tokenizer, text)[: len(self.transform([text]).ids)]
        return [word._replace(numbers=(position,)) for position, word in enumerate(words)]

    def join_batches(self, parts: list[WordSequences], numbers: list[np.ndarray]) -> Tokens:
        """Batches end to end, given the number in the vocabulary of each batch's words, FREE for those it lacks."""
        lengths = [np.diff(part.starts) for part in parts]
        offsets = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
        ids, begin = np.empty(offsets[-1], np.int32), 0
        for part, number in zip(parts, numbers, strict=True):
            of_batch = np.concatenate([np.zeros(1, np.int32), number + np.int32(1)])
            ids[begin : begin + len(part.ids)] = of_batch[part.ids]
            begin += len(part.ids)
        tokens = construct_unchecked(
            Tokens, ids=ids, offsets=offsets, size=self.size, vocabulary=self.vocabulary, encoder=""
        )
        return collapse_unknown_documents(tokens)

    def check(self) -> None:
        self.tokenizer.check()
        self.vocabulary.check()
        if not 0 < self.max_tokens < 2**63:
            raise ValueError(f"it reads {self.max_tokens} words of a text")


@dataclass(frozen=True, kw_only=True)
class FittedStems(FittedWords):
    """Ids of stems instead of words."""

    has_word_terms: ClassVar[bool] = False

    analyzer: str

    def tokenize(self, batch: Collection[str]) -> WordSequences:
        return stem_sequences(super().tokenize(batch), self.analyzer)

    def check(self) -> None:
        super().check()
        check_analyzer_name(self.analyzer)


def stem_sequences(part: WordSequences, name: str) -> WordSequences:
    """Each word replaced by its stem."""
    analyzer = get_analyzer(name)
    if analyzer is None:
        return part
    pieces = analyzer.analyze(part.text, part.ends)
    ids = np.concatenate([np.zeros(1, np.int32), pieces.numbers + np.int32(1)])[part.ids]
    _, held, _ = count_per_document(part.starts, ids, len(pieces.ends))
    frequencies = np.bincount(held, minlength=len(pieces.ends))[1:]
    return WordSequences(pieces.text, pieces.ends, frequencies, part.starts, ids)


def collapse_unknown_documents(tokens: Tokens) -> Tokens:
    """A document of unknown words alone becomes a single one: how many there were says nothing."""
    if not tokens.n_docs:
        return tokens
    unknown = np.maximum.reduceat(tokens.ids, tokens.offsets[:-1]) == UNKNOWN_ID  # no document is empty
    lengths = np.where(unknown, 1, tokens.lengths)
    dropped = np.repeat(unknown, tokens.lengths)
    dropped[tokens.offsets[:-1]] = False
    return tokens.copy_with(ids=tokens.ids[~dropped], offsets=np.concatenate([[0], np.cumsum(lengths)]))

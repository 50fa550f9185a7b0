"""View of texts as sequences of words, for methods that use word order."""

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
    """Sequences of words."""

    title: ClassVar[str] = "Sequences of words"
    unit: ClassVar[str] = "words"
    has_batch_support: ClassVar[bool] = True

    max_words: int = param(500_000, "Maximum size of the vocabulary, by document frequency.", low=1)
    max_tokens: int = param(500, "Maximum number of words of a text.", low=1)
    lowercase: bool = param(True, "Conversion of texts to lower case.")
    analyzer: str = ANALYZER_PARAM

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sequence_analyzer()

    def _sequence_analyzer(self) -> str:
        """Return the analyzer of single words: words for auto, and without character n-grams."""
        names = [name for name in parse_analyzer_names(self.analyzer) if not has_grams(name)]
        if self.analyzer != AUTO and len(names) != 1:
            raise XmtcError(
                f"Words: analyzer={self.analyzer} cannot be used for sequences of words; expected words, "
                "snowball:LANGUAGE or simplemma:LANGUAGE."
            )
        get_analyzer(name := names[0] if names else WORDS)
        return name

    def fit(self, contents: Iterable[str], run: Run = Run()) -> tuple[FittedWords, Tokens]:
        """Learn the vocabulary from a stream of texts and return the texts' tokens; only word ids are kept."""
        tokenizer, analyzer = Tokenizer(self.lowercase, min_chars=1), self._sequence_analyzer()

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

        fields: dict[str, Any] = {
            "tokenizer": tokenizer,
            "vocabulary": StringIndex.from_subset(words, ends, kept),
            "max_tokens": self.max_tokens,
        }
        fitted = FittedWords(**fields) if analyzer == WORDS else FittedStems(**fields, analyzer=analyzer)
        ranks = np.full(len(ends) - 1, NOT_FOUND, np.int32)
        ranks[kept] = np.arange(len(kept), dtype=np.int32)
        return fitted, fitted.join_batches(parts, [ranks[number] for number in numbers])


@dataclass(frozen=True, kw_only=True)
class FittedWords(FittedView):
    """Vocabulary of a corpus. The id of a word is its number in the vocabulary plus 1, or UNKNOWN_ID."""

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
        """Return the word ids of new texts; a text without known words is one unknown word."""

        def read(batch: Collection[str]) -> tuple[WordSequences, np.ndarray]:
            part = self.tokenize(batch)
            return part, self.vocabulary.find_packed(part.text, part.ends)

        pairs = list(run.map(read, batch_texts(contents), "reading texts", size=len))
        return self.join_batches([part for part, _ in pairs], [numbers for _, numbers in pairs])

    def tokenize(self, batch: Collection[str]) -> WordSequences:
        return self.tokenizer.index_words(batch, self.max_tokens)

    def spans(self, text: str) -> list[Span]:
        """Return the words of a text, up to the length limit, each with its token."""
        words = find_spans(self.tokenizer, text)[: len(self.transform([text]).ids)]
        return [word._replace(numbers=(position,)) for position, word in enumerate(words)]

    def join_batches(self, parts: list[WordSequences], numbers: list[np.ndarray]) -> Tokens:
        """Concatenate batches, given the vocabulary number, or NOT_FOUND, of each batch's words."""
        lengths = [np.diff(part.starts) for part in parts]
        offsets = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
        ids, begin = np.empty(offsets[-1], np.int32), 0
        for part, number in zip(parts, numbers, strict=True):
            batch_ids = np.concatenate([np.zeros(1, np.int32), number + np.int32(1)])
            ids[begin : begin + len(part.ids)] = batch_ids[part.ids]
            begin += len(part.ids)
        tokens = construct_unchecked(
            Tokens, ids=ids, offsets=offsets, size=self.size, vocabulary=self.vocabulary, encoder=""
        )
        return collapse_unknown_documents(tokens)

    def check(self) -> None:
        self.tokenizer.check()
        self.vocabulary.check()
        if not 0 < self.max_tokens < 2**63:
            raise ValueError(f"its maximum number of words, {self.max_tokens}, is out of range")


@dataclass(frozen=True, kw_only=True)
class FittedStems(FittedWords):
    """Vocabulary of stems of a corpus."""

    analyzer: str

    def tokenize(self, batch: Collection[str]) -> WordSequences:
        return stem_sequences(super().tokenize(batch), self.analyzer)

    def check(self) -> None:
        super().check()
        check_analyzer_name(self.analyzer)


def stem_sequences(part: WordSequences, name: str) -> WordSequences:
    """Replace each word with its stem."""
    analyzer = get_analyzer(name)
    if analyzer is None:
        return part
    stems = analyzer.analyze(part.text, part.ends)
    ids = np.concatenate([np.zeros(1, np.int32), stems.numbers + np.int32(1)])[part.ids]
    _, distinct_ids, _ = count_per_document(part.starts, ids, len(stems.ends))
    frequencies = np.bincount(distinct_ids, minlength=len(stems.ends))[1:]
    return WordSequences(stems.text, stems.ends, frequencies, part.starts, ids)


def collapse_unknown_documents(tokens: Tokens) -> Tokens:
    """Replace documents of unknown words only with a single unknown word."""
    if not tokens.n_docs:
        return tokens
    unknown = np.maximum.reduceat(tokens.ids, tokens.offsets[:-1]) == UNKNOWN_ID  # no document is empty
    lengths = np.where(unknown, 1, tokens.lengths)
    dropped = np.repeat(unknown, tokens.lengths)
    dropped[tokens.offsets[:-1]] = False
    return tokens.copy_with(ids=tokens.ids[~dropped], offsets=np.concatenate([[0], np.cumsum(lengths)]))

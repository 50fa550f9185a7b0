"""Which characters of a text the terms of analyzers come from: an explanation points to words and parts of words, never
to stems."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import NamedTuple

from xmtc.text.analyzers import Analyzer
from xmtc.text.term_index import NOT_FOUND, StringIndex
from xmtc.text.tokenizer import Tokenizer
from xmtc.text.word_spans import Span, find_spans


class TermOrigin(NamedTuple):
    """Where terms come from: what an analyzer, or None for words themselves, makes of words."""

    analyzer: Analyzer | None
    vocabulary: StringIndex
    offset: int  # the number of its first term

    def find_terms(self, words: str) -> list[tuple[int, int, int]]:
        """The known terms of a word, or of a run of words: the first character, the one after the last, the number."""
        parts = self.analyzer.locate_terms(words) if self.analyzer else [(0, len(words), words)]
        numbers = [self.vocabulary.find(term) for _, _, term in parts]
        return [
            (begin, end, self.offset + n) for (begin, end, _), n in zip(parts, numbers, strict=True) if n != NOT_FOUND
        ]


def find_part_spans(tokenizer: Tokenizer, sources: list[TermOrigin], text: str) -> list[Span]:
    """The parts of words whose characters belong to the same terms. What a term weighs is shared out evenly among all
    the characters that it comes from."""
    words = find_spans(tokenizer, text)
    found: list[list[set[int]]] = [[set() for _ in word.word] for word in words]  # terms of each character
    known: dict[str, list[tuple[int, int, int]]] = {}
    for first in range(len(words)):
        for after in range(first + 1, min(first + tokenizer.ngrams, len(words)) + 1):
            run = " ".join(word.word for word in words[first:after])
            if run not in known:
                known[run] = [term for source in sources for term in source.find_terms(run)]
            for begin, end, number in known[run]:
                add_term(found[first:after], begin, end, number)
    n_characters = Counter(number for word in found for terms in word for number in terms)
    return [part for word, terms in zip(words, found, strict=True) for part in split_span(word, terms, n_characters)]


def add_term(words: list[list[set[int]]], begin: int, end: int, number: int) -> None:
    """Characters of a single word, or all of a run of words, belong to a term."""
    for terms in words[0][begin:end] if len(words) == 1 else [terms for word in words for terms in word]:
        terms.add(number)


def split_span(word: Span, terms: list[set[int]], n_characters: Counter[int]) -> list[Span]:
    """A word cut where the terms of its characters change; whole where it has another number of characters in the text
    than for the tokenizer."""
    if len(terms) != word.end - word.begin:
        terms = [set().union(*terms)] * (word.end - word.begin)
    parts, begin = [], word.begin
    for numbers, characters in groupby(terms):
        n = len(list(characters))
        shares = tuple(n / max(n, n_characters[number]) for number in sorted(numbers))
        parts.append(Span(begin, begin + n, word.word, tuple(sorted(numbers)), shares))
        begin += n
    return parts

"""Positions of the words of a text, before normalisation, for explanations."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from xmtc.text.analyzers import Analyzer
from xmtc.text.normalisation import limit_marks, normalize_unicode
from xmtc.text.string_index import NOT_FOUND, StringIndex
from xmtc.text.tokenizer import WORD_CODES_END, Tokenizer, word_character_mask


class Span(NamedTuple):
    """Word and its position text[begin:end]."""

    begin: int
    end: int
    word: str  # normalised
    numbers: tuple[int, ...] = ()  # positions of its tokens, or ids of its terms, in a view
    shares: tuple[float, ...] = ()  # share of each term's weight, for parts of words


def find_spans(tokenizer: Tokenizer, text: str) -> list[Span]:
    """Return the words of a text in their order, equal to those of the compiled Tokenizer."""
    normalized = normalize_for_tokenizer(tokenizer, [text])[0]
    origins, stop_words = map_origins(tokenizer, text), set(normalize_for_tokenizer(tokenizer, tokenizer.stop_words))
    spans = []
    for begin, end in find_word_runs(normalized):
        word = normalized[begin:end]
        if len(word) >= tokenizer.min_chars and word not in stop_words:
            spans.append(Span(origins[begin], origins[end], word))
    return spans


def normalize_for_tokenizer(tokenizer: Tokenizer, texts: list[str] | tuple[str, ...]) -> list[str]:
    """Return texts as the Tokenizer normalises them."""
    packed, ends = tokenizer.pack(texts)
    return [bytes(packed[begin:end]).decode() for begin, end in pairwise(ends)]


def find_word_runs(text: str) -> list[tuple[int, int]]:
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    is_word = np.zeros(len(codes) + 2, bool)
    is_word[1:-1] = (codes < WORD_CODES_END) & word_character_mask()[np.minimum(codes, WORD_CODES_END - 1)]
    edges = np.flatnonzero(is_word[1:] != is_word[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def map_origins(tokenizer: Tokenizer, text: str) -> Sequence[int]:
    """Return the position in the text of each normalised character and of the end, in ascending order."""
    if text.isascii():
        return range(len(text) + 1)
    origins: list[int] = []
    begin = 0
    for unit in split_composing_units(text):
        for i, letter in enumerate(normalize_unicode("NFC", unit)):
            n = len(letter.lower()) if tokenizer.lowercase else 1  # the lower case of some capitals has two characters
            origins += [begin + min(i, len(unit))] * n
        begin += len(unit)
    return [*origins, begin]


def split_composing_units(text: str) -> Iterator[str]:
    """Yield the shortest parts that compose independently: letters with their marks, and Korean syllables."""
    if len(limit_marks(text)) == len(text) and unicodedata.is_normalized("NFC", text):
        yield from text
        return
    begin = 0
    for i in range(1, len(text)):
        is_mark = unicodedata.category(text[i])[0] == "M"
        if not is_mark and (text[i].isascii() or not is_composing(text[begin:i], text[i])):
            yield text[begin:i]
            begin = i
    yield text[begin:]


def is_composing(unit: str, character: str) -> bool:
    """Return True if a character that is not a mark composes with the text before it, as in Korean syllables."""
    separate = normalize_unicode("NFC", unit) + unicodedata.normalize("NFC", character)
    return normalize_unicode("NFC", unit + character) != separate


class TermOrigin(NamedTuple):
    """Analyzer, or None for words, with the vocabulary of its terms."""

    analyzer: Analyzer | None
    vocabulary: StringIndex
    offset: int  # number of the first term

    def find_terms(self, words: str) -> list[tuple[int, int, int]]:
        """Return (begin, end, number) of the known terms of a word or word n-gram."""
        parts = self.analyzer.locate_terms(words) if self.analyzer else [(0, len(words), words)]
        numbers = [self.vocabulary.find(term) for _, _, term in parts]
        return [
            (begin, end, self.offset + n) for (begin, end, _), n in zip(parts, numbers, strict=True) if n != NOT_FOUND
        ]


def find_part_spans(tokenizer: Tokenizer, origins: list[TermOrigin], text: str) -> list[Span]:
    """Return the parts of words whose characters have the same terms. The weight of a term is divided equally among all
    of its characters."""
    words = find_spans(tokenizer, text)
    character_terms: list[list[set[int]]] = [[set() for _ in word.word] for word in words]
    cache: dict[str, list[tuple[int, int, int]]] = {}
    for first in range(len(words)):
        for after in range(first + 1, min(first + tokenizer.ngrams, len(words)) + 1):
            run = " ".join(word.word for word in words[first:after])
            if run not in cache:
                cache[run] = [term for origin in origins for term in origin.find_terms(run)]
            for begin, end, number in cache[run]:
                add_term(character_terms[first:after], begin, end, number)
    n_characters = Counter(number for word in character_terms for terms in word for number in terms)
    pairs = zip(words, character_terms, strict=True)
    return [part for word, terms in pairs for part in split_span(word, terms, n_characters)]


def add_term(words: list[list[set[int]]], begin: int, end: int, number: int) -> None:
    """Add a term to characters of a single word, or to all characters of several words."""
    for terms in words[0][begin:end] if len(words) == 1 else [terms for word in words for terms in word]:
        terms.add(number)


def split_span(word: Span, terms: list[set[int]], n_characters: Counter[int]) -> list[Span]:
    """Split a word where the terms of its characters change; a word whose length is changed by normalisation is one
    part."""
    if len(terms) != word.end - word.begin:
        terms = [set().union(*terms)] * (word.end - word.begin)
    parts, begin = [], word.begin
    for numbers, characters in groupby(terms):
        n = len(list(characters))
        shares = tuple(n / max(n, n_characters[number]) for number in sorted(numbers))
        parts.append(Span(begin, begin + n, word.word, tuple(sorted(numbers)), shares))
        begin += n
    return parts

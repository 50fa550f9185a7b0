"""Where the words of a text stand in it: the words that a Tokenizer finds, traced back to the text as it was given."""

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
    """A word, and the span text[begin:end] that it was read from."""

    begin: int
    end: int
    word: str  # as the tokenizer makes it
    numbers: tuple[int, ...] = ()  # of a view: the tokens of the document, or the terms, that it belongs to
    shares: tuple[float, ...] = ()  # of parts of words: the part of each term's weight that falls to it


def find_spans(tokenizer: Tokenizer, text: str) -> list[Span]:
    """The words of a text in their order, as the Tokenizer's compiled half finds them."""
    normal = normalize_for_tokenizer(tokenizer, [text])[0]
    origins, stop_words = map_origins(tokenizer, text), set(normalize_for_tokenizer(tokenizer, tokenizer.stop_words))
    spans = []
    for begin, end in find_word_runs(normal):
        word = normal[begin:end]
        if len(word) >= tokenizer.min_chars and word not in stop_words:
            spans.append(Span(origins[begin], origins[end], word))
    return spans


def normalize_for_tokenizer(tokenizer: Tokenizer, texts: list[str] | tuple[str, ...]) -> list[str]:
    """Texts as the Tokenizer reads them."""
    packed, ends = tokenizer.pack(texts)
    return [bytes(packed[begin:end]).decode() for begin, end in pairwise(ends)]


def find_word_runs(text: str) -> list[tuple[int, int]]:
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    is_word = np.zeros(len(codes) + 2, bool)
    is_word[1:-1] = (codes < WORD_CODES_END) & word_character_mask()[np.minimum(codes, WORD_CODES_END - 1)]
    edges = np.flatnonzero(is_word[1:] != is_word[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def map_origins(tokenizer: Tokenizer, text: str) -> Sequence[int]:
    """For each character that the Tokenizer reads, and for the end, where in the text it came from; never backwards."""
    if text.isascii():
        return range(len(text) + 1)
    origins: list[int] = []
    begin = 0
    for unit in split_composing_units(text):
        for i, letter in enumerate(normalize_unicode("NFC", unit)):
            n = len(letter.lower()) if tokenizer.lowercase else 1  # some capitals have small letters of two characters
            origins += [begin + min(i, len(unit))] * n
        begin += len(unit)
    return [*origins, begin]


def split_composing_units(text: str) -> Iterator[str]:
    """The shortest stretches whose characters are composed independently of the others: letters with their marks, and
    the syllables of Korean."""
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
    """Whether a character that is no mark becomes one with what stands before it, as the parts of a syllable do."""
    alone = normalize_unicode("NFC", unit) + unicodedata.normalize("NFC", character)
    return normalize_unicode("NFC", unit + character) != alone


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

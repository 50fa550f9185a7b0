"""Positions of the words of a text, before normalisation, for explanations."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from xmtc.text.analyzers import Analyzer
from xmtc.text.normalisation import limit_marks, normalize_unicode
from xmtc.text.string_index import NOT_FOUND, StringIndex
from xmtc.text.token_pattern import locate_tokens
from xmtc.text.tokenizer import CHUNK_UNIT, Tokenizer

OPENING_PUNCTUATION, CLOSING_PUNCTUATION = "([{<\"'`“‘„‚«‹¿¡", ")]}>\"'`”’“‘»›.,;:!?…"  # around the words of a text


class Span(NamedTuple):
    """Word and its position text[begin:end]."""

    begin: int
    end: int
    word: str  # normalised
    numbers: tuple[int, ...] = ()  # positions of its tokens, or ids of its terms, in a view
    shares: tuple[float, ...] = ()  # share of the weight of each term that the word has; empty: all of it
    parts: tuple[tuple[int, int], ...] = ()  # text[begin:end] of each token or term in the word; empty: the whole word


def find_spans(tokenizer: Tokenizer, text: str) -> list[Span]:
    """Return the words of a text in their order, equal to those of the compiled Tokenizer."""
    normalized = normalize_for_tokenizer(tokenizer, [text])[0]
    origins, stop_words = map_origins(tokenizer, text), set(normalize_for_tokenizer(tokenizer, tokenizer.stop_words))
    spans = []
    for begin, end in find_tokens(tokenizer, normalized):
        word = re.sub(r"\s+", "_", normalized[begin:end])  # white space in the match of a pattern
        if len(word) >= tokenizer.min_chars and word not in stop_words:
            spans.append(Span(origins[begin], origins[end], word))
    return spans


def normalize_for_tokenizer(tokenizer: Tokenizer, texts: list[str] | tuple[str, ...]) -> list[str]:
    """Return texts as the Tokenizer normalises them."""
    packed, ends = tokenizer.pack(texts)
    return [bytes(packed[begin:end]).decode() for begin, end in pairwise(ends)]


def find_tokens(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
    """Return (begin, end) for each token of a normalised text."""
    if tokenizer.pattern:
        return locate_tokens(text, tokenizer.pattern)
    return find_token_runs(text, tokenizer.character_mask)


def find_token_runs(text: str, character_mask: np.ndarray) -> list[tuple[int, int]]:
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    is_word = np.zeros(len(codes) + 2, bool)
    is_word[1:-1] = (codes < len(character_mask)) & character_mask[np.minimum(codes, len(character_mask) - 1)]
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
    """Tokenizer and analyzer, or None for words, with the vocabulary of their terms."""

    tokenizer: Tokenizer
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


def find_term_spans(origins: list[TermOrigin], text: str) -> list[Span]:
    """Return the words of a text with their terms. The weight of a term is divided equally among its occurrences, and
    that of an occurrence in several words among these in proportion to their lengths. Words inside a chunk are one
    word with it."""
    tokenizers = dict.fromkeys(origin.tokenizer for origin in origins)
    found = [
        find_tokenizer_spans(tokenizer, [origin for origin in origins if origin.tokenizer == tokenizer], text)
        for tokenizer in tokenizers
    ]
    spans = found[0] if len(found) == 1 else merge_spans([span for spans in found for span in spans])
    has_chunks = any(tokenizer.unit == CHUNK_UNIT and not tokenizer.pattern for tokenizer in tokenizers)
    return [trim_punctuation(span, text) for span in spans] if has_chunks else spans


def merge_spans(spans: list[Span]) -> list[Span]:
    """Return the spans in reading order; overlapping ones become one with the word of the longest."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        if merged and span.begin < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(
                last.begin,
                max(last.end, span.end),
                last.word,
                last.numbers + span.numbers,
                last.shares + span.shares,
                last.parts + span.parts,
            )
        else:
            merged.append(span)
    return merged


def trim_punctuation(span: Span, text: str) -> Span:
    """Return a chunk without the punctuation around it; its terms are kept."""
    piece = text[span.begin : span.end].rstrip(CLOSING_PUNCTUATION)
    end = span.begin + len(piece)
    begin = end - len(piece.lstrip(OPENING_PUNCTUATION))
    if begin == end or (begin, end) == (span.begin, span.end):
        return span
    parts = tuple((min(max(first, begin), end), max(min(last, end), begin)) for first, last in span.parts)
    word = span.word.rstrip(CLOSING_PUNCTUATION).lstrip(OPENING_PUNCTUATION)
    return span._replace(begin=begin, end=end, word=word, parts=parts)


def find_tokenizer_spans(tokenizer: Tokenizer, origins: list[TermOrigin], text: str) -> list[Span]:
    """Return the tokens of a text with their terms."""
    words = find_spans(tokenizer, text)
    found: list[list[TermPart]] = [[] for _ in words]
    cache: dict[str, list[tuple[int, int, int]]] = {}
    n_occurrences: Counter[int] = Counter()
    for places in list_ngrams(tokenizer, len(words)):
        run = " ".join(words[place].word for place in places)
        if run not in cache:
            cache[run] = [term for origin in origins for term in origin.find_terms(run)]
        for begin, end, number in cache[run]:
            n_occurrences[number] += 1
            for word, part in divide_occurrence([words[place] for place in places], begin, end, number):
                found[places[word]].append(part)
    return [add_terms(word, parts, n_occurrences) for word, parts in zip(words, found, strict=True)]


def list_ngrams(tokenizer: Tokenizer, n_words: int) -> Iterator[Sequence[int]]:
    """Yield the places of the words of each n-gram of a text."""
    for first in range(n_words):
        for after in range(first + 1, min(first + tokenizer.ngrams, n_words) + 1):
            yield range(first, after)
        for second in range(first + 2, min(first + tokenizer.skip + 2, n_words)):
            yield first, second


class TermPart(NamedTuple):
    """Characters word[begin:end] of a term, and their share of this occurrence of the term."""

    number: int
    begin: int
    end: int
    share: float


def divide_occurrence(words: list[Span], begin: int, end: int, number: int) -> Iterator[tuple[int, TermPart]]:
    """Yield the part of an occurrence in each of its words; begin and end refer to the words joined by spaces."""
    offset, parts = 0, []
    for i, word in enumerate(words):
        first, last = max(begin - offset, 0), min(end - offset, len(word.word))
        if first < last:
            parts.append((i, first, last))
        offset += len(word.word) + 1
    n_characters = sum(last - first for _, first, last in parts)
    for i, first, last in parts:
        yield i, TermPart(number, first, last, (last - first) / n_characters)


def add_terms(word: Span, parts: list[TermPart], n_occurrences: Counter[int]) -> Span:
    """Return the word with its terms; in a word whose length is changed by normalisation, they have no place."""
    is_placed = len(word.word) == word.end - word.begin
    return word._replace(
        numbers=tuple(part.number for part in parts),
        shares=tuple(part.share / n_occurrences[part.number] for part in parts),
        parts=tuple(
            (word.begin + part.begin, word.begin + part.end) if is_placed else (word.begin, word.end) for part in parts
        ),
    )

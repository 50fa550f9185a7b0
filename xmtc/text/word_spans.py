"""Where the words of a text stand in it: the words that a Tokenizer finds, traced back to the text as it was given."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from xmtc.text.normalisation import limit_marks, normalize_unicode
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

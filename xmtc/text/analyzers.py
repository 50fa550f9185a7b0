"""Analyzers, which map tokens to terms: the words themselves, stems, or character n-grams.

An analyzer processes distinct tokens, so that each is stemmed or split once. Names of analyzers are `words`,
`words:1-2`, `snowball:finnish`, `simplemma:fi`, `chars` and `chars:2-4`, and `grams` and `grams:2-4`. The tokens of
`chars` are runs of characters other than white space; those of the others are words."""

from __future__ import annotations

import functools
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.data.batch import concatenate_bytes
from xmtc.errors import XmtcError, as_missing_extra, find_similar_names
from xmtc.text.string_index import StringIndex, index_distinct_words, merge_word_batches
from xmtc.text.tokenizer import SPACE_BYTE, WORD_CODES_END, decode_code_point

AUTO, WORDS, CHARS, GRAMS, SNOWBALL, SIMPLEMMA = "auto", "words", "chars", "grams", "snowball", "simplemma"
CHAR_NGRAM_KINDS = (CHARS, GRAMS)
MAX_NGRAM_WORDS = 5
MIN_GRAM_CHARS, MAX_GRAM_CHARS = 3, 5
CHUNK_BYTES = 1_000_000  # bytes of words that are split at a time
MAX_CACHED_STEMS = 500_000

# Scripts in which a character is about a syllable or a word: Han, kana and Hangul.
DENSE_SCRIPT_RANGES = (
    (0x2E80, 0x2FE0), (0x3005, 0x3008), (0x3040, 0x3100), (0x31F0, 0x3200), (0x3400, 0xA000), (0xAC00, 0xD7B0),
    (0xF900, 0xFB00), (0xFF66, 0xFF9E), (0x1B000, 0x1B170), (0x20000, 0x40000),
)  # fmt: skip
MIN_DENSE_GRAM_CHARS, MAX_DENSE_GRAM_CHARS = 1, 3


class WordTerms(NamedTuple):
    """Terms of words; word i has the terms numbers[starts[i]:starts[i + 1]]."""

    text: np.ndarray  # uint8; concatenated bytes of the distinct terms
    ends: np.ndarray  # (n_terms + 1,) int64
    starts: np.ndarray  # (n_words + 1,) int64
    numbers: np.ndarray  # (n,) int32


class Analyzer(ABC):
    """Mapping of words to terms."""

    @abstractmethod
    def analyze(self, text: np.ndarray, ends: np.ndarray) -> WordTerms:
        """Return the terms of distinct words, given as concatenated bytes and end offsets."""

    @abstractmethod
    def locate_terms(self, word: str) -> list[tuple[int, int, str]]:
        """Return (begin, end, term) for each term of a word; it was made from word[begin:end]."""


@dataclass(frozen=True)
class StemAnalyzer(Analyzer):
    """Analyzer with one term for all forms of a word; in word n-grams each word is stemmed."""

    stem: Callable[[str], str]
    cache: dict[str, str] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)  # Snowball stemmers are not thread-safe

    def stem_words(self, words: list[str]) -> list[str]:
        """Return the stems of words, from the cache where possible."""
        with self.lock:
            if len(self.cache) > MAX_CACHED_STEMS:
                self.cache.clear()
            cache, stem = self.cache, self.stem
            for word in words:
                if word not in cache:
                    cache[word] = stem(word) if " " not in word else " ".join(map(stem, word.split(" ")))
            return [cache[word] for word in words]

    def analyze(self, text: np.ndarray, ends: np.ndarray) -> WordTerms:
        words = StringIndex(text, ends, np.empty(0, np.int32)).words()
        stems, stem_ends = concatenate_bytes([stem.encode("utf-8", "replace") for stem in self.stem_words(words)])
        distinct = index_distinct_words(stems, stem_ends[:-1], stem_ends[1:])
        return WordTerms(distinct.text, distinct.ends, np.arange(len(words) + 1), distinct.numbers)

    def locate_terms(self, word: str) -> list[tuple[int, int, str]]:
        return [(0, len(word), self.stem_words([word])[0])]


@dataclass(frozen=True)
class CharNgramAnalyzer(Analyzer):
    """Character n-grams of each word with a space before and after it, as scikit-learn's `char_wb`. In dense scripts
    such as Chinese, n is 1 to 3."""

    min_n: int = MIN_GRAM_CHARS
    max_n: int = MAX_GRAM_CHARS

    def analyze(self, text: np.ndarray, ends: np.ndarray) -> WordTerms:
        chunks = [self._analyze_chunk(text, ends[begin : end + 1]) for begin, end in split_word_chunks(ends)]
        grams, gram_ends, numbers = merge_word_batches([(chunk.text, chunk.ends) for chunk in chunks])
        word_grams = [merged[chunk.numbers] for merged, chunk in zip(numbers, chunks, strict=True)]
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(chunk.starts) for chunk in chunks)])
        return WordTerms(grams, gram_ends, np.cumsum(lengths), np.concatenate([np.zeros(0, np.int32), *word_grams]))

    def _analyze_chunk(self, text: np.ndarray, ends: np.ndarray) -> WordTerms:
        padded, starts, begins, gram_ends = self.cut_grams(text, ends)
        grams = index_distinct_words(padded, begins, gram_ends)
        return WordTerms(grams.text, grams.ends, starts, grams.numbers)

    def cut_grams(self, text: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the words separated by spaces, the first n-gram of each word, and the n-grams' begins and ends."""
        n_words, n_bytes = len(ends) - 1, int(ends[-1] - ends[0])
        n_lengths = max(self.max_n - self.min_n, MAX_DENSE_GRAM_CHARS - MIN_DENSE_GRAM_CHARS) + 1
        max_grams = (n_bytes + 2 * n_words) * n_lengths
        padded, starts = np.full(n_bytes + n_words + 1, SPACE_BYTE, np.uint8), np.zeros(n_words + 1, np.int64)
        begins, gram_ends = np.empty(max_grams, np.int64), np.empty(max_grams, np.int64)
        lengths = self.min_n, self.max_n, MIN_DENSE_GRAM_CHARS, MAX_DENSE_GRAM_CHARS
        n = write_grams(text, ends, dense_character_mask(), *lengths, padded, starts, begins, gram_ends)
        return padded, starts, begins[:n], gram_ends[:n]

    def locate_terms(self, word: str) -> list[tuple[int, int, str]]:
        padded, _, begins, ends = self.cut_grams(*concatenate_bytes([word.encode("utf-8", "replace")]))
        n_before = np.concatenate([[0], np.cumsum((padded & 0xC0) != 0x80)])  # characters before each byte
        terms = []
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            first, last = int(n_before[begin]) - 1, int(n_before[end]) - 1  # without the space before the word
            terms.append((max(first, 0), min(last, len(word)), bytes(padded[begin:end]).decode(errors="replace")))
        return terms


def split_word_chunks(ends: np.ndarray, size: int = CHUNK_BYTES) -> list[tuple[int, int]]:
    """Return ranges of consecutive words of about `size` bytes."""
    n_words = len(ends) - 1
    cuts = np.searchsorted(ends, np.arange(ends[0], ends[-1], size)) if n_words else np.zeros(1, np.int64)
    cuts = np.unique([*cuts.tolist(), 0, n_words])
    return list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))


@functools.cache
def dense_character_mask() -> np.ndarray:
    """Return which code points belong to dense scripts."""
    mask = np.zeros(WORD_CODES_END, bool)
    for begin, end in DENSE_SCRIPT_RANGES:
        mask[begin:end] = True
    return mask


def parse_analyzer_names(setting: str) -> tuple[str, ...]:
    """Return the analyzer names of a parameter value: two for `words+chars`, none for `auto`."""
    names = tuple(setting.split("+")) if setting != AUTO else ()
    if len(set(names)) < len(names):
        raise XmtcError(
            f"analyzer={setting!r} contains a duplicate; expected different analyzers, such as words+chars."
        )
    return names


def has_grams(setting: str) -> bool:
    """Return True if an analyzer of a parameter value makes character n-grams."""
    return any(name.partition(":")[0] in CHAR_NGRAM_KINDS for name in setting.split("+"))


def reads_chunks(name: str) -> bool:
    """Return True if an analyzer reads runs of characters other than white space instead of words."""
    return name.partition(":")[0] == CHARS


def parse_word_ngrams(name: str) -> int | None:
    """Return the maximum number of words of a term, or None if the name has none: 2 for `words:1-2`."""
    match = re.fullmatch(rf"{WORDS}:1-([1-{MAX_NGRAM_WORDS}])", name)
    return int(match[1]) if match else None


def check_analyzer_name(name: str) -> None:
    """Raise an XmtcError if a name is not an analyzer; packages and languages are not checked."""
    kind, _, setting = name.partition(":")
    if kind in CHAR_NGRAM_KINDS:
        parse_grams(name, setting)
    elif (kind not in STEMMERS or not setting) and name != WORDS and parse_word_ngrams(name) is None:
        raise XmtcError(
            f"Unknown analyzer {name!r:.200}; expected words, words:1-2 (up to words:1-{MAX_NGRAM_WORDS}), "
            "snowball:LANGUAGE, simplemma:LANGUAGE, chars, chars:3-5, several joined by +, or auto."
        )


@functools.cache
def get_analyzer(name: str) -> Analyzer | None:
    """Return the analyzer of a name, or None for words and their n-grams."""
    check_analyzer_name(name)
    kind, _, setting = name.partition(":")
    if kind in CHAR_NGRAM_KINDS:
        return parse_grams(name, setting)
    if kind == WORDS:
        return None
    return StemAnalyzer(STEMMERS[kind](setting))


def parse_grams(name: str, lengths: str) -> CharNgramAnalyzer:
    if name in CHAR_NGRAM_KINDS:
        return CharNgramAnalyzer()
    match = re.fullmatch(r"(\d{1,2})-(\d{1,2})", lengths)
    if not match or not 1 <= int(match[1]) <= int(match[2]) <= 20:
        raise XmtcError(f"{name!r} has no valid n-gram lengths; expected two lengths up to 20, such as chars:3-5.")
    return CharNgramAnalyzer(int(match[1]), int(match[2]))


def load_snowball(language: str) -> Callable[[str], str]:
    try:
        import snowballstemmer
    except ImportError as error:
        raise as_missing_extra(f"snowball:{language}", error) from None
    known = snowballstemmer.algorithms()
    if language not in known:
        raise unknown_language_error(SNOWBALL, language, known)
    stemmer = snowballstemmer.stemmer(language)
    if hasattr(stemmer, "maxCacheSize"):  # PyStemmer; StemAnalyzer has its own cache
        stemmer.maxCacheSize = 0
    return stemmer.stemWord


def load_simplemma(language: str) -> Callable[[str], str]:
    try:
        from simplemma import lemmatize
        from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES as known
    except ImportError as error:
        raise as_missing_extra(f"simplemma:{language}", error) from None
    if language not in known:
        raise unknown_language_error(SIMPLEMMA, language, sorted(known))
    return functools.partial(lemmatize, lang=language)


STEMMERS: dict[str, Callable[[str], Callable[[str], str]]] = {SNOWBALL: load_snowball, SIMPLEMMA: load_simplemma}


def unknown_language_error(package: str, language: str, known: Iterable[str]) -> XmtcError:
    similar = find_similar_names(language, known)
    hint = f"did you mean {similar[0]}?" if similar else f"it has {', '.join(known)}."
    return XmtcError(f"{package} has no language {language!r}; {hint}")


@kernel
def write_grams(
    text, ends, is_dense, shortest, longest, dense_shortest, dense_longest, padded, starts, begins, gram_ends
):  # fmt: skip
    """Write the words, separated by spaces, into `padded`, and the begins and ends of their n-grams; return the number
    of n-grams. A word that is shorter than an n-gram, including its spaces, is one n-gram."""
    n, at = np.int64(0), np.int64(0)  # `at` is the space before a word
    for word in range(len(ends) - 1):
        size = ends[word + 1] - ends[word]
        for i in range(size):
            padded[at + 1 + i] = text[ends[word] + i]
        stop = at + size + 2  # after the space behind the word
        begin = at
        while begin < stop:
            code, after = decode_code_point(padded, begin)
            letter = decode_code_point(padded, at + 1)[0] if begin == at and size > 0 else code
            dense = letter < WORD_CODES_END and is_dense[letter]
            low, high = (dense_shortest, dense_longest) if dense else (shortest, longest)
            if code == SPACE_BYTE and low < 2:
                low = 2  # a single space is not a term
            end, n_chars = begin, 0
            while end < stop and n_chars < high:
                end = decode_code_point(padded, end)[1]
                n_chars += 1
                if n_chars >= low:
                    begins[n], gram_ends[n] = begin, end
                    n += 1
            if begin == at and end == stop and n_chars < low:
                begins[n], gram_ends[n] = begin, end
                n += 1
            begin = after
        at += size + 1
        starts[word + 1] = n
    return n

"""What becomes of a word: itself, its stem, or its character n-grams. An analyzer works on distinct words, so that each
is stemmed or cut once, however often it occurs.

Analyzers have names: `words`, `snowball:finnish`, `simplemma:fi`, `grams` or `grams:2-4`."""

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

AUTO, WORDS, GRAMS, SNOWBALL, SIMPLEMMA = "auto", "words", "grams", "snowball", "simplemma"
MIN_GRAM_CHARS, MAX_GRAM_CHARS = 3, 5  # characters of a gram
CHUNK_BYTES = 1_000_000  # bytes of words that are cut at a time
MAX_CACHED_STEMS = 500_000  # words whose stems are

# A character of these says about as much as a syllable or a word: the Han characters, kana and Hangul.
DENSE_SCRIPT_RANGES = (
    (0x2E80, 0x2FE0), (0x3005, 0x3008), (0x3040, 0x3100), (0x31F0, 0x3200), (0x3400, 0xA000), (0xAC00, 0xD7B0),
    (0xF900, 0xFB00), (0xFF66, 0xFF9E), (0x1B000, 0x1B170), (0x20000, 0x40000),
)  # fmt: skip
MIN_DENSE_GRAM_CHARS, MAX_DENSE_GRAM_CHARS = 1, 3


class WordTerms(NamedTuple):
    """The terms that words become: word i those numbered numbers[starts[i]:starts[i + 1]]."""

    text: np.ndarray  # uint8, the distinct terms end to end
    ends: np.ndarray  # (n_terms + 1,) int64
    starts: np.ndarray  # (n_words + 1,) int64
    numbers: np.ndarray  # (n,) int32


class Analyzer(ABC):
    """Makes terms of words."""

    @abstractmethod
    def analyze(self, text: np.ndarray, ends: np.ndarray) -> WordTerms:
        """The terms of distinct words, which are given as bytes and ends."""

    @abstractmethod
    def locate_terms(self, word: str) -> list[tuple[int, int, str]]:
        """The terms of one word, and the characters word[begin:end] that each was made from."""


@dataclass(frozen=True)
class StemAnalyzer(Analyzer):
    """One term for all forms of a word. Of a run of words, each is stemmed."""

    stem: Callable[[str], str]
    cache: dict[str, str] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)  # a Snowball stemmer holds the word that it is at

    def stem_words(self, words: list[str]) -> list[str]:
        """Each is stemmed once, as long as it is remembered."""
        with self.lock:
            if len(self.cache) > MAX_CACHED_STEMS:
                self.cache.clear()
            known, stem = self.cache, self.stem
            for word in words:
                if word not in known:
                    known[word] = stem(word) if " " not in word else " ".join(map(stem, word.split(" ")))
            return [known[word] for word in words]

    def analyze(self, text: np.ndarray, ends: np.ndarray) -> WordTerms:
        words = StringIndex(text, ends, np.empty(0, np.int32)).words()
        stems, stem_ends = concatenate_bytes([term.encode("utf-8", "replace") for term in self.stem_words(words)])
        found = index_distinct_words(stems, stem_ends[:-1], stem_ends[1:])
        return WordTerms(found.text, found.ends, np.arange(len(words) + 1), found.numbers)

    def locate_terms(self, word: str) -> list[tuple[int, int, str]]:
        return [(0, len(word), self.stem_words([word])[0])]


@dataclass(frozen=True)
class CharNgramAnalyzer(Analyzer):
    """Runs of characters within a word, a blank before and after it included: scikit-learn's `char_wb`. Where a
    character says as much as a syllable or a word, as in Chinese, runs of 1 to 3."""

    min_n: int = MIN_GRAM_CHARS
    max_n: int = MAX_GRAM_CHARS

    def analyze(self, text: np.ndarray, ends: np.ndarray) -> WordTerms:
        chunks = [self._analyze_chunk(text, ends[begin : end + 1]) for begin, end in split_word_chunks(ends)]
        grams, gram_ends, numbers = merge_word_batches([(chunk.text, chunk.ends) for chunk in chunks])
        cut = [of_all[chunk.numbers] for of_all, chunk in zip(numbers, chunks, strict=True)]
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(chunk.starts) for chunk in chunks)])
        return WordTerms(grams, gram_ends, np.cumsum(lengths), np.concatenate([np.zeros(0, np.int32), *cut]))

    def _analyze_chunk(self, text: np.ndarray, ends: np.ndarray) -> WordTerms:
        padded, starts, begins, gram_ends = self.cut_grams(text, ends)
        found = index_distinct_words(padded, begins, gram_ends)
        return WordTerms(found.text, found.ends, starts, found.numbers)

    def cut_grams(self, text: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The words with a blank before and after each; the first gram of each word; where grams begin and end."""
        n_words, n_bytes = len(ends) - 1, int(ends[-1] - ends[0])
        n_lengths = max(self.max_n - self.min_n, MAX_DENSE_GRAM_CHARS - MIN_DENSE_GRAM_CHARS) + 1
        room = (n_bytes + 2 * n_words) * n_lengths
        padded, starts = np.full(n_bytes + n_words + 1, SPACE_BYTE, np.uint8), np.zeros(n_words + 1, np.int64)
        begins, gram_ends = np.empty(room, np.int64), np.empty(room, np.int64)
        lengths = self.min_n, self.max_n, MIN_DENSE_GRAM_CHARS, MAX_DENSE_GRAM_CHARS
        n = write_grams(text, ends, dense_character_mask(), *lengths, padded, starts, begins, gram_ends)
        return padded, starts, begins[:n], gram_ends[:n]

    def locate_terms(self, word: str) -> list[tuple[int, int, str]]:
        written = word.encode("utf-8", "replace")
        padded, _, begins, ends = self.cut_grams(*concatenate_bytes([written]))
        before = np.concatenate([[0], np.cumsum((padded & 0xC0) != 0x80)])  # characters before each byte
        found = []
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            first, last = int(before[begin]) - 1, int(before[end]) - 1  # without the blank before the word
            found.append((max(first, 0), min(last, len(word)), bytes(padded[begin:end]).decode(errors="replace")))
        return found


def split_word_chunks(ends: np.ndarray, size: int = CHUNK_BYTES) -> list[tuple[int, int]]:
    """Consecutive words in stretches of about `size` bytes."""
    n_words = len(ends) - 1
    cuts = np.searchsorted(ends, np.arange(ends[0], ends[-1], size)) if n_words else np.zeros(1, np.int64)
    cuts = np.unique([*cuts.tolist(), 0, n_words])
    return list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))


@functools.cache
def dense_character_mask() -> np.ndarray:
    found = np.zeros(WORD_CODES_END, bool)
    for begin, end in DENSE_SCRIPT_RANGES:
        found[begin:end] = True
    return found


def parse_analyzer_names(setting: str) -> tuple[str, ...]:
    """The analyzers that a parameter speaks of: `words+grams` of two; `auto` of none that is known yet."""
    names = tuple(setting.split("+")) if setting != AUTO else ()
    if len(set(names)) < len(names):
        raise XmtcError(f"analyzer={setting!r} names one twice; expected different ones, such as words+grams.")
    return names


def has_grams(setting: str) -> bool:
    return any(name.partition(":")[0] == GRAMS for name in setting.split("+"))


def check_analyzer_name(name: str) -> None:
    """Refuse what cannot be an analyzer. Whether its package and language are there is not looked at."""
    kind, _, setting = name.partition(":")
    if kind == GRAMS:
        parse_grams(name, setting)
    elif (kind not in STEMMERS or not setting) and name != WORDS:
        raise XmtcError(
            f"There is no analyzer {name!r:.200}; expected words, snowball:LANGUAGE, simplemma:LANGUAGE, grams, "
            "grams:3-5, several joined by +, or auto."
        )


@functools.cache
def get_analyzer(name: str) -> Analyzer | None:
    """None for plain words."""
    check_analyzer_name(name)
    kind, _, setting = name.partition(":")
    if kind == GRAMS:
        return parse_grams(name, setting)
    return StemAnalyzer(STEMMERS[kind](setting)) if setting else None


def parse_grams(name: str, lengths: str) -> CharNgramAnalyzer:
    if not lengths and name == GRAMS:
        return CharNgramAnalyzer()
    found = re.fullmatch(r"(\d{1,2})-(\d{1,2})", lengths)
    if not found or not 1 <= int(found[1]) <= int(found[2]) <= 20:
        raise XmtcError(f"{name!r} does not say how long grams are; expected two lengths up to 20, such as grams:3-5.")
    return CharNgramAnalyzer(int(found[1]), int(found[2]))


def load_snowball(language: str) -> Callable[[str], str]:
    try:
        import snowballstemmer
    except ImportError as error:
        raise as_missing_extra(f"snowball:{language}", error) from None
    known = snowballstemmer.algorithms()
    if language not in known:
        raise unknown_language_error(SNOWBALL, language, known)
    stemmer = snowballstemmer.stemmer(language)
    if hasattr(stemmer, "maxCacheSize"):  # PyStemmer's, where it is installed: words are remembered here
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
    near = find_similar_names(language, known)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}."
    return XmtcError(f"{package} has no language {language!r}; {hint}")


@kernel
def write_grams(
    text, ends, is_dense, shortest, longest, dense_shortest, dense_longest, padded, starts, begins, gram_ends
):  # fmt: skip
    """Write words into `padded`, where they begin after a blank and end before one, and where their grams begin and
    end; return how many grams there are. A word with its blanks that is shorter than a gram is one gram."""
    n, at = np.int64(0), np.int64(0)  # `at` is the blank before a word
    for word in range(len(ends) - 1):
        size = ends[word + 1] - ends[word]
        for i in range(size):
            padded[at + 1 + i] = text[ends[word] + i]
        stop = at + size + 2  # after the blank behind it
        begin = at
        while begin < stop:
            code, after = decode_code_point(padded, begin)
            looked_at = decode_code_point(padded, at + 1)[0] if begin == at and size > 0 else code
            dense = looked_at < WORD_CODES_END and is_dense[looked_at]
            low, high = (dense_shortest, dense_longest) if dense else (shortest, longest)
            if code == SPACE_BYTE and low < 2:
                low = 2  # a blank alone says nothing
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

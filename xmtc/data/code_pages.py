"""Detection of the code page of a text from pairs of letters.

A code page has one byte per character, so that the same bytes are as many characters in each. Each reading is rated by
its log likelihood: the pairs of letters by their frequencies in the best of 28 languages, and the non-ASCII characters
by their place, because misread bytes are often symbols within words, or capitals after small letters. Windows-1252
is preferred unless the difference is clear. benchmarks/encodings.py measures the errors; the constants were chosen on
its development part."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import NamedTuple
from unicodedata import category

DEFAULT_CODE_PAGE = "windows-1252"
# In order of preference, with the names that are common outside Python ("windows-1252", not "cp1252").
CODE_PAGES: tuple[str, ...] = (
    *(DEFAULT_CODE_PAGE, "iso-8859-15", "windows-1250", "iso-8859-2", "windows-1251", "mac-roman", "windows-1253"),
    *("windows-1254", "windows-1257", "cp850", "cp852", "koi8-r", "cp866"),
)
# Advantages in units of log likelihood.
PAGE_ADVANTAGES = {DEFAULT_CODE_PAGE: 3.0, "cp850": -1.0, "cp852": -4.0, "cp866": -4.0}
HINT_ADVANTAGE = 10.0  # of the encoding of the training corpus or of the other files of a folder
# Minimum mean log likelihood of the non-ASCII characters, where they are few, and where they are most of the letters.
MIN_PLAUSIBILITY, MIN_DENSE_PLAUSIBILITY = -12.0, -4.5
DENSE_SHARE = 0.3
# Log probability of a pair that does not occur in a language: of its letters, of letters of other languages, of none.
RARE_PAIR, FOREIGN_PAIR, UNKNOWN_PAIR = -7.0, -9.0, -11.0
SYMBOLS = {"’": -7.0, "\xa0": -5.5, "–": -6.5, "«": -6.5, "»": -6.5} | dict.fromkeys("“”¿¡", -7.0)
SYMBOLS |= dict.fromkeys("‘‚§°·€£©®½", -8.5)
OTHER_SYMBOL, CONTROL = -10.0, -16.0
MISPLACED_SYMBOL, CAPITAL_AFTER_SMALL, SMALL_AFTER_CAPITALS = -7.0, -6.0, -3.0  # added
ISOLATED_LETTER, CAPITAL_LETTER, LETTER_BEFORE_DIGIT = -4.0, -1.0, -2.0
SMALL_AT_START = -4.0  # of a line
OPENING_SYMBOLS = frozenset("„‚¿¡")  # never after a letter
LONE_SYMBOLS = frozenset("½¼¾¤¦¨´¸•")  # never next to a letter
GRAPHIC_CATEGORIES = ("No", "So", "Sm")  # superscripts, line drawing and mathematical symbols: not before a letter
CHARACTERS_WITHIN_WORDS = frozenset("’·\xad")
ONE_LETTER_WORDS = frozenset("àèéêìòóöåùâáíøæаивкосуяіїєйжбηοω")
NON_ASCII_PATTERN = re.compile(r"[^\x00-\x7f]")
# A non-ASCII letter next to another letter, a word of one letter, or a typographic character: hardly by accident.
TEXT_PATTERN = re.compile(
    r"[^\W\d_][^\W\d_\x00-\x7f]|[^\W\d_\x00-\x7f][^\W\d_]|[–—‘’“”„…€£§°«»¿¡]|(?<!\w)[àèéêìòóöåÀÈÉ](?!\w)|(?<=\w)\xa0(?=[\w:;!?»])"
)


class Language(NamedTuple):
    """Frequencies of pairs of letters in a language; a blank is the beginning or the end of a word."""

    log_probabilities: dict[str, float]  # of each letter after the letter before it
    letters: frozenset[str]


class Rating(NamedTuple):
    """Plausibility of a text."""

    log_likelihood: float
    mean: float  # of the non-ASCII characters
    share: float  # of the non-ASCII characters in the text


def choose_code_page(content: bytes, encoding_hint: str | None = None) -> str | None:
    """Return the code page in which the bytes are most plausible; None if they are not text in any."""
    pages = CODE_PAGES if encoding_hint is None else tuple(dict.fromkeys((*CODE_PAGES, encoding_hint)))
    advantages = PAGE_ADVANTAGES | ({} if encoding_hint is None else {encoding_hint: HINT_ADVANTAGE})
    best_page, best_value = None, -math.inf
    for page in pages:
        try:
            text = content.decode(page)
        except (UnicodeError, LookupError):
            continue
        if TEXT_PATTERN.search(text) is None:
            continue
        rating = rate_text(text)
        value = rating.log_likelihood + advantages.get(page, 0.0)
        minimum = MIN_DENSE_PLAUSIBILITY if rating.share > DENSE_SHARE else MIN_PLAUSIBILITY
        if rating.mean >= minimum and value > best_value:
            best_page, best_value = page, value
    return best_page


def rate_text(text: str) -> Rating:
    """Return the log likelihood of the pairs of letters, and of the places of the non-ASCII characters."""
    places = rate_places(text)
    letters = "".join(letter if letter.isalpha() else " " for letter in f" {text.lower()} ")
    counts = Counter(map("".join, pairwise(letters)))
    del counts["  "]
    ascii_pairs = {pair: count for pair, count in counts.items() if pair.isascii()}
    other_pairs = {pair: count for pair, count in counts.items() if not pair.isascii()}
    other, best = 0.0, -math.inf
    for language in load_languages():
        other_sum = sum_log_probabilities(other_pairs, language)
        total = sum_log_probabilities(ascii_pairs, language) + other_sum
        if total > best:
            other, best = other_sum, total
    n_characters = len(NON_ASCII_PATTERN.findall(text)) or 1
    return Rating(best + places, (other / 2 + places) / n_characters, n_characters / len(text))


def sum_log_probabilities(pairs: dict[str, int], language: Language) -> float:
    known = load_known_letters()
    total = 0.0
    for pair, count in pairs.items():
        value = language.log_probabilities.get(pair)
        if value is None:
            is_native = language.letters.issuperset(pair)
            value = RARE_PAIR if is_native else FOREIGN_PAIR if known.issuperset(pair) else UNKNOWN_PAIR
        total += count * value
    return total


def rate_places(text: str) -> float:
    """Return the log likelihood of the places of non-ASCII letters, and of symbols."""
    return sum(rate_place(*place) * count for place, count in Counter(iterate_places(text)).items())


def iterate_places(text: str) -> list[tuple[str, str, str]]:
    """Return each non-ASCII character with the characters before and after it."""
    padded = f"\n{text}\n"
    return [
        (padded[start], padded[start - 1], padded[start + 1])
        for start in (match.start() + 1 for match in NON_ASCII_PATTERN.finditer(text))
    ]


def rate_place(character: str, before: str, after: str) -> float:
    is_within_word = before.isalpha() and after.isalpha()
    if not character.isalpha() or character in "ªº":
        if not character.isprintable() and character not in "\xa0\xad":
            return CONTROL
        is_misplaced = is_within_word and character not in CHARACTERS_WITHIN_WORDS
        is_misplaced |= before.isalpha() and character in OPENING_SYMBOLS
        is_misplaced |= (before.isalpha() or after.isalpha()) and character in LONE_SYMBOLS
        is_misplaced |= after.isalpha() and character not in SYMBOLS and category(character) in GRAPHIC_CATEGORIES
        return SYMBOLS.get(character, OTHER_SYMBOL) + MISPLACED_SYMBOL * is_misplaced
    if not (before.isalpha() or after.isalpha()):
        if before == "\n" and character.islower():
            return SMALL_AT_START
        return 0.0 if character.lower() in ONE_LETTER_WORDS else ISOLATED_LETTER
    if character.isupper():
        return CAPITAL_AFTER_SMALL if before.islower() else CAPITAL_LETTER
    if after.isdigit():
        return LETTER_BEFORE_DIGIT
    is_among_capitals = is_within_word and before.isupper() and after.isupper()
    return SMALL_AFTER_CAPITALS if is_among_capitals else 0.0


@cache
def load_languages() -> tuple[Language, ...]:
    """Return the pairs of letters of all languages."""
    from xmtc.data.letter_pairs import LETTER_PAIRS  # large, and only needed for files in an old encoding

    return tuple(make_language(pairs) for pairs in LETTER_PAIRS.values())


def make_language(pairs: dict[str, int]) -> Language:
    totals: Counter[str] = Counter()
    for pair, count in pairs.items():
        totals[pair[0]] += count
    log_probabilities = {pair: math.log(count / totals[pair[0]]) for pair, count in pairs.items()}
    return Language(log_probabilities, frozenset("".join(pairs)))


@cache
def load_known_letters() -> frozenset[str]:
    return frozenset().union(*(language.letters for language in load_languages()))

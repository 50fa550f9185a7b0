"""Stemmers for the comparison of label names with texts: plural stripping and Snowball."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from threading import Lock

from xmtc.errors import MissingExtra, XmtcError
from xmtc.text.analyzers import AUTO

NO_STEMMING, PLURAL_STEMMING = "none", "plural"  # in addition to the languages of Snowball
ENGLISH = "english"
MIN_PLURAL_CHARS = 4  # shorter words are not stripped
NON_PLURAL_ENDINGS = ("ss", "us", "is")
MAX_CACHED_STEMS = 2**17


def strip_plural(word: str) -> str:
    """Remove an English plural ending: libraries → library, laws → law; glass, virus and analysis are kept."""
    if len(word) < MIN_PLURAL_CHARS or not word.endswith("s") or word.endswith(NON_PLURAL_ENDINGS):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > MIN_PLURAL_CHARS else word[:-1]


def choose_stemming(language: str | None) -> str:
    """Return the stemming for texts in a language: plural for English, for an unknown language and without Snowball."""
    if language is None or language == ENGLISH:
        return PLURAL_STEMMING
    try:
        get_stemmer(language)
    except XmtcError:
        return PLURAL_STEMMING
    return language


@cache
def get_stemmer(name: str) -> Callable[[str], str]:
    """Return the stemmer with a name: none, plural, auto (plural, if no language was detected) or a language."""
    if name == NO_STEMMING:
        return str
    if name in (PLURAL_STEMMING, AUTO):
        return strip_plural
    try:
        import snowballstemmer
    except ImportError:
        raise MissingExtra(f"stemming={name} needs snowballstemmer: pip install snowballstemmer.") from None
    if name not in snowballstemmer.algorithms():
        languages = ", ".join(snowballstemmer.algorithms())
        raise XmtcError(
            f"stemming={name!r} is unknown; expected {AUTO}, {NO_STEMMING}, {PLURAL_STEMMING} or one of {languages}."
        )
    snowball, lock = snowballstemmer.stemmer(name), Lock()  # Snowball stemmers are not thread-safe

    @lru_cache(MAX_CACHED_STEMS)
    def stem(word: str) -> str:
        with lock:
            return snowball.stemWord(word)

    return stem

"""Stemmers for the comparison of label names with texts: plural stripping and Snowball."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from threading import Lock

from xmtc.errors import MissingExtra, XmtcError

NO_STEMMING, PLURAL_STEMMING = "none", "plural"  # in addition to the languages of Snowball
MIN_PLURAL_CHARS = 4  # shorter words are not stripped
NON_PLURAL_ENDINGS = ("ss", "us", "is")
MAX_CACHED_STEMS = 2**17


def strip_plural(word: str) -> str:
    """Remove an English plural ending: libraries → library, laws → law; glass, virus and analysis are kept."""
    if len(word) < MIN_PLURAL_CHARS or not word.endswith("s") or word.endswith(NON_PLURAL_ENDINGS):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > MIN_PLURAL_CHARS else word[:-1]


@cache
def get_stemmer(name: str) -> Callable[[str], str]:
    """Return the stemmer with a name: none, plural or a language of Snowball."""
    if name == NO_STEMMING:
        return str
    if name == PLURAL_STEMMING:
        return strip_plural
    try:
        import snowballstemmer
    except ImportError:
        raise MissingExtra(f"stemming={name} needs snowballstemmer: pip install snowballstemmer.") from None
    if name not in snowballstemmer.algorithms():
        languages = ", ".join(snowballstemmer.algorithms())
        raise XmtcError(
            f"stemming={name!r} is unknown; expected {NO_STEMMING}, {PLURAL_STEMMING} or one of {languages}."
        )
    snowball, lock = snowballstemmer.stemmer(name), Lock()  # Snowball stemmers are not thread-safe

    @lru_cache(MAX_CACHED_STEMS)
    def stem(word: str) -> str:
        with lock:
            return snowball.stemWord(word)

    return stem

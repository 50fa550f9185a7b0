"""Words brought to the form in which names are compared with texts: without a plural's s, or by a Snowball stemmer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from threading import Lock

from xmtc.errors import MissingExtra, XmtcError

NO_STEMMING, PLURAL_STEMMING = "none", "plural"  # beside the languages of Snowball
MIN_PLURAL_CHARS = 4  # letters of a word whose last may be a plural's s
NON_PLURAL_ENDINGS = ("ss", "us", "is")
MAX_CACHED_STEMS = 2**17  # stems that are remembered; most words of a text have been seen before


def strip_plural(word: str) -> str:
    """Libraries become library, laws law; glass, virus and analysis stay."""
    if len(word) < MIN_PLURAL_CHARS or not word.endswith("s") or word.endswith(NON_PLURAL_ENDINGS):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > MIN_PLURAL_CHARS else word[:-1]


@cache
def get_stemmer(name: str) -> Callable[[str], str]:
    """What a word becomes: by `none`, `plural` or a language that Snowball knows."""
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
            f"stemming={name!r} is not known; expected {NO_STEMMING}, {PLURAL_STEMMING} or one of {languages}."
        )
    snowball, one_at_a_time = snowballstemmer.stemmer(name), Lock()  # it holds the word that it works on

    @lru_cache(MAX_CACHED_STEMS)
    def stem(word: str) -> str:
        with one_at_a_time:
            return snowball.stemWord(word)

    return stem

"""Words brought to the form in which names are compared with texts: without a plural's s, or by a Snowball stemmer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from threading import Lock

from xmtc.errors import MissingExtra, XmtcError

NONE, PLURAL = "none", "plural"  # beside the languages of Snowball
SHORTEST = 4  # letters of a word whose last may be a plural's s
NO_PLURAL = ("ss", "us", "is")
KEPT = 2**17  # stems that are remembered; most words of a text have been seen before


def without_plural(word: str) -> str:
    """Libraries become library, laws law; glass, virus and analysis stay."""
    if len(word) < SHORTEST or not word.endswith("s") or word.endswith(NO_PLURAL):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > SHORTEST else word[:-1]


@cache
def stemmer(name: str) -> Callable[[str], str]:
    """What a word becomes: by `none`, `plural` or a language that Snowball knows."""
    if name == NONE:
        return str
    if name == PLURAL:
        return without_plural
    try:
        import snowballstemmer
    except ImportError:
        raise MissingExtra(f"stemming={name} needs snowballstemmer: pip install snowballstemmer.") from None
    if name not in snowballstemmer.algorithms():
        languages = ", ".join(snowballstemmer.algorithms())
        raise XmtcError(f"stemming={name!r} is not known; expected {NONE}, {PLURAL} or one of {languages}.")
    snowball, one_at_a_time = snowballstemmer.stemmer(name), Lock()  # it holds the word that it works on

    @lru_cache(KEPT)
    def stem(word: str) -> str:
        with one_at_a_time:
            return snowball.stemWord(word)

    return stem

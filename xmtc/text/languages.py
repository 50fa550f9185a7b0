"""Which language words are of: told by the commonest words of languages, and by scripts that put no blanks between
words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xmtc.errors import XmtcError, as_missing_extra
from xmtc.text.stop_words import common_words, language_names
from xmtc.text.string_index import NOT_FOUND, StringIndex

# Han, kana, Thai, Lao, Burmese and Khmer: a run of letters is a clause there
UNSPACED_SCRIPT_RANGES = (
    (0x3005, 0x3008), (0x3040, 0x3100), (0x31F0, 0x3200), (0x3400, 0xA000), (0xF900, 0xFB00),
    (0x0E00, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800), (0xFF66, 0xFF9E), (0x20000, 0x40000),
)  # fmt: skip
MIN_COMMON_WORD_SHARE = 0.05  # of all words; the commonest of a language are a fifth and more of its running text


def measure_unspaced_share(text: np.ndarray) -> float:
    """How much of the letters, given as the bytes of words, is written without blanks between words."""
    letters = np.frombuffer(bytes(text).decode(errors="replace").encode("utf-32-le", "replace"), np.uint32)
    found = sum((int(((letters >= begin) & (letters < end)).sum()) for begin, end in UNSPACED_SCRIPT_RANGES), 0)
    return found / max(1, len(letters))


def detect_language(text: np.ndarray, ends: np.ndarray, frequencies: np.ndarray) -> str | None:
    """The language whose commonest words are the most of all words, which are given as bytes, ends and how often each
    occurs; None where no language's are enough."""
    words = StringIndex.from_subset(text, ends, np.arange(len(ends) - 1))
    shares = {}
    for language in language_names():
        common = StringIndex.from_strings(sorted(common_words(language)))
        numbers = words.find_packed(common.text, common.ends)
        shares[language] = frequencies[numbers[numbers != NOT_FOUND]].sum() / max(1, frequencies.sum())
    best = max(shares, key=lambda language: shares[language])
    return best if shares[best] >= MIN_COMMON_WORD_SHARE else None


def load_language_identifier(wanted: str) -> Callable[[str], str]:
    """A function that names the language of a text by its code; the wanted one must be among those it knows."""
    try:
        import py3langid
    except ImportError as error:
        raise as_missing_extra("To tell the language of documents", error) from None
    known = sorted(language for language, _ in py3langid.rank(""))
    if wanted not in known:
        raise XmtcError(f"py3langid knows no language {wanted!r:.100}; expected one of {', '.join(known)}.")
    return lambda text: py3langid.classify(text)[0]

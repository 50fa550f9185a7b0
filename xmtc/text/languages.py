"""Language detection by common words, and detection of scripts without spaces between words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np

from xmtc.errors import XmtcError, as_missing_extra
from xmtc.text.stop_words import common_words, language_names
from xmtc.text.string_index import NOT_FOUND, StringIndex
from xmtc.text.tokenizer import Tokenizer

# Han, kana, Thai, Lao, Burmese and Khmer, where a run of letters is a clause
UNSPACED_SCRIPT_RANGES = (
    (0x3005, 0x3008), (0x3040, 0x3100), (0x31F0, 0x3200), (0x3400, 0xA000), (0xF900, 0xFB00),
    (0x0E00, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800), (0xFF66, 0xFF9E), (0x20000, 0x40000),
)  # fmt: skip
MAX_DETECTION_TEXTS, MAX_DETECTION_WORDS = 1000, 1000  # texts, and words of each, that tell the language of a corpus
# Codes of SKOS files for the names of languages
LANGUAGE_CODES = {
    "danish": "da", "dutch": "nl", "english": "en", "finnish": "fi", "french": "fr", "german": "de", "hungarian": "hu",
    "italian": "it", "norwegian": "nb", "portuguese": "pt", "romanian": "ro", "russian": "ru", "spanish": "es",
    "swedish": "sv", "turkish": "tr",
}  # fmt: skip
MIN_COMMON_WORD_SHARE = 0.05  # of all words; in running text the share of common words is at least a fifth


def measure_unspaced_share(text: np.ndarray) -> float:
    """Return the share of letters of scripts without spaces, given the concatenated bytes of words."""
    letters = np.frombuffer(bytes(text).decode(errors="replace").encode("utf-32-le", "replace"), np.uint32)
    n_unspaced = sum((int(((letters >= begin) & (letters < end)).sum()) for begin, end in UNSPACED_SCRIPT_RANGES), 0)
    return n_unspaced / max(1, len(letters))


def detect_language(text: np.ndarray, ends: np.ndarray, frequencies: np.ndarray) -> str | None:
    """Return the language whose common words are most frequent, or None if none reaches MIN_COMMON_WORD_SHARE. The
    words are given as concatenated bytes, end offsets and frequencies."""
    words = StringIndex.from_subset(text, ends, np.arange(len(ends) - 1))
    shares = {}
    for language in language_names():
        common = StringIndex.from_strings(sorted(common_words(language)))
        numbers = words.find_packed(common.text, common.ends)
        shares[language] = frequencies[numbers[numbers != NOT_FOUND]].sum() / max(1, frequencies.sum())
    best = max(shares, key=lambda language: shares[language])
    return best if shares[best] >= MIN_COMMON_WORD_SHARE else None


def detect_text_language(texts: Iterable[str]) -> str | None:
    """Return the language of the first texts, or None if it is not recognised."""
    words = Tokenizer(min_chars=1).index_words(list(islice(texts, MAX_DETECTION_TEXTS)), MAX_DETECTION_WORDS)
    return detect_language(words.text, words.ends, words.frequencies)


def load_language_identifier(wanted: str) -> Callable[[str], str]:
    """Return a function from text to language code; raise an XmtcError if it does not support the wanted language."""
    try:
        import py3langid
    except ImportError as error:
        raise as_missing_extra("Language detection", error) from None
    known = sorted(language for language, _ in py3langid.rank(""))
    if wanted not in known:
        raise XmtcError(f"py3langid does not support the language {wanted!r:.100}; expected one of {', '.join(known)}.")
    return lambda text: py3langid.classify(text)[0]

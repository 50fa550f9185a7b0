"""Normalisation of texts to Unicode's composed form (NFC) and to lower case.

Compiled code maps each character independently. A text is left to Python's functions if it has a character that may
compose with its neighbours, whose lower case depends on them (Greek sigma), or whose lower case has another number of
bytes. Such texts are rare."""

from __future__ import annotations

import unicodedata
from typing import Literal

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.core.threads import cache_with_lock
from xmtc.data.batch import Texts, concatenate_bytes

MAPPED_CODES_END = 0x10000  # end of the mapped code points; letters beyond are rare
PYTHON_FALLBACK = -1  # marks characters that need Python's functions
SIGMA = 0x3A3  # its lower case differs at the end of a word
COMBINING_CODES_END = 0x1F000  # all combining characters are below
MAX_MARKS = 30  # combining characters of one letter, as in Unicode's stream-safe text format
HANGUL = (
    range(0x1161, 0x1176),
    range(0x11A8, 0x11C3),
)  # vowels and finals, which compose with the character before them


def normalize_text(text: str, lowercase: bool) -> str:
    text = text if text.isascii() else normalize_unicode("NFC", text)
    return text.lower() if lowercase else text


def normalize_unicode(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Return a text in a Unicode normal form, without the marks beyond the 30th of a letter.

    No language needs as many, and the time of `unicodedata.normalize` is quadratic in the marks of one letter."""
    return unicodedata.normalize(form, limit_marks(text))


def limit_marks(text: str) -> str:
    """Return a text without the marks beyond the 30th of each letter."""
    if len(text) <= MAX_MARKS or text.isascii():
        return text
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    is_mark = combining_character_mask()[np.minimum(codes, COMBINING_CODES_END)]
    if np.count_nonzero(is_mark) <= MAX_MARKS:
        return text
    places = np.arange(len(codes))
    n_marks = places - np.maximum.accumulate(np.where(is_mark, -1, places))  # since the last letter
    return codes[n_marks <= MAX_MARKS].tobytes().decode("utf-32-le", "surrogatepass")


@cache_with_lock
def combining_character_mask() -> np.ndarray:
    """Return which code points are combining characters, shape (COMBINING_CODES_END + 1,)."""
    return np.array([unicodedata.combining(chr(code)) > 0 for code in range(COMBINING_CODES_END + 1)])


def normalize_texts(texts: Texts, lowercase: bool) -> Texts:
    """Return the result of `normalize_text` for every text."""
    written, is_skipped = np.empty_like(texts.data), np.zeros(len(texts), np.bool_)
    text = texts.data.view()
    text.flags.writeable = False  # inputs may be read-only, which is another type for numba
    write_normalized(text, texts.offsets, character_map(lowercase), written, is_skipped)
    if not is_skipped.any():
        return Texts(written, texts.offsets)
    skipped = np.flatnonzero(is_skipped)
    normalized = [normalize_text(texts[number], lowercase).encode() for number in skipped.tolist()]
    lengths = np.diff(texts.offsets)
    lengths[skipped] = [len(text) for text in normalized]
    cuts = np.stack([texts.offsets[skipped], texts.offsets[skipped + 1]], axis=1).ravel()
    parts = [bytes(part) for part in np.split(written, cuts)]  # skipped texts have the odd numbers
    parts[1::2] = normalized
    return Texts(concatenate_bytes(parts)[0], np.concatenate([[0], np.cumsum(lengths)]))


@cache_with_lock
def character_map(lowercase: bool) -> np.ndarray:
    """Return the normalised code point, or PYTHON_FALLBACK, of each code point, shape (MAPPED_CODES_END,)."""
    mapping = np.arange(MAPPED_CODES_END, dtype=np.int32)
    composing = {SIGMA, *HANGUL[0], *HANGUL[1]}
    for code in range(0x80, MAPPED_CODES_END):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            composing.add(int(parts[1], 16))
    for code in range(MAPPED_CODES_END):
        character = chr(code)
        if code >= 0x80 and (unicodedata.combining(character) or not unicodedata.is_normalized("NFC", character)):
            mapping[code] = PYTHON_FALLBACK
        elif lowercase and (lower := character.lower()) != character:
            is_mappable = len(lower) == 1 and count_utf8_bytes(ord(lower)) == count_utf8_bytes(code)
            mapping[code] = ord(lower) if is_mappable else PYTHON_FALLBACK
    mapping[[code for code in composing if code < MAPPED_CODES_END]] = PYTHON_FALLBACK
    return mapping


def count_utf8_bytes(code: int) -> int:
    return 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)


@kernel
def write_normalized(text, ends, mapping, written, is_skipped):
    """Write the mapped characters of every text; mark a text with an unmapped character as skipped."""
    for doc in range(len(ends) - 1):
        i, end = ends[doc], ends[doc + 1]
        while i < end:
            first = np.int64(text[i])
            if first < 0x80:
                written[i] = mapping[first]
                i += 1
            elif first < 0xE0:
                code = mapping[(first & 0x1F) << 6 | (text[i + 1] & 0x3F)]
                if code < 0:
                    break
                written[i], written[i + 1] = 0xC0 | code >> 6, 0x80 | code & 0x3F
                i += 2
            elif first < 0xF0:
                code = mapping[(first & 0x0F) << 12 | (text[i + 1] & 0x3F) << 6 | (text[i + 2] & 0x3F)]
                if code < 0:
                    break
                written[i], written[i + 1] = 0xE0 | code >> 12, 0x80 | code >> 6 & 0x3F
                written[i + 2] = 0x80 | code & 0x3F
                i += 3
            else:
                break
        is_skipped[doc] = i < end

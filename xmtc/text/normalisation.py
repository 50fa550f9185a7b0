"""Texts in Unicode's composed form (NFC) and in lower case, by compiled code as far as characters stand for themselves.

Nearly all do. Where one does not, because it may merge with its neighbours, because its lower case depends on them (the
Greek sigma) or takes another number of bytes, Python's own functions see to the whole text."""

from __future__ import annotations

import unicodedata
from typing import Literal

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.core.threads import cache_with_lock
from xmtc.data.batch import Texts, concatenate_bytes

MAPPED_CODES_END = 0x10000  # code points that are looked at one by one; letters beyond them are rare
PYTHON_FALLBACK = -1  # what a text with this character is left to
SIGMA = 0x3A3  # its lower case is another at the end of a word
COMBINING_CODES_END = 0x1F000  # a code point behind all combining characters
MAX_MARKS = 30  # combining characters of one letter, as in Unicode's stream-safe text format
HANGUL = (range(0x1161, 0x1176), range(0x11A8, 0x11C3))  # vowels and finals, which merge with what is before them


def normalize_text(text: str, lowercase: bool) -> str:
    text = text if text.isascii() else normalize_unicode("NFC", text)
    return text.lower() if lowercase else text


def normalize_unicode(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Return a text in a normal form of Unicode. Marks beyond the 30th of a letter are left out, as no language has as
    many: the time of `unicodedata.normalize` is quadratic in the number of marks of one letter."""
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
    """(LAST_MARK + 1,) bool: whether each code point is a combining character."""
    return np.array([unicodedata.combining(chr(code)) > 0 for code in range(COMBINING_CODES_END + 1)])


def normalize_texts(texts: Texts, lowercase: bool) -> Texts:
    """`normal` of every text."""
    written, is_left = np.empty_like(texts.data), np.zeros(len(texts), np.bool_)
    text = texts.data.view()
    text.flags.writeable = False  # as it may be: for numba, that is a type of its own
    write_normalized(text, texts.offsets, character_map(lowercase), written, is_left)
    if not is_left.any():
        return Texts(written, texts.offsets)
    left = np.flatnonzero(is_left)
    by_python = [normalize_text(texts[number], lowercase).encode() for number in left.tolist()]
    lengths = np.diff(texts.offsets)
    lengths[left] = [len(text) for text in by_python]
    between = np.split(written, np.stack([texts.offsets[left], texts.offsets[left + 1]], axis=1).ravel())
    parts = [bytes(part) for part in between]  # before the first that is left, that one, up to the second, ...
    parts[1::2] = by_python
    return Texts(concatenate_bytes(parts)[0], np.concatenate([[0], np.cumsum(lengths)]))


@cache_with_lock
def character_map(lowercase: bool) -> np.ndarray:
    """(KNOWN,) int32: the code point that each becomes, or PYTHON."""
    found = np.arange(MAPPED_CODES_END, dtype=np.int32)
    merging = {SIGMA, *HANGUL[0], *HANGUL[1]}
    for code in range(0x80, MAPPED_CODES_END):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            merging.add(int(parts[1], 16))
    for code in range(MAPPED_CODES_END):
        character = chr(code)
        if code >= 0x80 and (unicodedata.combining(character) or not unicodedata.is_normalized("NFC", character)):
            found[code] = PYTHON_FALLBACK
        elif lowercase and (lower := character.lower()) != character:
            found[code] = (
                ord(lower)
                if len(lower) == 1 and count_utf8_bytes(ord(lower)) == count_utf8_bytes(code)
                else PYTHON_FALLBACK
            )
    found[[code for code in merging if code < MAPPED_CODES_END]] = PYTHON_FALLBACK
    return found


def count_utf8_bytes(code: int) -> int:
    """Of a character in UTF-8."""
    return 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)


@kernel
def write_normalized(text, ends, becomes, written, is_left):
    """Write what every character becomes at its place, as long as that is known; else the text is left, and said to
    be."""
    for doc in range(len(ends) - 1):
        i, end = ends[doc], ends[doc + 1]
        while i < end:
            first = np.int64(text[i])
            if first < 0x80:
                written[i] = becomes[first]
                i += 1
            elif first < 0xE0:
                code = becomes[(first & 0x1F) << 6 | (text[i + 1] & 0x3F)]
                if code < 0:
                    break
                written[i], written[i + 1] = 0xC0 | code >> 6, 0x80 | code & 0x3F
                i += 2
            elif first < 0xF0:
                code = becomes[(first & 0x0F) << 12 | (text[i + 1] & 0x3F) << 6 | (text[i + 2] & 0x3F)]
                if code < 0:
                    break
                written[i], written[i + 1] = 0xE0 | code >> 12, 0x80 | code >> 6 & 0x3F
                written[i + 2] = 0x80 | code & 0x3F
                i += 3
            else:
                break
        is_left[doc] = i < end

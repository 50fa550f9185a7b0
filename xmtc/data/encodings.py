"""Detection of the character encoding of a text file.

Byte order marks and the zero bytes of UTF-16 are recognised first. Then UTF-8 is tried, because text in another
encoding is hardly ever valid UTF-8. Otherwise xmtc/data/code_pages.py rates the older code pages by their letters, and
charset-normalizer the encodings of East Asia. If none is plausible, the file is treated as UTF-8 with bad lines."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import NamedTuple

from xmtc.data.code_pages import CODE_PAGES, DEFAULT_CODE_PAGE, choose_code_page
from xmtc.errors import XmtcError, find_similar_names

UTF8 = "utf-8"
DETECTION_BYTES = 1 << 20  # prefix of a file that is examined
SAMPLE_BYTES = 1 << 15  # sample of lines with non-ASCII bytes within that prefix, to rate code pages
FILE_SAMPLE_BYTES = 1 << 10  # of each file of a folder
WIDE_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is a prefix of this one
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
MULTI_BYTE_PAGES = ("shift_jis", "gb18030", "big5", "euc_jp", "euc_kr")
MAX_CHAOS = 0.15  # of the best multi-byte page in charset-normalizer's measure (0: text, 1: noise)
# Python codecs that are not file encodings: some take quadratic time or raise unusual exceptions.
NON_FILE_CODECS = ("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7", "charmap")
ADJACENT_PATTERN = re.compile(r"[^\x00-\xff]{2}")  # letters of East Asia hardly stand alone
NON_ASCII_BYTE_PATTERN = re.compile(rb"[^\x00-\x7f]")


class Encoding(NamedTuple):
    """A detected encoding."""

    name: str
    example: str = ""  # a few words with non-ASCII letters, so that a person can check the detection

    @property
    def is_code_page(self) -> bool:
        """True for encodings that were guessed from the letters."""
        return self.name != UTF8 and not self.is_wide

    @property
    def is_wide(self) -> bool:
        """True for UTF-16 and UTF-32, whose bytes cannot be split into lines."""
        return self.name.startswith(("utf-16", "utf-32"))


def is_text_encoding(name: str) -> bool:
    """Return True if the name is an encoding for text files."""
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    return getattr(codec, "_is_text_encoding", True) and codec.name.replace("_", "-") not in NON_FILE_CODECS


def normalise_encoding_name(name: str) -> str:
    """Return the lower-case name of an encoding without "-sig"; raise XmtcError if Python does not know it."""
    if is_text_encoding(name):
        return name.lower().replace("_sig", "").replace("-sig", "")
    similar = find_similar_names(name.lower(), ("utf-8", "utf-16", "latin-1", *CODE_PAGES))
    if similar:
        hint = f"did you mean {similar[0]}?"
    else:
        hint = f"expected one such as utf-8, utf-16, latin-1 or {DEFAULT_CODE_PAGE}."
    raise XmtcError(f"There is no encoding {name!r}; {hint}")


def describe_invalid_byte(error: UnicodeDecodeError, encoding: str = UTF8, place: str = "") -> str:
    """Return a message part: the byte that is invalid in the encoding, with its place, and what is expected."""
    name = "UTF-8" if encoding == UTF8 else encoding
    return f"byte 0x{error.object[error.start]:02x}{place} is not valid {name}, expected {name} text"


def detect_encoding(head: bytes, is_whole: bool, encoding_hint: str | None = None) -> Encoding:
    """Detect the encoding of a file.

    Parameters
    ----------
    head : bytes
        First bytes of the file.
    is_whole : bool
        True if these are all its bytes.
    encoding_hint : str, optional
        Encoding of the corpus that the model was trained on.
    """
    for mark, name in WIDE_BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return Encoding(name)
    if wide := detect_utf16_without_mark(head):
        return Encoding(wide)
    sample = sample_non_ascii_lines(head, is_whole)
    code_page = choose_encoding(sample, encoding_hint) if sample else None
    if code_page is None:
        return Encoding(UTF8)
    return Encoding(code_page, find_example_words(try_decode(sample, code_page) or ""))


def sample_non_ascii_lines(head: bytes, is_whole: bool) -> bytes:
    """Return lines with non-ASCII bytes; none if there are none, or if one of them is UTF-8."""
    lines = head.splitlines(keepends=True)
    if not is_whole and len(lines) > 1:
        lines.pop()  # it may end within a multi-byte character
    non_ascii_lines = [line for line in lines if NON_ASCII_BYTE_PATTERN.search(line)]
    return b"" if any(map(is_utf8, non_ascii_lines)) else b"".join(non_ascii_lines)[:SAMPLE_BYTES]


def detect_common_encoding(heads: Iterable[bytes]) -> str | None:
    """Return the code page of several files together; None if none of them needs one."""
    sample = b""
    for head in heads:
        has_mark = head.startswith(tuple(WIDE_BYTE_ORDER_MARKS)) or detect_utf16_without_mark(head)
        sample += b"" if has_mark else sample_non_ascii_lines(head, is_whole=False)[:FILE_SAMPLE_BYTES] + b"\n"
        if len(sample) > SAMPLE_BYTES:
            break
    return choose_encoding(sample) if sample.strip() else None


def detect_utf16_without_mark(head: bytes) -> str | None:
    """Detect UTF-16 without a byte order mark: in western text every other byte is zero."""
    sample = head[:1000]
    if len(sample) < 8:
        return None
    even, odd = (part.count(0) / len(part) for part in (sample[::2], sample[1::2]))
    if odd > 0.7 and even < 0.1:
        return "utf-16-le"
    return "utf-16-be" if even > 0.7 and odd < 0.1 else None


def is_utf8(line: bytes) -> bool:
    return try_decode(line, UTF8) is not None


def try_decode(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except (UnicodeError, LookupError):
        return None


def choose_encoding(content: bytes, encoding_hint: str | None = None) -> str | None:
    """Return the code page or multi-byte encoding in which the bytes are most plausible; None if there is none."""
    if encoding_hint in MULTI_BYTE_PAGES and ADJACENT_PATTERN.search(try_decode(content, encoding_hint) or ""):
        return encoding_hint
    page = choose_code_page(content, encoding_hint)
    if page is not None:
        return page
    pages = [name for name in MULTI_BYTE_PAGES if ADJACENT_PATTERN.search(try_decode(content, name) or "")]
    ratings = {name: measure_chaos_and_coherence(content, name) for name in pages}
    best = min((chaos for chaos, _ in ratings.values()), default=1.0)
    if best > MAX_CHAOS:
        return None
    return max((name for name in pages if ratings[name][0] == best), key=lambda name: ratings[name][1])


def measure_chaos_and_coherence(content: bytes, encoding: str) -> tuple[float, float]:
    """Return charset-normalizer's chaos (unlike text) and coherence (like a language) of bytes in an encoding."""
    from charset_normalizer import from_bytes

    match = from_bytes(content, cp_isolation=[encoding], threshold=1.0, enable_fallback=False).best()
    return (1.0, 0.0) if match is None else (match.chaos, match.coherence)


def find_example_words(text: str) -> str:
    """Return up to three words with non-ASCII letters, separated by commas."""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii()]
    return ", ".join(list(dict.fromkeys(word[:20] for word in words))[:3])

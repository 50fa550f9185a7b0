"""Which encoding a file of text has. Byte order marks and the zeros of UTF-16 tell it; then UTF-8 is tried, because
nothing else looks like it by chance; and last, charset-normalizer judges what the bytes are in the older code pages.

Windows-1252, the code page of western Europe and America, is taken wherever it is as plausible as the best of the
others: short texts fit many code pages. Where nothing is plausible, the file counts as UTF-8 with bad lines in it."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from xmtc.errors import XmtcError, find_similar_names

UTF8 = "utf-8"
DETECTION_BYTES = 1 << 20  # of a file, what is looked at
SAMPLE_BYTES = 1 << 16  # of those, what is judged: lines with letters beyond ASCII
WIDE_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
}  # before UTF-16, whose mark begins the same
WIDE_BYTE_ORDER_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# Likely first. What they are called elsewhere: Python's cp1252 is everybody's windows-1252.
DEFAULT_CODE_PAGE = "windows-1252"
CODE_PAGES: tuple[str, ...] = (
    *(DEFAULT_CODE_PAGE, "windows-1250", "windows-1251", "mac-roman", "windows-1253", "windows-1254", "windows-1257"),
    *("cp850", "koi8-r", "shift_jis", "gb18030", "big5", "euc_jp", "euc_kr"),
)
MAX_HINT_CHAOS = (
    0.5  # of chaos, from which on what was likely is not believed: another script, read in it, has twice as much
)
CHAOS_TOLERANCE, MAX_CHAOS = (
    0.02,
    0.15,
)  # of what charset-normalizer calls chaos: a difference that is none; where text ends
# Codecs of Python for domain names, source code and mail: some take quadratic time, or raise errors of their own.
NON_FILE_CODECS = ("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7", "charmap")
# A letter beyond ASCII in a word, or a typographic mark: what a text has, and a byte that fell in by accident has not.
NON_ASCII_TEXT_PATTERN = re.compile(r"[^\W\d_][^\W\d_\x00-\x7f]|[^\W\d_\x00-\x7f][^\W\d_]|[–—‘’“”„…€£§°«»¿¡]")
NON_ASCII_BYTE_PATTERN = re.compile(rb"[^\x00-\x7f]")


class Encoding(NamedTuple):
    name: str
    example: str = ""  # a few words with letters beyond ASCII, by which a person can tell whether it is right

    @property
    def is_wide(self) -> bool:
        """Whether a line cannot be told by its bytes: they are UTF-16 or UTF-32."""
        return self.name.startswith(("utf-16", "utf-32"))


def is_text_encoding(name: str) -> bool:
    """Return True for a name of an encoding in which files of text are written."""
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    return getattr(found, "_is_text_encoding", True) and found.name.replace("_", "-") not in NON_FILE_CODECS


def normalise_encoding_name(name: str) -> str:
    """Return the name of an encoding that Python knows, without a byte order mark; raise XmtcError for any other."""
    if is_text_encoding(name):
        return name.lower().replace("_sig", "").replace("-sig", "")
    near = find_similar_names(name.lower(), ("utf-8", "utf-16", "latin-1", *CODE_PAGES))
    hint = (
        f"did you mean {near[0]}?" if near else f"expected one such as utf-8, utf-16, latin-1 or {DEFAULT_CODE_PAGE}."
    )
    raise XmtcError(f"There is no encoding {name!r}; {hint}")


def detect_encoding(head: bytes, is_whole: bool, encoding_hint: str | None = None) -> Encoding:
    """The encoding of a file that begins so; `likely` is that of the corpus which the model was trained on."""
    for mark, name in WIDE_BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return Encoding(name)
    if wide := detect_utf16_without_mark(head):
        return Encoding(wide)
    lines = head.splitlines(keepends=True)
    if not is_whole and len(lines) > 1:
        lines.pop()  # which may end in the middle of a letter
    odd = [line for line in lines if NON_ASCII_BYTE_PATTERN.search(line)]
    if not odd or any(map(is_utf8, odd)):
        return Encoding(UTF8)
    sample = b"".join(odd)[:SAMPLE_BYTES]
    chosen = choose_code_page(sample, encoding_hint)
    return Encoding(UTF8) if chosen is None else Encoding(chosen, find_example_words(try_decode(sample, chosen) or ""))


def detect_utf16_without_mark(head: bytes) -> str | None:
    """UTF-16 without its mark: of western text, every other byte is zero."""
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


def choose_code_page(content: bytes, encoding_hint: str | None = None) -> str | None:
    """The code page in which bytes are most like text, and most like a language; None if they are in none. A likely one
    is taken where they are text in it."""
    pages = CODE_PAGES if encoding_hint is None or encoding_hint in CODE_PAGES else (encoding_hint, *CODE_PAGES)
    readable = [name for name in pages if NON_ASCII_TEXT_PATTERN.search(try_decode(content, name) or "")]
    chaos, coherence = {}, {}
    for name in readable:
        chaos[name], coherence[name] = measure_chaos_and_coherence(content, name)
    best = min(chaos.values(), default=1.0)
    if best > MAX_CHAOS:
        return None
    if encoding_hint is not None and chaos.get(encoding_hint, 1.0) <= MAX_HINT_CHAOS:
        return encoding_hint
    if chaos.get(DEFAULT_CODE_PAGE, 1.0) <= best + CHAOS_TOLERANCE:
        return DEFAULT_CODE_PAGE
    return max((name for name in readable if chaos[name] == best), key=coherence.__getitem__)


def measure_chaos_and_coherence(content: bytes, encoding: str) -> tuple[float, float]:
    """How unlike a text the bytes are in an encoding, and how like a language: as charset-normalizer measures it."""
    from charset_normalizer import from_bytes

    found = from_bytes(content, cp_isolation=[encoding], threshold=1.0, enable_fallback=False).best()
    return (1.0, 0.0) if found is None else (found.chaos, found.coherence)


def find_example_words(text: str) -> str:
    words = [word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii()]
    return ", ".join(list(dict.fromkeys(word[:20] for word in words))[:3])

"""Tokens as the matches of a regular expression, by RE2.

RE2 takes linear time for every pattern, so that the pattern of a model folder from elsewhere cannot stop a process.
Tokens are handed to the compiled tokenizer as texts whose tokens are separated by spaces."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from xmtc.errors import XmtcError, import_extra

MAX_PATTERN_CHARS = 1000
WORD_CLASS = r"\p{L}\p{N}\p{M}_"  # \w of RE2 is ASCII
# Words with the punctuation inside names: c++, c#, .net, e-mail, 3.11, don't, tcp/ip.
NAME_PATTERN = r"\.?\w+(?:[-.'’/_@&+]\w+)*(?:\+\+|#)?"
BEGIN, END = "\x1e", "\x1f"  # of a token; characters of texts that equal them become spaces
ESCAPE_OR_BRACKET = re.compile(r"\\(.)|\[\^?\]?|\]", re.DOTALL)


def import_arrow() -> tuple[Any, Any]:
    """Return pyarrow, which contains RE2, and its functions for arrays."""
    feature = "tokens=names or token_pattern"
    return import_extra("pyarrow", feature), import_extra("pyarrow.compute", feature)


def check_token_pattern(pattern: str) -> None:
    """Raise an XmtcError if a pattern is not a regular expression of RE2."""
    pyarrow, compute = import_arrow()
    try:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ValueError(f"it is longer than {MAX_PATTERN_CHARS} characters")
        compute.match_substring_regex(pyarrow.array([""]), to_re2(pattern))
    except (ValueError, UnicodeEncodeError) as error:  # ArrowInvalid is a ValueError
        raise XmtcError(
            f"token_pattern={pattern!r:.200} is not a valid regular expression of RE2: {error}. Expected one without "
            r"\b, look-around and back-references, such as \w\w+."
        ) from None


def to_re2(pattern: str) -> str:
    r"""Return a pattern of Python's re for RE2: \w and \W have all letters, and (?u) is left out."""
    is_in_class = False

    def convert(match: re.Match[str]) -> str:
        nonlocal is_in_class
        part, escaped = match[0], match[1]
        if escaped is None:
            opens = part[0] == "[" and not is_in_class
            is_in_class = opens or (is_in_class and part[0] == "[")
            return part
        if escaped == "w":
            return WORD_CLASS if is_in_class else f"[{WORD_CLASS}]"
        if escaped == "W" and not is_in_class:
            return f"[^{WORD_CLASS}]"
        if escaped in "bBW":
            raise ValueError(f"{part} is not supported")
        return part

    return ESCAPE_OR_BRACKET.sub(convert, pattern.removeprefix("(?u)"))


def separate_tokens(text: np.ndarray, offsets: np.ndarray, pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Return texts, given as UTF-8 bytes and offsets, as their tokens separated by spaces. White space inside a token
    becomes an underscore."""
    _, compute = import_arrow()
    marked = mark_tokens(text, offsets, pattern)
    outside = f"(?:^|{END})[^{BEGIN}{END}]*(?:{BEGIN}|$)"
    tokens = compute.replace_substring_regex(marked, outside, BEGIN)
    tokens = compute.replace_substring_regex(tokens, r"\s+", "_")
    return to_bytes(compute.replace_substring(tokens, BEGIN, " "))


def locate_tokens(text: str, pattern: str) -> list[tuple[int, int]]:
    """Return (begin, end) for each token of a text."""
    data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    marked = mark_tokens(data, np.array([0, len(data)]), pattern)[0].as_py()
    spans, position = [], 0
    for part in re.split(f"([{BEGIN}{END}])", marked):
        if part == BEGIN:
            begin = position
        elif part == END:
            spans.append((begin, position))
        else:
            position += len(part)
    return [span for span in spans if span[0] < span[1]]


def mark_tokens(text: np.ndarray, offsets: np.ndarray, pattern: str) -> Any:
    """Return a pyarrow array of texts with BEGIN before and END after each token."""
    pyarrow, compute = import_arrow()
    text = np.where((text == ord(BEGIN)) | (text == ord(END)), np.uint8(ord(" ")), text)
    buffers = pyarrow.py_buffer(offsets.astype(np.int64)), pyarrow.py_buffer(text)
    texts = pyarrow.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)
    return compute.replace_substring_regex(texts, to_re2(pattern), rf"{BEGIN}\0{END}")


def to_bytes(texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a pyarrow array of large strings as bytes and offsets."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    return content[ends[0] : ends[-1]].copy(), ends - ends[0]

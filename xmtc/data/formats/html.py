"""Web pages: the title and the main text, extracted by trafilatura (extra `documents`), are one document.

The encoding is the declared one unless --encoding sets another. trafilatura runs in a child process
(xmtc/core/child_process.py), because nested tags can take it any amount of time."""

from __future__ import annotations

import re
from functools import partial
from html import unescape
from importlib.util import find_spec

from xmtc.data.encodings import is_text_encoding
from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.document_files import ExtractedText, decode_text, extract_in_child, read_document_file
from xmtc.data.records import BadRecord
from xmtc.errors import as_missing_extra

META_CHARSET_PATTERN = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
TITLE_START_PATTERN, TITLE_END_PATTERN = re.compile("<title", re.IGNORECASE), re.compile("</title>", re.IGNORECASE)
META_CHARSET_BYTES = 4096  # prefix in which a page declares its encoding
MAX_TAGS, MAX_ATTRIBUTES = 1_000_000, 5000  # per page, and per tag
QUOTED_VALUE_PATTERN, ATTRIBUTE_SEPARATOR_PATTERN = re.compile("\"[^\"]*\"|'[^']*'"), re.compile(r"[\s/]+")


def extract(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    if find_spec("trafilatura") is None:
        raise missing_trafilatura_error()
    return extract_in_child("html", raw, user_encoding, encoding_hint)


def missing_trafilatura_error() -> ImportError:
    return as_missing_extra("Reading HTML", ModuleNotFoundError(name="trafilatura"))


def parse(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    """Return the text of a page. Call it in a child process only."""
    page, encoding = decode_text(raw, user_encoding, find_declared_encoding(raw) or encoding_hint)
    if not page.strip():
        return ExtractedText("")
    check_tags(page)
    try:
        import trafilatura
    except ImportError:  # a dependency of trafilatura is missing
        raise missing_trafilatura_error() from None
    main = trafilatura.extract(page, include_comments=False, favor_recall=True) or trafilatura.html2txt(page)
    heading = extract_title(page)
    if not main and not heading:
        raise BadRecord("this page has no text, expected HTML with text")
    return ExtractedText(main if heading in main else f"{heading}\n{main}", encoding=encoding)


def check_tags(page: str) -> None:
    """Raise BadRecord for a page with so many tags or attributes that parsing takes quadratic time."""
    n_tags = page.count("<")
    if n_tags > MAX_TAGS:
        raise BadRecord(f"this page has {n_tags:,} tags, expected {MAX_TAGS:,} at most")
    for tag in page.split("<") if len(page) > MAX_ATTRIBUTES else ():
        if len(tag) > MAX_ATTRIBUTES:
            unquoted = QUOTED_VALUE_PATTERN.sub("", tag.partition(">")[0])
            n_attributes = len(ATTRIBUTE_SEPARATOR_PATTERN.split(unquoted)) - 1
            if n_attributes > MAX_ATTRIBUTES:
                raise BadRecord(f"a tag has {n_attributes:,} attributes, expected {MAX_ATTRIBUTES:,} at most")


def extract_title(page: str) -> str:
    """Return the title of a page, or "". A single regular expression would take quadratic time on many tags."""
    opening = TITLE_START_PATTERN.search(page)
    start = page.find(">", opening.end()) if opening else -1
    closing = TITLE_END_PATTERN.search(page, start) if start >= 0 else None
    return " ".join(unescape(page[start + 1 : closing.start()]).split()) if closing else ""


def find_declared_encoding(raw: bytes) -> str | None:
    """Return the encoding that a page declares, if it is a text encoding."""
    match = META_CHARSET_PATTERN.search(raw[:META_CHARSET_BYTES])
    name = match[1].decode("ascii", "replace").lower() if match else None
    return name if name is not None and is_text_encoding(name) else None


HTML = CorpusFormat("html", partial(read_document_file, extract=extract))

"""Web pages: the title and the main text of a page, as trafilatura finds it (the extra `documents`), are one document.

The encoding is the declared one, unless --encoding names another. trafilatura runs in a child process
(xmtc/core/child_process.py): nested tags can take it any amount of time."""

from __future__ import annotations

import re
from functools import partial
from html import unescape
from importlib.util import find_spec

from xmtc.data.encodings import is_text_encoding
from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.document_files import ExtractedText, decode_text, extract_in_child, read_document_file
from xmtc.data.records import BadRecord
from xmtc.errors import MissingExtra

META_CHARSET_PATTERN = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
TITLE_START_PATTERN, TITLE_END_PATTERN = re.compile("<title", re.IGNORECASE), re.compile("</title>", re.IGNORECASE)
META_CHARSET_BYTES = 4096  # in which a page declares its encoding
MAX_TAGS, MAX_ATTRIBUTES = 1_000_000, 5000  # of a page, and of a tag
QUOTED_VALUE_PATTERN, ATTRIBUTE_SEPARATOR_PATTERN = re.compile("\"[^\"]*\"|'[^']*'"), re.compile(r"[\s/]+")


def extract(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    if find_spec("trafilatura") is None:
        raise MissingExtra("Reading HTML needs trafilatura: pip install 'xmtc[documents]'")
    return extract_in_child("html", raw, user_encoding, encoding_hint)


def parse(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    """Return the text of a page. Call it in a child process only."""
    page, encoding = decode_text(raw, user_encoding, find_declared_encoding(raw) or encoding_hint)
    if not page.strip():
        return ExtractedText("")
    check_tags(page)
    try:
        import trafilatura
    except ImportError:  # of a package that it needs
        raise MissingExtra("Reading HTML needs trafilatura: pip install 'xmtc[documents]'") from None
    main = trafilatura.extract(page, include_comments=False, favor_recall=True) or trafilatura.html2txt(page)
    heading = extract_title(page)
    if not main and not heading:
        raise BadRecord("this page has no text, expected HTML with some")
    return ExtractedText(main if heading in main else f"{heading}\n{main}", encoding=encoding)


def check_tags(page: str) -> None:
    """Refuse a page with tags or attributes that its parser would take quadratic time for."""
    n_tags = page.count("<")
    if n_tags > MAX_TAGS:
        raise BadRecord(f"this page has {n_tags:,} tags, expected {MAX_TAGS:,} at most")
    for tag in page.split("<") if len(page) > MAX_ATTRIBUTES else ():
        if len(tag) > MAX_ATTRIBUTES:
            n_attributes = (
                len(ATTRIBUTE_SEPARATOR_PATTERN.split(QUOTED_VALUE_PATTERN.sub("", tag.partition(">")[0]))) - 1
            )
            if n_attributes > MAX_ATTRIBUTES:
                raise BadRecord(f"a tag has {n_attributes:,} attributes, expected {MAX_ATTRIBUTES:,} at most")


def extract_title(page: str) -> str:
    """Return the title of a page, "" if it has none. One regular expression would take quadratic time on many tags."""
    opening = TITLE_START_PATTERN.search(page)
    begin = page.find(">", opening.end()) if opening else -1
    closing = TITLE_END_PATTERN.search(page, begin) if begin >= 0 else None
    return " ".join(unescape(page[begin + 1 : closing.start()]).split()) if closing else ""


def find_declared_encoding(raw: bytes) -> str | None:
    """Return the encoding that a page declares, if it is one of text."""
    found = META_CHARSET_PATTERN.search(raw[:META_CHARSET_BYTES])
    name = found[1].decode("ascii", "replace").lower() if found else None
    return name if name is not None and is_text_encoding(name) else None


HTML = CorpusFormat("html", partial(read_document_file, extract=extract))

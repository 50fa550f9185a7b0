"""Web pages: the title and the main text of a page, as trafilatura finds it (the extra `documents`), are one document.

The encoding is the declared one, unless --encoding names another. trafilatura runs in a child process
(xmtc/core/child_process.py): nested tags can take it any amount of time."""

from __future__ import annotations

import re
from functools import partial
from html import unescape
from importlib.util import find_spec

from xmtc.data.encodings import is_text_encoding
from xmtc.data.formats import Format
from xmtc.data.formats.whole import Content, decoded, extract_in_child, read_one
from xmtc.data.records import BadRecord
from xmtc.errors import MissingExtra

DECLARED = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
OPENING, CLOSING = re.compile("<title", re.IGNORECASE), re.compile("</title>", re.IGNORECASE)
HEAD_BYTES = 4096  # in which a page declares its encoding
MAX_TAGS, MAX_ATTRIBUTES = 1_000_000, 5000  # of a page, and of a tag
QUOTED, BETWEEN_ATTRIBUTES = re.compile("\"[^\"]*\"|'[^']*'"), re.compile(r"[\s/]+")


def extract(raw: bytes, told: str | None, likely: str | None) -> Content:
    if find_spec("trafilatura") is None:
        raise MissingExtra("Reading HTML needs trafilatura: pip install 'xmtc[documents]'")
    return extract_in_child("html", raw, told, likely)


def parse(raw: bytes, told: str | None, likely: str | None) -> Content:
    """Return the text of a page. Call it in a child process only."""
    page, encoding = decoded(raw, told, declared(raw) or likely)
    if not page.strip():
        return Content("")
    check_tags(page)
    try:
        import trafilatura
    except ImportError:  # of a package that it needs
        raise MissingExtra("Reading HTML needs trafilatura: pip install 'xmtc[documents]'") from None
    main = trafilatura.extract(page, include_comments=False, favor_recall=True) or trafilatura.html2txt(page)
    heading = title_of(page)
    if not main and not heading:
        raise BadRecord("this page has no text, expected HTML with some")
    return Content(main if heading in main else f"{heading}\n{main}", encoding=encoding)


def check_tags(page: str) -> None:
    """Refuse a page with tags or attributes that its parser would take quadratic time for."""
    n_tags = page.count("<")
    if n_tags > MAX_TAGS:
        raise BadRecord(f"this page has {n_tags:,} tags, expected {MAX_TAGS:,} at most")
    for tag in page.split("<") if len(page) > MAX_ATTRIBUTES else ():
        if len(tag) > MAX_ATTRIBUTES:
            n_attributes = len(BETWEEN_ATTRIBUTES.split(QUOTED.sub("", tag.partition(">")[0]))) - 1
            if n_attributes > MAX_ATTRIBUTES:
                raise BadRecord(f"a tag has {n_attributes:,} attributes, expected {MAX_ATTRIBUTES:,} at most")


def title_of(page: str) -> str:
    """Return the title of a page, "" if it has none. One regular expression would take quadratic time on many tags."""
    opening = OPENING.search(page)
    begin = page.find(">", opening.end()) if opening else -1
    closing = CLOSING.search(page, begin) if begin >= 0 else None
    return " ".join(unescape(page[begin + 1 : closing.start()]).split()) if closing else ""


def declared(raw: bytes) -> str | None:
    """Return the encoding that a page declares, if it is one of text."""
    found = DECLARED.search(raw[:HEAD_BYTES])
    name = found[1].decode("ascii", "replace").lower() if found else None
    return name if name is not None and is_text_encoding(name) else None


HTML = Format("html", partial(read_one, extract=extract))

"""Web pages: the title and the main text of a page, as trafilatura finds it (the extra `documents`), are one document.

The encoding is what the page says of itself, unless it was told."""

from __future__ import annotations

import re
from functools import partial
from html import unescape

from xmtc.data.formats import Format
from xmtc.data.formats.whole import Content, decoded, read_one
from xmtc.data.records import BadRecord
from xmtc.errors import MissingExtra

DECLARED = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
HEAD_BYTES = 4096  # in which a page says what it is encoded in


def extract(raw: bytes, told: str | None, likely: str | None) -> Content:
    try:
        import trafilatura
    except ImportError:  # also of what it needs itself
        raise MissingExtra("Reading HTML needs trafilatura: pip install 'xmtc[documents]'") from None
    page, encoding = decoded(raw, told, declared(raw) or likely)
    if not page.strip():
        return Content("")
    main = trafilatura.extract(page, include_comments=False, favor_recall=True) or trafilatura.html2txt(page)
    title = TITLE.search(page)
    heading = " ".join(unescape(title[1]).split()) if title else ""
    if not main and not heading:
        raise BadRecord("this page has no text, expected HTML with some")
    return Content(main if heading in main else f"{heading}\n{main}", encoding=encoding)


def declared(raw: bytes) -> str | None:
    """The encoding that a page says it has."""
    found = DECLARED.search(raw[:HEAD_BYTES])
    return found[1].decode().lower() if found else None


HTML = Format("html", partial(read_one, extract=extract))

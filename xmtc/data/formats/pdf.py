"""PDF files: the text of all pages, extracted by pypdf (extra `documents`), is one document with page offsets.

Scanned pages have no text; they need text recognition (OCR) first. pypdf runs in a child process
(xmtc/core/child_process.py), because a small PDF can decompress to any size."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from io import BytesIO
from itertools import accumulate
from typing import Any

from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.document_files import ExtractedText, extract_in_child, read_document_file
from xmtc.data.records import BadRecord
from xmtc.errors import as_missing_extra

PAGE_SEPARATOR = "\n\n"


def extract(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    if find_spec("pypdf") is None:
        raise as_missing_extra("Reading PDF", ModuleNotFoundError(name="pypdf"))
    return extract_in_child("pdf", raw, user_encoding, encoding_hint)


def parse(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    """Return the text of a PDF. Call it in a child process only."""
    from pypdf import PdfReader

    try:
        reader = PdfReader(BytesIO(raw))
        texts = [extract_page_text(page) for page in reader.pages]
    except MemoryError:
        raise
    except Exception as error:  # pypdf raises many types for damaged files
        if "encrypted" in str(error) or "decrypted" in str(error):
            raise BadRecord("it is protected by a password, expected a PDF that can be opened without one") from None
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BadRecord(f"it cannot be read as PDF ({reason}), expected a complete PDF") from None
    if not "".join(texts).strip():
        pages = "its only page has" if len(texts) == 1 else f"its {len(texts)} pages have"
        raise BadRecord(f"{pages} no text, expected text; if they are scanned, recognise their text first (OCR)")
    offsets = accumulate((len(text) + len(PAGE_SEPARATOR) for text in texts[:-1]), initial=0)
    return ExtractedText(PAGE_SEPARATOR.join(texts), tuple(offsets))


def extract_page_text(page: Any) -> str:
    """Return the text of a page; lone surrogates, which cannot be encoded, become question marks."""
    return page.extract_text().encode(errors="replace").decode()


PDF = CorpusFormat("pdf", partial(read_document_file, extract=extract))

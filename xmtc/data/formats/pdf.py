"""PDF: the text of its pages, as pypdf finds it (the extra `documents`), is one document, which knows where each page
begins. Pages that are pictures have no text: they need text recognition first. pypdf runs in a child process
(xmtc/core/child_process.py), because a small PDF can be made to unpack to any size."""

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
    except Exception as error:  # a damaged PDF raises anything
        if "encrypted" in str(error) or "decrypted" in str(error):
            raise BadRecord("it is protected by a password, expected a PDF that can be opened without one") from None
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise BadRecord(f"it cannot be read as PDF ({said}), expected a whole PDF") from None
    if not "".join(texts).strip():
        n_pages = "its only page holds" if len(texts) == 1 else f"its {len(texts)} pages hold"
        raise BadRecord(f"{n_pages} no text, expected letters; if they are pictures, recognise their text first (OCR)")
    begins = accumulate((len(text) + len(PAGE_SEPARATOR) for text in texts[:-1]), initial=0)
    return ExtractedText(PAGE_SEPARATOR.join(texts), tuple(begins))


def extract_page_text(page: Any) -> str:
    """Return the text of a page; half of a surrogate pair, which no file can hold again, as a question mark."""
    return page.extract_text().encode(errors="replace").decode()


PDF = CorpusFormat("pdf", partial(read_document_file, extract=extract))

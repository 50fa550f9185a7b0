"""Plain text: one document per file, or with --whole in standard input."""

from __future__ import annotations

from functools import partial

from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.document_files import ExtractedText, decode_text, read_document_file


def extract(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    text, encoding = decode_text(raw, user_encoding, encoding_hint)
    return ExtractedText(text, encoding=encoding)


TEXT = CorpusFormat("text", partial(read_document_file, extract=extract))

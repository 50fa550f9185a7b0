"""Word documents (.docx): the text of paragraphs and tables, read by python-docx (extra `documents`), is one document.

python-docx runs in a child process (xmtc/core/child_process.py), because a small archive can decompress to any size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.document_files import ExtractedText, extract_in_child, read_document_file
from xmtc.data.records import BadRecord
from xmtc.errors import as_missing_extra


def extract(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    if find_spec("docx") is None:
        raise as_missing_extra("Reading .docx", ModuleNotFoundError(name="docx"))
    return extract_in_child("docx", raw, user_encoding, encoding_hint)


def parse(raw: bytes, user_encoding: str | None, encoding_hint: str | None) -> ExtractedText:
    """Return the text of a Word document. Call it in a child process only."""
    from docx import Document

    try:
        text = "\n".join(iterate_texts(Document(BytesIO(raw))))
    except MemoryError:
        raise
    except Exception as error:  # python-docx raises many types for damaged files
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BadRecord(
            f"it cannot be read as .docx ({reason}), expected a complete document without password"
        ) from None
    if not text.strip():
        raise BadRecord("it has no text, expected text")
    return ExtractedText(text)


def iterate_texts(container: Any) -> Iterator[str]:
    """Yield the texts of paragraphs and cells in their order."""
    for block in container.iter_inner_content():
        if hasattr(block, "rows"):
            for row in block.rows:
                yield "\t".join(cell.text for cell in row.cells)
        else:
            yield block.text


DOCX = CorpusFormat("docx", partial(read_document_file, extract=extract))

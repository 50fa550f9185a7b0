"""The fastText format: one document per line; words that start with `__label__` are its labels.

A line without labels is a document without labels, so a file with one plain text per line is valid, too. The id of a
document is its line number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.records import BadRecord, validate_label_names
from xmtc.errors import XmtcError

PREFIX = "__label__"
BLANKS = r" \t\v\f\r\n\0"  # as in fastText's own reader; a no-break space is part of a word
LABEL = re.compile(rf"(?<![^{BLANKS}]){PREFIX}([^{BLANKS}]*)[{BLANKS}]*")
BLANK = re.compile(rf"[{BLANKS}]")


def read(source: CorpusInput) -> Iterator[Document]:
    return source.parse_documents(
        source.read_text_lines(), partial(parse, should_read_labels=source.should_read_labels, make_id=source.make_id)
    )


def parse(line: str, number: int, should_read_labels: bool = True, make_id: Callable[[int], str] = str) -> Document:
    if PREFIX not in line:
        return Document(make_id(number), line.strip(), [])
    labels = LABEL.findall(line) if should_read_labels else []
    if "" in labels:
        raise BadRecord(f"found {PREFIX} without a name, expected {PREFIX}name")
    return Document(make_id(number), LABEL.sub("", line).strip(), validate_label_names(labels, "labels", None))


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    def add(document: Document) -> None:
        stream.write(format_line(document).encode())

    yield add


def format_line(document: Document) -> str:
    """Return the document as one line; line breaks in its text become spaces."""
    for label in document.labels:
        if BLANK.search(label):
            raise _unwritable_document_error(document, f"the label {label!r} with white space")
    if LABEL.search(document.text):
        raise _unwritable_document_error(document, f"a word that starts with {PREFIX} in its text")
    text = re.sub(r"[\r\n]+", " ", document.text)
    if not document.labels and not text.strip():
        raise _unwritable_document_error(document, "neither text nor labels")
    return " ".join([*(PREFIX + label for label in document.labels), text]) + "\n"


def _unwritable_document_error(document: Document, trait: str) -> XmtcError:
    return XmtcError(f"Document {document.id!r} has {trait}, which fastText cannot represent; write jsonl instead.")


FASTTEXT = CorpusFormat("fasttext", read, write)

"""fastText: one document per line, each label a word that begins with `__label__`, usually before the text.

A line without labels is a document without labels, so a file of plain texts, one per line, reads as fastText too. The
format holds no ids: the line number is the id."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO

from xmtc.data.document import Document
from xmtc.data.formats import Dimensions, Format
from xmtc.data.records import BadRecord, checked_labels
from xmtc.data.source import Source
from xmtc.errors import XmtcError

PREFIX = "__label__"
BLANKS = r" \t\v\f\r\n\0"  # what fastText itself splits at; a no-break space is part of a word
LABEL = re.compile(rf"(?<![^{BLANKS}]){PREFIX}([^{BLANKS}]*)[{BLANKS}]*")
BLANK = re.compile(rf"[{BLANKS}]")


def read(source: Source) -> Iterator[Document]:
    return source.documents(source.lines(), partial(parse, reads_labels=source.reads_labels, id_of=source.id_of))


def parse(line: str, number: int, reads_labels: bool = True, id_of: Callable[[int], str] = str) -> Document:
    if PREFIX not in line:
        return Document(id_of(number), line.strip(), [])
    labels = LABEL.findall(line) if reads_labels else []
    if "" in labels:
        raise BadRecord(f"found {PREFIX} without a name, expected {PREFIX}name")
    return Document(id_of(number), LABEL.sub("", line).strip(), checked_labels(labels, "labels", None))


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    def add(document: Document) -> None:
        stream.write(line_of(document).encode())

    yield add


def line_of(document: Document) -> str:
    """The document as one line; line breaks in its text become spaces."""
    for label in document.labels:
        if BLANK.search(label):
            raise _unfit(document, f"the label {label!r} with white space in it")
    if LABEL.search(document.text):
        raise _unfit(document, f"a word that begins with {PREFIX} in its text")
    text = re.sub(r"[\r\n]+", " ", document.text)
    if not document.labels and not text.strip():
        raise _unfit(document, "neither text nor labels")
    return " ".join([*(PREFIX + label for label in document.labels), text]) + "\n"


def _unfit(document: Document, trait: str) -> XmtcError:
    return XmtcError(f"Document {document.id!r} has {trait}, which a fastText line cannot hold; write jsonl instead.")


FASTTEXT = Format("fasttext", read, write)

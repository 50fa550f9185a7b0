"""A pair of plain files with a line per document: texts in one, labels with blanks between them in the other, as the
authors of AttentionXML publish theirs (`train_texts.txt` or `train_raw_texts.txt`, and `train_labels.txt`).

Both are named, as in "train_texts.txt,train_labels.txt"; or the texts alone, where the labels lie beside them under a
name that says so. A blank line is an empty text, or a document without labels. The files must have as many lines as
each other. The format holds no ids: the line number is the id."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import IO

from xmtc.data.document import Document
from xmtc.data.file_streams import COMPRESSIONS, read_lines, without_compression
from xmtc.data.formats import Dimensions, Format
from xmtc.data.records import BadRecord, checked_labels, split_labels
from xmtc.data.source import BYTE_ORDER_MARK, Source
from xmtc.errors import XmtcError

BETWEEN = re.compile(r"\.txt(?:\.gz|\.bz2|\.zst)?(,)", re.IGNORECASE)
TEXTS = re.compile(r"(?<![A-Za-z])(?:raw_)?text(s?)(?![A-Za-z])")  # in a name whose other half is "labels" or "label"


def named_files(path: str) -> tuple[str, ...]:
    """The two files that a path such as TEXTS.txt,LABELS.txt names; else the path itself."""
    comma = BETWEEN.search(path)
    if comma is None or os.path.exists(path):
        return (path,)
    return path[: comma.start(1)], path[comma.end(1) :]


def pair(path: str) -> tuple[str, str | None]:
    """The paths of the texts and of the labels; None if the labels are neither named nor found."""
    texts, *labels = named_files(path)
    if not labels and "," in path and not os.path.exists(path):  # of other names, where the format was named
        texts, *labels = path.split(",", 1)
    return texts, labels[0] if labels else labels_beside(texts)


def labels_beside(path: str) -> str | None:
    """The labels of a file of texts, where their names belong together: train_raw_texts.txt and train_labels.txt."""
    folder, name = os.path.split(path)
    plain = without_compression(name)
    found = TEXTS.search(plain)
    if found is None:
        return None

    labels = f"{plain[: found.start()]}label{found[1]}{plain[found.end() :]}"
    endings = (name.removeprefix(plain), "", *COMPRESSIONS)  # first of all compressed as the texts are
    candidates = (os.path.join(folder, labels + ending) for ending in endings)
    return next(filter(os.path.isfile, candidates), None)


def read(source: Source) -> Iterator[Document]:
    texts_path, labels_path = pair(source.path)
    texts = replace(source, path=texts_path)
    lines = texts.lines(keep_blank=True)
    if labels_path is None and source.labels_required:
        raise _without_labels(texts_path)
    if labels_path is None or not source.reads_labels:
        yield from texts.documents(lines, lambda text, number: Document(str(number), text.strip(), []))
        return

    labels = LabelLines(labels_path, source.fields.separator)
    for document in texts.documents(lines, partial(_document, labels)):
        if not labels.have_ended:
            yield document
    labels.read_to_end()
    if labels.number != texts.n_lines:
        own = "" if labels_path in source.path else f", or pass --input-format if {texts_path} holds labels itself"
        raise XmtcError(
            f"{texts_path} has {texts.n_lines} lines and {labels_path} has {labels.number}, expected one line per "
            f"document in both; check that they belong together{own}."
        )


class LabelLines:
    """The labels of document after document."""

    def __init__(self, path: str, separator: str | None) -> None:
        self.name = os.path.basename(path)
        self.separator = separator
        self.lines = read_lines(path)
        self.number = 0  # lines read so far
        self.have_ended = False  # before the texts did

    def of(self, number: int) -> list[str]:
        """The labels in a line; lines before it are passed over, because their texts were refused."""
        raw = b""
        while self.number < number and not self.have_ended:
            line = next(self.lines, None)
            self.have_ended = line is None
            raw = line or b""
            self.number += not self.have_ended
        return checked_labels(self.split(raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw), "labels", None)

    def split(self, raw: bytes) -> list[str]:
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            found = f"{self.name} holds byte 0x{raw[error.start]:02x} in this line, which is no UTF-8"
            raise BadRecord(f"{found}, expected UTF-8 text") from None
        return line.split() if self.separator is None else split_labels(line, self.separator)

    def read_to_end(self) -> None:
        self.number += sum(1 for _ in self.lines)


def _document(labels: LabelLines, text: str, number: int) -> Document:
    return Document(str(number), text.strip(), labels.of(number))


def _without_labels(path: str) -> XmtcError:
    return XmtcError(
        f"{path} holds texts, and no file beside it has the name of their labels, as train_labels.txt is that of "
        f"train_texts.txt; give both as {path},LABELS.txt."
    )


@contextmanager
def write(texts: IO[bytes], labels: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    def add(document: Document) -> None:
        for label in document.labels:
            if label.split() != [label]:
                raise XmtcError(
                    f"Document {document.id!r} has the label {label!r} with white space in it, which a line of labels "
                    f"cannot hold; write jsonl instead."
                )
        texts.write(re.sub(r"[\r\n]+", " ", document.text).encode() + b"\n")
        labels.write(" ".join(document.labels).encode() + b"\n")

    yield add


PAIRED = Format("paired", read, write, files=pair)

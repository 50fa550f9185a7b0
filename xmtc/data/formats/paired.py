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

from xmtc.data.corpus_input import BYTE_ORDER_MARK, CorpusInput
from xmtc.data.document import Document
from xmtc.data.file_streams import COMPRESSIONS, read_lines, strip_compression_extension
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.records import BadRecord, split_labels, validate_label_names
from xmtc.errors import XmtcError

PAIR_COMMA_PATTERN = re.compile(r"\.txt(?:\.gz|\.bz2|\.zst)?(,)", re.IGNORECASE)
TEXTS_NAME_PATTERN = re.compile(
    r"(?<![A-Za-z])(?:raw_)?text(s?)(?![A-Za-z])"
)  # in a name whose other half is "labels" or "label"


def split_path_pair(path: str) -> tuple[str, ...]:
    """The two files that a path such as TEXTS.txt,LABELS.txt names; else the path itself."""
    comma = PAIR_COMMA_PATTERN.search(path)
    if comma is None or os.path.exists(path):
        return (path,)
    return path[: comma.start(1)], path[comma.end(1) :]


def find_pair(path: str) -> tuple[str, str | None]:
    """The paths of the texts and of the labels; None if the labels are neither named nor found."""
    texts, *labels = split_path_pair(path)
    if not labels and "," in path and not os.path.exists(path):  # of other names, where the format was named
        texts, *labels = path.split(",", 1)
    return texts, labels[0] if labels else find_paired_labels(texts)


def find_paired_labels(path: str) -> str | None:
    """The labels of a file of texts, where their names belong together: train_raw_texts.txt and train_labels.txt."""
    folder, name = os.path.split(path)
    plain = strip_compression_extension(name)
    found = TEXTS_NAME_PATTERN.search(plain)
    if found is None:
        return None

    labels = f"{plain[: found.start()]}label{found[1]}{plain[found.end() :]}"
    endings = (name.removeprefix(plain), "", *COMPRESSIONS)  # first of all compressed as the texts are
    candidates = (os.path.join(folder, labels + ending) for ending in endings)
    return next(filter(os.path.isfile, candidates), None)


def read(source: CorpusInput) -> Iterator[Document]:
    texts_path, labels_path = find_pair(source.path)
    texts = replace(source, path=texts_path)
    lines = texts.read_text_lines(keep_blank=True)
    if labels_path is None and source.labels_required:
        raise _missing_labels_error(texts_path)
    if labels_path is None or not source.should_read_labels:
        yield from texts.parse_documents(lines, lambda text, number: Document(str(number), text.strip(), []))
        return

    labels = LabelFileReader(labels_path, source.fields.separator)
    for document in texts.parse_documents(lines, partial(_make_document, labels)):
        if not labels.has_ended:
            yield document
    labels.read_to_end()
    if labels.n_lines_read != texts.n_lines:
        own = "" if labels_path in source.path else f", or pass --input-format if {texts_path} holds labels itself"
        raise XmtcError(
            f"{texts_path} has {texts.n_lines} lines and {labels_path} has {labels.n_lines_read}, expected one line per "
            f"document in both; check that they belong together{own}."
        )


class LabelFileReader:
    """The labels of document after document."""

    def __init__(self, path: str, separator: str | None) -> None:
        self.name = os.path.basename(path)
        self.separator = separator
        self.lines = read_lines(path)
        self.n_lines_read = 0  # lines read so far
        self.has_ended = False  # before the texts did

    def read_labels(self, number: int) -> list[str]:
        """The labels in a line; lines before it are passed over, because their texts were refused."""
        raw = b""
        while self.n_lines_read < number and not self.has_ended:
            line = next(self.lines, None)
            self.has_ended = line is None
            raw = line or b""
            self.n_lines_read += not self.has_ended
        return validate_label_names(
            self.parse_label_line(raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw), "labels", None
        )

    def parse_label_line(self, raw: bytes) -> list[str]:
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            found = f"{self.name} holds byte 0x{raw[error.start]:02x} in this line, which is no UTF-8"
            raise BadRecord(f"{found}, expected UTF-8 text") from None
        return line.split() if self.separator is None else split_labels(line, self.separator)

    def read_to_end(self) -> None:
        self.n_lines_read += sum(1 for _ in self.lines)


def _make_document(labels: LabelFileReader, text: str, number: int) -> Document:
    return Document(str(number), text.strip(), labels.read_labels(number))


def _missing_labels_error(path: str) -> XmtcError:
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


PAIRED = CorpusFormat("paired", read, write, resolve_files=find_pair)

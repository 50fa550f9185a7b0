"""A pair of text files with a line per document: texts in one, labels separated by blanks in the other.

The data sets of AttentionXML have this format (`train_texts.txt` or `train_raw_texts.txt`, and `train_labels.txt`).
The path names both files, as in "train_texts.txt,train_labels.txt", or only the texts if the name of the label file can
be derived from it. A blank line is an empty text, or a document without labels. Both files must have the same number of
lines. The id of a document is its line number."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.encodings import describe_invalid_byte
from xmtc.data.file_streams import COMPRESSIONS, read_lines, strip_compression_extension
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.records import BadRecord, split_labels, validate_label_names
from xmtc.errors import XmtcError

PAIR_COMMA_PATTERN = re.compile(r"\.txt(?:\.gz|\.bz2|\.zst)?(,)", re.IGNORECASE)
# Part of the name of a text file; "label" or "labels" replaces it in the name of the label file.
TEXTS_NAME_PATTERN = re.compile(r"(?<![A-Za-z])(?:raw_)?text(s?)(?![A-Za-z])")


def split_path_pair(path: str) -> tuple[str, ...]:
    """Return the two paths in a path such as TEXTS.txt,LABELS.txt; otherwise the path alone."""
    comma = PAIR_COMMA_PATTERN.search(path)
    if comma is None or os.path.exists(path):
        return (path,)
    return path[: comma.start(1)], path[comma.end(1) :]


def find_pair(path: str) -> tuple[str, str | None]:
    """Return the paths of the texts and of the labels; None if the labels are neither named nor found."""
    texts, *labels = split_path_pair(path)
    if not labels and "," in path and not os.path.exists(path):  # other extensions, if the user set the format
        texts, *labels = path.split(",", 1)
    return texts, labels[0] if labels else find_paired_labels(texts)


def find_paired_labels(path: str) -> str | None:
    """Return the existing label file of a text file: train_labels.txt for train_raw_texts.txt; else None."""
    folder, name = os.path.split(path)
    stem = strip_compression_extension(name)
    match = TEXTS_NAME_PATTERN.search(stem)
    if match is None:
        return None

    labels = f"{stem[: match.start()]}label{match[1]}{stem[match.end() :]}"
    extensions = (name.removeprefix(stem), "", *COMPRESSIONS)  # preferably compressed as the texts are
    candidates = (os.path.join(folder, labels + extension) for extension in extensions)
    return next(filter(os.path.isfile, candidates), None)


def read(source: CorpusInput) -> Iterator[Document]:
    texts_path, labels_path = find_pair(source.path)
    texts = replace(source, path=texts_path)
    lines = texts.read_text_lines(keep_blank=True)
    if labels_path is None and source.labels_required:
        raise _missing_labels_error(texts_path)
    if labels_path is None or not source.should_read_labels:
        yield from texts.parse_documents(lines, lambda text, number: Document(source.make_id(number), text.strip(), []))
        return

    labels = LabelFileReader(labels_path, source.fields.separator)

    def make_document(text: str, number: int) -> Document:
        return Document(source.make_id(number), text.strip(), labels.read_labels(number))

    for document in texts.parse_documents(lines, make_document):
        if not labels.has_ended:
            yield document
    labels.read_to_end()
    if labels.n_lines_read != texts.n_lines:
        hint = "" if labels_path in source.path else f", or pass --input-format if {texts_path} contains the labels"
        raise XmtcError(
            f"{texts_path} has {texts.n_lines} lines and {labels_path} has {labels.n_lines_read}, expected one line "
            f"per document in both; check that they are a pair{hint}."
        )


class LabelFileReader:
    """Reader of the label file, line by line."""

    def __init__(self, path: str, separator: str | None) -> None:
        self.name = os.path.basename(path)
        self.separator = separator
        self.lines = read_lines(path)
        self.n_lines_read = 0
        self.has_ended = False  # the file has fewer lines than were requested

    def read_labels(self, number: int) -> list[str]:
        """Return the labels in a line; lines before it are skipped, because their texts were bad."""
        raw = b""
        while self.n_lines_read < number and not self.has_ended:
            line = next(self.lines, None)
            self.has_ended = line is None
            raw = line or b""
            self.n_lines_read += not self.has_ended
        return validate_label_names(self.parse_label_line(raw), "labels", None)

    def parse_label_line(self, raw: bytes) -> list[str]:
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise BadRecord(describe_invalid_byte(error, place=f" in this line of {self.name}")) from None
        return line.split() if self.separator is None else split_labels(line, self.separator)

    def read_to_end(self) -> None:
        self.n_lines_read += sum(1 for _ in self.lines)


def _missing_labels_error(path: str) -> XmtcError:
    return XmtcError(
        f"{path} contains texts, and there is no label file with a matching name, such as train_labels.txt for "
        f"train_texts.txt; pass both as {path},LABELS.txt."
    )


@contextmanager
def write(texts: IO[bytes], labels: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    def add(document: Document) -> None:
        for label in document.labels:
            if label.split() != [label]:
                raise XmtcError(
                    f"Document {document.id!r} has the label {label!r} with white space, which the paired format "
                    f"cannot represent; write jsonl instead."
                )
        texts.write(re.sub(r"[\r\n]+", " ", document.text).encode() + b"\n")
        labels.write(" ".join(document.labels).encode() + b"\n")

    yield add


PAIRED = CorpusFormat("paired", read, write, resolve_files=find_pair)

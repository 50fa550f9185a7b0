"""The XMC repository's sparse format: a header `documents features labels`, then `label,label feature:value …` lines.

A line that begins with a blank has no labels; a line of labels alone has no features; an empty line has neither, and is
a document. Labels and features are numbered from 0. The format holds no ids: the line number is the id."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import IO

from xmtc.data.corpus_input import BYTE_ORDER_MARK, CorpusInput, Line
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.formats.feature_lines import parse_features, parse_labels, split_line
from xmtc.data.records import BadRecord, quote_text
from xmtc.errors import XmtcError

MAX_DIGITS = 18  # of a number in 64 bits


def read(source: CorpusInput) -> Iterator[Document]:
    n_docs, n_features, n_labels = _read_header(source)

    def label_number(label: str) -> int:
        if not (is_number(label) and int(label) < n_labels):
            raise BadRecord(f"found the label {quote_text(label)}, expected a number below the header's {n_labels}")
        return int(label)

    def parse(line: str, number: int) -> Document:
        if number > n_docs + 1:
            raise BadRecord(f"this is document {number - 1}, expected {n_docs} as in the header")
        labels, features = split_line(line)
        names = parse_labels(labels, label_number) if source.should_read_labels else []
        return Document(str(number), "", names, parse_features(features, n_features))

    yield from source.parse_documents(_read_body(source, n_docs), parse)
    if source.n_lines < n_docs + 1:
        raise XmtcError(
            f"{source.name} ends after {source.n_lines - 1} documents, expected {n_docs} as in the header; "
            f"fetch it again, or fix the header."
        )


def read_dimensions(source: CorpusInput) -> Dimensions:
    _, n_features, n_labels = _read_header(source)
    return Dimensions(n_features, n_labels)


def _read_header(source: CorpusInput) -> tuple[int, int, int]:
    with closing(source.peek()) as lines:
        first = next(lines, b"").removeprefix(BYTE_ORDER_MARK).decode(errors="replace")
    numbers = first.split()
    if len(numbers) != 3 or not all(is_number(number) for number in numbers):
        raise XmtcError(
            f"{source.name}, line 1: found {quote_text(first.strip())}, "
            f"expected the header `documents features labels`; add it, "
            f"or pass --input-format svmlight if there is none."
        )
    n_docs, n_features, n_labels = map(int, numbers)
    return n_docs, n_features, n_labels


def is_number(word: str) -> bool:
    """Whether a word is a whole number of a size that a file can have: Python reads no more than 4,300 digits."""
    return word.isdecimal() and word.isascii() and len(word) <= MAX_DIGITS


def _read_body(source: CorpusInput, n_docs: int) -> Iterator[Line]:
    for line in source.read_text_lines(keep_blank=True):
        is_header, is_trailing = line.number == 1, line.number > n_docs + 1 and line.text.isspace()
        if not is_header and not is_trailing:
            yield line


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    """The body is kept in a temporary file, because the header holds counts that are known only at the end."""
    n_docs = 0
    n_features, n_labels = dimensions.n_features or 0, dimensions.n_labels or 0

    with tempfile.TemporaryFile() as body:

        def add(document: Document) -> None:
            nonlocal n_docs, n_features, n_labels
            columns, values = _require_features(document)

            n_docs += 1
            n_features = max(n_features, int(columns[-1]) + 1 if len(columns) else 0)
            n_labels = max([n_labels, *(_require_label_number(label, document) + 1 for label in document.labels)])

            words = [f"{column}:{_format_value(value)}" for column, value in zip(columns, values, strict=True)]
            body.write(" ".join([",".join(document.labels), *words]).encode() + b"\n")

        yield add

        stream.write(f"{n_docs} {n_features} {n_labels}\n".encode())
        body.seek(0)
        shutil.copyfileobj(body, stream)


def _require_features(document: Document) -> tuple:
    if document.features is None:
        raise XmtcError(
            f"Document {document.id!r} holds text, and the sparse format holds features; "
            f"write jsonl, csv, tsv, parquet or fasttext instead."
        )
    return document.features


def _require_label_number(label: str, document: Document) -> int:
    if not is_number(label):
        raise XmtcError(
            f"Document {document.id!r} has the label {label!r}, and the sparse format holds label numbers from 0 on; "
            f"number the labels first."
        )
    return int(label)


def _format_value(value: float) -> str:
    return str(value).removesuffix(".0")  # of a float32, the fewest digits that read back as the same float32


SPARSE = CorpusFormat("sparse", read, write, has_features=True, read_dimensions=read_dimensions)

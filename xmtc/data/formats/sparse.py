"""Sparse format of the Extreme Classification Repository.

A header `documents features labels` is followed by `label,label feature:value …` lines. A line that starts with a
blank has no labels, a line of labels only has no features, and an empty line is a document with neither. Labels and
features are numbered from 0. The id of a document is its line number."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import IO

from xmtc.data.corpus_input import CorpusInput, Line
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.formats.feature_lines import parse_features, parse_labels, split_line
from xmtc.data.records import BadRecord, quote_text
from xmtc.errors import XmtcError

MAX_DIGITS = 18  # of a 64-bit number


def read(source: CorpusInput) -> Iterator[Document]:
    n_docs, n_features, n_labels = _read_header(source)

    def parse_label(label: str) -> int:
        if not (is_number(label) and int(label) < n_labels):
            raise BadRecord(f"found the label {quote_text(label)}, expected a number below the header's {n_labels}")
        return int(label)

    def parse(line: str, number: int) -> Document:
        if number > n_docs + 1:
            raise BadRecord(f"this is document {number - 1}, expected {n_docs} as in the header")
        labels, features = split_line(line)
        names = parse_labels(labels, parse_label) if source.should_read_labels else []
        return Document(source.make_id(number), "", names, parse_features(features, n_features))

    yield from source.parse_documents(_read_body(source, n_docs), parse)
    if source.n_lines < n_docs + 1:
        raise XmtcError(
            f"{source.name} ends after {source.n_lines - 1} documents, expected {n_docs} as in the header; "
            f"download it again, or fix the header."
        )


def read_dimensions(source: CorpusInput) -> Dimensions:
    _, n_features, n_labels = _read_header(source)
    return Dimensions(n_features, n_labels)


def _read_header(source: CorpusInput) -> tuple[int, int, int]:
    with closing(source.peek()) as lines:
        first = next(lines, b"").decode(errors="replace")
    numbers = first.split()
    if len(numbers) != 3 or not all(is_number(number) for number in numbers):
        raise XmtcError(
            f"{source.name}, line 1: found {quote_text(first.strip())}, "
            f"expected the header `documents features labels`; add it, "
            f"or pass --input-format svmlight for a file without a header."
        )
    n_docs, n_features, n_labels = map(int, numbers)
    return n_docs, n_features, n_labels


def is_number(word: str) -> bool:
    """Return True for a non-negative whole number that fits in 64 bits."""
    return word.isdecimal() and word.isascii() and len(word) <= MAX_DIGITS


def _read_body(source: CorpusInput, n_docs: int) -> Iterator[Line]:
    for line in source.read_text_lines(keep_blank=True):
        is_header, is_trailing = line.number == 1, line.number > n_docs + 1 and line.text.isspace()
        if not is_header and not is_trailing:
            yield line


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    """Write the body to a temporary file first, because the counts of the header are known only at the end."""
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
            f"Document {document.id!r} has text, but the sparse format is for features; "
            f"write jsonl, csv, tsv, parquet or fasttext instead."
        )
    return document.features


def _require_label_number(label: str, document: Document) -> int:
    if not is_number(label):
        raise XmtcError(
            f"Document {document.id!r} has the label {label!r}, but the sparse format needs label numbers from 0; "
            f"number the labels first."
        )
    return int(label)


def _format_value(value: float) -> str:
    return str(value).removesuffix(".0")  # str gives the fewest digits that restore the float32


SPARSE = CorpusFormat("sparse", read, write, has_features=True, read_dimensions=read_dimensions)

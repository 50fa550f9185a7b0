"""JSON Lines: one object per line, such as {"id": "7", "text": "…", "labels": ["…", "…"]}.

Other fields are passed over. Lines of white space alone are no documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO

from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.formats.json_blocks import is_arrow_readable, read_in_blocks
from xmtc.data.records import BadRecord, describe_json_value, load_json
from xmtc.data.source import CorpusInput


def read(source: CorpusInput) -> Iterator[Document]:
    return parse_lines(source, source.read_raw_lines())


def read_batches(source: CorpusInput, run: Run) -> Iterator[Document | DocumentBatch]:
    return read_in_blocks(source, parse_lines, run) if is_arrow_readable(source) else read(source)


def parse_lines(source: CorpusInput, lines: Iterable[bytes], first: int = 1) -> Iterator[Document]:
    """The documents on lines, of which the first has this number."""
    document_of = source.make_record_parser(None)

    def parse(line: str, number: int) -> Document:
        record = load_json(line)
        if not isinstance(record, dict):
            raise BadRecord(f"this line is {describe_json_value(record)}, expected one JSON object per line")
        return document_of(record, number)

    yield from source.parse_documents(source.decode_text_lines(lines, first), parse)
    if sentence := document_of.describe_missing_fields():
        source.notifier.warn(f"{source.name}: {sentence}")


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    def add(document: Document) -> None:
        record = {"id": document.id, "text": document.text, "labels": document.labels}
        stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")

    yield add


JSONL = CorpusFormat("jsonl", read, write, read_batches=read_batches)

"""JSON Lines: one object per line, such as {"id": "7", "text": "…", "labels": ["…", "…"]}.

Other fields are passed over. Lines of white space alone are no documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO

from xmtc.core.run import Run
from xmtc.data.batch import Batch
from xmtc.data.document import Document
from xmtc.data.formats import Dimensions, Format
from xmtc.data.formats.json_blocks import is_plain, read_in_blocks
from xmtc.data.records import BadRecord, in_words, load_json
from xmtc.data.source import Source


def read(source: Source) -> Iterator[Document]:
    return read_lines(source, source.raw_lines())


def read_batches(source: Source, run: Run) -> Iterator[Document | Batch]:
    return read_in_blocks(source, read_lines, run) if is_plain(source) else read(source)


def read_lines(source: Source, lines: Iterable[bytes], first: int = 1) -> Iterator[Document]:
    """The documents on lines, of which the first has this number."""
    document_of = source.records(None)

    def parse(line: str, number: int) -> Document:
        record = load_json(line)
        if not isinstance(record, dict):
            raise BadRecord(f"this line is {in_words(record)}, expected one JSON object per line")
        return document_of(record, number)

    yield from source.documents(source.numbered(lines, first), parse)
    if sentence := document_of.suspicion():
        source.voice.suspect(f"{source.name}: {sentence}")


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    def add(document: Document) -> None:
        record = {"id": document.id, "text": document.text, "labels": document.labels}
        stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")

    yield add


JSONL = Format("jsonl", read, write, read_batches=read_batches)

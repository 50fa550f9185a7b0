"""JSON Lines by all cores: blocks of lines are read ahead, and parsed by pyarrow, which leaves Python to others
meanwhile and makes arrays of them instead of objects.

It takes what is plain: a text, a list of names and an id that is a string or a whole number, on every line of a block.
A block that has anything else, be it only a blank line, is read line by line, as it always was: what is right and what
is wrong, and how that is said, is decided there alone."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np

from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch, Texts, as_int32_view
from xmtc.data.corpus_input import BadLine, CorpusInput
from xmtc.data.document import Document
from xmtc.data.encodings import UTF8
from xmtc.data.file_prefetch import PrefetchedFile, take_prefetched
from xmtc.data.file_streams import NEWLINE, LineBlock, read_blocks
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.records import BadRecord, Fields, describe_json_value, load_json

MAX_ARROW_BYTES = 2**31 - 1  # bytes, from which on pyarrow counts no more: a single line may be as long
ParseLines = Callable[[CorpusInput, Iterable[bytes], int], Iterator[Document]]


class BlockResult(NamedTuple):
    """What came of a block."""

    documents: list[Document] | list[DocumentBatch]
    bad_lines: list[BadLine]


def is_arrow_readable(source: CorpusInput) -> bool:
    """Whether there is something for pyarrow to look for. A pipe is not read ahead: whoever waits for it could not be
    interrupted."""
    fields = source.fields
    names = {*fields.text_names, fields.labels, fields.id}
    is_told_apart = len(names) == 3 and None not in names
    return is_told_apart and fields.separator is None and not fields.keep and is_utf8_file(source)


def is_utf8_file(source: CorpusInput) -> bool:
    return source.pipe is None and source.line_encoding == UTF8


def read_in_blocks(source: CorpusInput, parse_lines: ParseLines, run: Run) -> Iterator[Document | DocumentBatch]:
    """The documents of a file; bad lines are refused in their order. Whatever ends it, the file is closed: an error
    that somebody holds would else hold the reading thread, too."""
    with closing(open_blocks(source, run)) as blocks:
        for documents, bad in run.without_output().map(partial(read_block, source, parse_lines), blocks, "reading"):
            for line in bad:
                source.on_bad_line(line)
            yield from documents


def open_blocks(source: CorpusInput, run: Run) -> PrefetchedFile | Generator[LineBlock]:
    """Where their reading has begun already, it goes on."""
    fetched = take_prefetched(source.path, source.on_read) if source.encoding is None else None
    return fetched or run.prefetch_items(read_blocks(source.path, source.on_read, source.encoding))


def read_block(source: CorpusInput, parse_lines: ParseLines, block: LineBlock) -> BlockResult:
    batch = parse_block(block, source.fields)
    if batch is not None:
        return BlockResult([batch], [])
    bad: list[BadLine] = []
    here = replace(source, on_bad_line=bad.append)
    return BlockResult(list(parse_lines(here, io.BytesIO(block.lines), block.first_line_number)), bad)


def parse_block(block: LineBlock, fields: Fields) -> DocumentBatch | None:
    """The documents of a block; None where not every line is plain."""
    is_asked = len(block.lines) < MAX_ARROW_BYTES and has_only_objects(block.lines)
    for table in read_arrow_tables(block.lines, fields) if is_asked else ():
        text, labels, id = (column.combine_chunks() for column in table.itercolumns())
        has_id = id.null_count == 0 or fields.id == Fields.id
        if table.num_rows == block.n_lines and has_id and not (text.null_count or labels.null_count):
            return to_document_batch(text, labels)
    return None


def has_only_objects(lines: bytearray) -> bool:
    """Whether every line does. pyarrow 26 ends the process where the first value is null."""
    content = np.frombuffer(lines, np.uint8)
    begins = np.flatnonzero(content[:-1] == NEWLINE) + 1
    return content[0] == ord("{") and bool((content[begins] == ord("{")).all())


def read_arrow_tables(lines: bytearray, fields: Fields) -> Iterator[Any]:
    """A block as pyarrow reads it, with ids that are strings, or else numbers. Of the encoding it looks at nothing by
    itself, neither in the lines nor of what their escapes stand for."""
    import pyarrow
    from pyarrow import json

    whole = pyarrow.py_buffer(np.array([0, len(lines)], np.int32))
    for kind in (pyarrow.string(), pyarrow.int64()):
        names = pyarrow.list_(pyarrow.string())
        columns = pyarrow.schema([(fields.text, pyarrow.string()), (fields.labels, names), (fields.id, kind)])
        try:
            pyarrow.StringArray.from_buffers(1, whole, pyarrow.py_buffer(lines)).validate(full=True)
            table = json.read_json(
                pyarrow.BufferReader(lines),
                json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                json.ParseOptions(explicit_schema=columns, unexpected_field_behavior="ignore"),
            ).select([fields.text, fields.labels, fields.id])
            table.validate(full=True)
        except pyarrow.ArrowInvalid:
            continue
        yield table


def to_document_batch(text: Any, labels: Any) -> DocumentBatch | None:
    """Arrays of pyarrow as a batch; None where a label has no name, or a document has one twice."""
    found = labels.flatten().dictionary_encode()
    names, starts = found.dictionary, get_arrow_offsets(labels)
    if found.null_count or not np.diff(get_arrow_offsets(names)).all():
        return None
    numbers = as_int32_view(found.indices, len(found)).copy()
    places = np.repeat(np.arange(len(labels)) * len(names), np.diff(starts)) + numbers
    places.sort()
    if (places[1:] == places[:-1]).any():
        return None
    return DocumentBatch(to_texts(text), names, numbers, starts - starts[0])


def to_texts(text: Any) -> Texts:
    """No copy: many threads that write to new memory stand in each other's way."""
    content, ends = text.buffers()[2], get_arrow_offsets(text)
    return Texts(np.frombuffer(content or b"", np.uint8)[ends[0] : ends[-1]], ends - ends[0])


def get_arrow_offsets(array: Any) -> np.ndarray:
    """Where each of pyarrow's strings begins and ends among their bytes, or each of its lists among their items."""
    return as_int32_view(array, len(array) + 1).astype(np.int64)


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

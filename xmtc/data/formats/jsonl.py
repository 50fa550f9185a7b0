"""JSON Lines, read line by line or, for training, in blocks by all threads.

pyarrow parses a block without the interpreter lock and produces arrays instead of objects. It accepts only simple
blocks: every line has a text, a list of label names, and an id that is a string or a whole number. Any other block,
for example one with a blank line, is read line by line, so that errors and messages come from one place."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
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
from xmtc.data.records import BadRecord, Fields, RecordParser, describe_json_value, load_json, match_name

MAX_ARROW_BYTES = 2**31 - 1  # limit of pyarrow's 32-bit offsets; a single line may exceed it


class BlockResult(NamedTuple):
    """Documents and bad lines of a block."""

    documents: list[Document] | list[DocumentBatch]
    bad_lines: list[BadLine]


def is_arrow_readable(source: CorpusInput) -> bool:
    """Return True if pyarrow is installed and can read the fields, and the input is a UTF-8 file.

    A pipe is not read in the background, because a blocked read could not be interrupted."""
    fields = source.fields
    names = {*fields.text_names, fields.labels, fields.id}
    has_three_fields = len(names) == 3 and fields.text in names and None not in names and not fields.keep
    is_utf8_file = source.pipe is None and source.line_encoding == UTF8
    return has_three_fields and fields.separator is None and is_utf8_file and find_spec("pyarrow") is not None


def read_in_blocks(source: CorpusInput, run: Run) -> Iterator[Document | DocumentBatch]:
    """Yield batches of documents, or documents of blocks that pyarrow cannot read; report bad lines in order."""
    # The file is closed explicitly: a stored exception would otherwise keep the reading thread alive.
    with closing(open_blocks(source, run)) as blocks:
        for documents, bad_lines in run.without_output().map(partial(read_block, source), blocks, "reading"):
            for bad_line in bad_lines:
                source.on_bad_line(bad_line)
            yield from documents


def open_blocks(source: CorpusInput, run: Run) -> PrefetchedFile | Generator[LineBlock]:
    """Return the blocks of lines, from the prefetched file if there is one."""
    prefetched = take_prefetched(source.path, source.on_read) if source.encoding is None else None
    return prefetched or run.prefetch_items(read_blocks(source.path, source.on_read, source.encoding))


def read_block(source: CorpusInput, block: LineBlock) -> BlockResult:
    batch = parse_block(block, source.fields)
    if batch is not None:
        return BlockResult([batch], [])
    bad_lines: list[BadLine] = []
    block_source = replace(source, on_bad_line=bad_lines.append)
    documents = list(parse_lines(block_source, io.BytesIO(block.lines), block.first_line_number))
    return BlockResult(documents, bad_lines)


def parse_block(block: LineBlock, fields: Fields) -> DocumentBatch | None:
    """Parse a block with pyarrow; return None if not all lines are simple."""
    is_candidate = len(block.lines) < MAX_ARROW_BYTES and has_only_objects(block.lines)
    for table in read_arrow_tables(block.lines, fields) if is_candidate else ():
        text, labels, id = (column.combine_chunks() for column in table.itercolumns())
        has_id = id.null_count == 0 or fields.id == Fields.id
        if table.num_rows == block.n_lines and has_id and not (text.null_count or labels.null_count):
            return to_document_batch(text, labels, id)
    return None


def has_only_objects(lines: bytearray) -> bool:
    """Return True if every line starts with "{". pyarrow 26 crashes if the first value is null."""
    content = np.frombuffer(lines, np.uint8)
    starts = np.flatnonzero(content[:-1] == NEWLINE) + 1
    return content[0] == ord("{") and bool((content[starts] == ord("{")).all())


def read_arrow_tables(lines: bytearray, fields: Fields) -> Iterator[Any]:
    """Yield the block as a pyarrow table with string ids, then with integer ids, as far as it can be read so.

    UTF-8 is validated explicitly, because pyarrow's JSON reader checks neither the lines nor their escapes."""
    import pyarrow
    from pyarrow import json

    offsets = pyarrow.py_buffer(np.array([0, len(lines)], np.int32))
    string = pyarrow.string()
    for id_type in (string, pyarrow.int64()):
        schema = pyarrow.schema([(fields.text, string), (fields.labels, pyarrow.list_(string)), (fields.id, id_type)])
        try:
            pyarrow.StringArray.from_buffers(1, offsets, pyarrow.py_buffer(lines)).validate(full=True)
            table = json.read_json(
                pyarrow.BufferReader(lines),
                json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            ).select([fields.text, fields.labels, fields.id])
            table.validate(full=True)
        except pyarrow.ArrowInvalid:
            continue
        yield table


def to_document_batch(text: Any, labels: Any, ids: Any = None) -> DocumentBatch | None:
    """Convert pyarrow arrays to a batch; return None if a label is empty or null, or a document repeats one."""
    encoded = labels.flatten().dictionary_encode()
    names, offsets = encoded.dictionary, get_arrow_offsets(labels)
    if encoded.null_count or not np.diff(get_arrow_offsets(names)).all():
        return None
    label_ids = as_int32_view(encoded.indices, len(encoded)).copy()
    # One number for each pair of document and label, so that equal neighbours are repeated labels.
    pairs = np.repeat(np.arange(len(labels)) * len(names), np.diff(offsets)) + label_ids
    pairs.sort()
    if (pairs[1:] == pairs[:-1]).any():
        return None
    return DocumentBatch(to_texts(text), names, label_ids, offsets - offsets[0], ids)


def to_texts(text: Any) -> Texts:
    """Return the strings without a copy: allocation by many threads does not scale."""
    content, offsets = text.buffers()[2], get_arrow_offsets(text)
    return Texts(np.frombuffer(content or b"", np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0])


def get_arrow_offsets(array: Any) -> np.ndarray:
    """Return the int64 offsets of a pyarrow array of strings or lists, shape (n + 1,)."""
    return as_int32_view(array, len(array) + 1).astype(np.int64)


def is_feedback(record: dict[str, Any], fields: Fields) -> bool:
    """Return True for a line of feedback from the web page, which has its own field names."""
    has_named_fields = any(match_name(record, name) for name in fields.text_names)
    return "rejected" in record and "text" in record and not (fields.text != Fields.text and has_named_fields)


def read(source: CorpusInput) -> Iterator[Document]:
    return parse_lines(source, source.read_raw_lines())


def read_batches(source: CorpusInput, run: Run) -> Iterator[Document | DocumentBatch]:
    return read_in_blocks(source, run) if is_arrow_readable(source) else read(source)


def make_object_parser(source: CorpusInput, parse_record: RecordParser) -> Callable[[Any, int], Document]:
    """Return a parser of JSON objects; feedback of the web page has its own fields."""
    feedback = replace(source, fields=Fields(labels=source.fields.labels and Fields.labels, keep=source.fields.keep))
    parse_feedback = feedback.make_record_parser(None)

    def parse(record: Any, number: int) -> Document:
        if not isinstance(record, dict):
            raise BadRecord(f"this line is {describe_json_value(record)}, expected one JSON object per line")
        return (parse_feedback if is_feedback(record, source.fields) else parse_record)(record, number)

    return parse


def parse_lines(source: CorpusInput, lines: Iterable[bytes], first: int = 1) -> Iterator[Document]:
    """Yield the documents of lines that are numbered from `first`."""
    parse_record = source.make_record_parser(None)
    parse_object = make_object_parser(source, parse_record)

    def parse(line: str, number: int) -> Document:
        return parse_object(load_json(line), number)

    yield from source.parse_documents(source.decode_text_lines(lines, first), parse)
    if problem := parse_record.describe_missing_fields():
        source.notifier.warn(f"{source.name}: {problem}")


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    def add(document: Document) -> None:
        record = {"id": document.id, "text": document.text, "labels": document.labels}
        stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")

    yield add


JSONL = CorpusFormat("jsonl", read, write, read_batches=read_batches)

"""What a model has answered, as people and programs want it: a file for each kind of file, and one for terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from itertools import islice

from xmtc.data.file_streams import STANDARD_STREAM, writing
from xmtc.data.format_detection import extension_of
from xmtc.errors import XmtcError
from xmtc.output.table import Answer, AnswerTable, Column, Record, RecordTable, Write

__all__ = [
    "FORMATS", "Answer", "AnswerTable", "Column", "Record", "Write", "format_by_name", "format_of", "write_records",
    "writer_of", "writing_answers",
]  # fmt: skip

FORMATS = {
    "jsonl": "xmtc.output.text:json_lines",
    "csv": "xmtc.output.text:csv_rows",
    "tsv": "xmtc.output.text:tsv_rows",
    "xlsx": "xmtc.output.workbook:workbook",
    "parquet": "xmtc.output.parquet:parquet",
}
TERMINAL = "terminal"  # what is no format of a file
WRITERS = {**FORMATS, TERMINAL: "xmtc.output.terminal:terminal"}
BINARY = ("xlsx", "parquet")
EXTENSIONS = {f".{name}": name for name in FORMATS} | {".ndjson": "jsonl", ".tab": "tsv", ".pq": "parquet"}
Writer = Callable[..., AbstractContextManager[Write]]
MARKED = ("csv", "tsv")  # which may begin with a byte order mark
TOGETHER = 10_000  # records that are written at a time


def format_of(path: str, named: str | None, on_terminal: bool = False) -> str:
    """The format to write: the one that is named, or else what the name of the file says; for people, a table."""
    if named is not None and named not in FORMATS:
        raise XmtcError(f"--format {named} is not known; expected {in_a_row(FORMATS)}.")
    if on_terminal and named in BINARY:
        raise XmtcError(f"{named} is nothing that a terminal can show; name a file with -o, such as answers.{named}.")
    if named is not None:
        return named
    if path == STANDARD_STREAM:
        return TERMINAL if on_terminal else "jsonl"
    return format_by_name(path, ", or --format")


def format_by_name(path: str, otherwise: str = "") -> str:
    """What the name of a file says."""
    if extension_of(path) not in EXTENSIONS:
        expected = f"expected a name that ends with {in_a_row(EXTENSIONS)}{otherwise}"
        raise XmtcError(f"{path} does not say which format to write; {expected}.")
    return EXTENSIONS[extension_of(path)]


def in_a_row(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"


def writer_of(format: str, bom: bool = False) -> Writer:
    """What takes a stream and a table, and gives a function that adds a batch of answers."""
    if bom and format not in MARKED:
        raise XmtcError(f"--bom is for {in_a_row(MARKED)}, by which Excel knows them as UTF-8; {format} needs none.")
    module, _, name = WRITERS[format].partition(":")
    writer: Writer = getattr(import_module(module), name)
    return partial(writer, bom=True) if bom else writer


@contextmanager
def writing_answers(
    path: str, format: str, table: AnswerTable | RecordTable, bom: bool = False
) -> Iterator[Callable[[Iterable], None]]:
    """A function that adds a batch of answers to a file, which is written whole or not at all; - is standard output."""
    writer = writer_of(format, bom)
    with writing(path) as stream, writer(stream, table) as write:
        yield write


def write_records(path: str, columns: list[Column], records: Iterable[Record]) -> None:
    """A file of rows that are no answers, in the format that its name says, whole or not at all."""
    left = iter(records)
    with writing_answers(path, format_by_name(path), RecordTable(columns)) as write:
        while part := list(islice(left, TOGETHER)):
            write(part)

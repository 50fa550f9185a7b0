"""Writers of predictions: one module per file format, and one for terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from itertools import islice

from xmtc.data.file_streams import STANDARD_STREAM, get_extension, open_output
from xmtc.errors import XmtcError
from xmtc.output.table import Column, Prediction, PredictionTable, Record, RecordTable, WriteFunction

__all__ = [
    "MARC_FORMATS",
    "OUTPUT_FORMATS",
    "Column",
    "Prediction",
    "PredictionTable",
    "Record",
    "WriteFunction",
    "choose_prediction_format",
    "get_format_by_extension",
    "get_writer",
    "open_prediction_writer",
    "write_records",
]  # fmt: skip

OUTPUT_FORMATS = {
    "jsonl": "xmtc.output.text:json_lines",
    "csv": "xmtc.output.text:csv_rows",
    "tsv": "xmtc.output.text:tsv_rows",
    "xlsx": "xmtc.output.workbook:workbook",
    "parquet": "xmtc.output.parquet:parquet",
}
TERMINAL = "terminal"
MARC_FORMATS = {"marc": "xmtc.output.marc:marc", "marcxml": "xmtc.output.marc:marcxml"}  # copies of the corpus
WRITERS = {**OUTPUT_FORMATS, **MARC_FORMATS, TERMINAL: "xmtc.output.terminal:terminal"}
BINARY_FORMATS = ("xlsx", "parquet", "marc")
OUTPUT_FORMAT_BY_EXTENSION = {f".{name}": name for name in OUTPUT_FORMATS} | {
    ".ndjson": "jsonl",
    ".tab": "tsv",
    ".pq": "parquet",
}
MARC_FORMAT_BY_EXTENSION = {".mrc": "marc", ".xml": "marcxml", ".marcxml": "marcxml"}
WriterFactory = Callable[..., AbstractContextManager[WriteFunction]]
BOM_FORMATS = ("csv", "tsv")  # that may start with a byte order mark
RECORD_BATCH_SIZE = 10_000


def choose_prediction_format(path: str, format_name: str | None, on_terminal: bool = False) -> str:
    """Return `format_name`, or the format of the file extension; a table for a terminal."""
    formats = {**OUTPUT_FORMATS, **MARC_FORMATS}
    if format_name is not None and format_name not in formats:
        raise XmtcError(f"--format {format_name} is not known; expected {join_names(formats)}.")
    if on_terminal and format_name in BINARY_FORMATS:
        raise XmtcError(
            f"{format_name} cannot be shown in a terminal; name a file with -o, such as predictions.{format_name}."
        )
    if format_name is not None:
        return format_name
    if path == STANDARD_STREAM:
        return TERMINAL if on_terminal else "jsonl"
    return get_format_by_extension(path, MARC_FORMAT_BY_EXTENSION, ", or --format")


def get_format_by_extension(path: str, more_formats: Mapping[str, str] = {}, alternative: str = "") -> str:
    """Return the format of a file extension: of a table, or one of more_formats."""
    formats = {**OUTPUT_FORMAT_BY_EXTENSION, **more_formats}
    if get_extension(path) not in formats:
        expected = f"expected a name that ends with {join_names(formats)}{alternative}"
        raise XmtcError(f"{path} has no known format; {expected}.")
    return formats[get_extension(path)]


def join_names(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def get_writer(format: str, bom: bool = False) -> WriterFactory:
    """Return a context manager that takes a stream and a table and yields a function that writes a batch."""
    if bom and format not in BOM_FORMATS:
        raise XmtcError(f"--bom marks {join_names(BOM_FORMATS)} files as UTF-8 for Excel; {format} needs none.")
    module, _, name = WRITERS[format].partition(":")
    writer: WriterFactory = getattr(import_module(module), name)
    return partial(writer, bom=True) if bom else writer


@contextmanager
def open_prediction_writer(
    path: str, format: str, table: PredictionTable | RecordTable, bom: bool = False
) -> Iterator[Callable[[Iterable], None]]:
    """Yield a function that writes a batch of predictions to a file, atomically; "-" is standard output."""
    writer = get_writer(format, bom)
    with open_output(path) as stream, writer(stream, table) as write:
        yield write


def write_records(path: str, columns: list[Column], records: Iterable[Record]) -> None:
    """Write records to a file, atomically, in the format of its extension."""
    remaining = iter(records)
    with open_prediction_writer(path, get_format_by_extension(path), RecordTable(columns)) as write:
        while batch := list(islice(remaining, RECORD_BATCH_SIZE)):
            write(batch)

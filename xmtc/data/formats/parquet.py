"""Parquet files. Labels are a column of lists, or of strings as in a CSV cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.encodings import describe_invalid_byte
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.formats.table import check_predictions
from xmtc.data.records import BadRecord, match_name
from xmtc.errors import XmtcError, import_extra

ROWS_PER_BATCH = 4096


def read(source: CorpusInput) -> Iterator[Document]:
    return read_table_rows(source, _read_rows(source))


def read_table_rows(source: CorpusInput, rows: Iterator[Any]) -> Iterator[Document]:
    """Yield the documents of a table, given the names of its columns and then its rows as dicts."""
    header = next(rows)
    assert isinstance(header, list)
    source = source.adapt_to_header(header)
    yield from source.merge_rows(_parse_rows(source, rows, header), header)


def _parse_rows(source: CorpusInput, rows: Iterator[Any], header: list[str]) -> Iterator[Document]:
    parse_record = source.make_row_parser(header)
    for number, row in enumerate(rows, 1):
        try:
            if isinstance(row, BadRow):
                raise BadRecord(row.reason)
            if not any(row.values()) and all(value is None for value in row.values()):
                continue  # a row of empty cells is not a document
            document = parse_record(row, number)
        except BadRecord as problem:
            raw = row.raw if isinstance(row, BadRow) else row_to_json(row)
            source.report_bad_line(number, str(problem), raw=raw, unit="row")
        else:
            yield document


class BadRow(NamedTuple):
    """A row that cannot be converted to Python: strings in invalid UTF-8, dates out of range."""

    reason: str
    raw: bytes


def _read_rows(source: CorpusInput) -> Iterator[list[str] | dict[str, Any] | BadRow]:
    """Yield the names of all columns, then the rows of the requested columns."""
    pyarrow = import_extra("pyarrow", f"Reading {source.name}")
    parquet = import_extra("pyarrow.parquet", f"Reading {source.name}")
    with source.open_seekable() as file:
        try:
            table = parquet.ParquetFile(file)
            header = list(table.schema_arrow.names)
            columns = select_columns(source, header)
            yield header
            for batch in table.iter_batches(ROWS_PER_BATCH, columns=columns):
                yield from iter_batch_rows(batch)
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
            if isinstance(error, XmtcError):
                raise
            raise XmtcError(
                f"{source.name} cannot be read as Parquet ({_describe_error(error)}); "
                f"check that it is a complete Parquet file, or pass --input-format."
            ) from None


def iter_batch_rows(batch: Any) -> Iterator[dict[str, Any] | BadRow]:
    """Yield the rows of a batch; if the conversion fails, row by row, with a BadRow for each invalid one."""
    try:
        yield from batch.to_pylist()
        return
    except (ValueError, OverflowError, TypeError):
        pass
    for number in range(batch.num_rows):
        row = batch.slice(number, 1)
        try:
            (values,) = row.to_pylist()
            yield values
        except (ValueError, OverflowError, TypeError) as error:
            yield BadRow(f"this row cannot be read ({_describe_error(error)})", _row_to_bytes(row))


def _row_to_bytes(row: Any) -> bytes:
    """Return a bad row for the rejects file; values that cannot be converted are null."""
    values = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            (value,) = column.cast(_to_binary_type(column.type)).to_pylist()
        except (ValueError, OverflowError, TypeError, NotImplementedError):
            value = None
        values[name] = value
    return row_to_json(values)


def _to_binary_type(kind: Any) -> Any:
    import pyarrow
    from pyarrow import types

    if types.is_list(kind):
        return pyarrow.list_(_to_binary_type(kind.value_type))
    return pyarrow.binary() if types.is_string(kind) or types.is_large_string(kind) else kind


def row_to_json(row: dict[str, Any]) -> bytes:
    """Return a row as one line of JSON; invalid UTF-8 is escaped as \\xff."""
    return json.dumps(row, ensure_ascii=False, default=_value_to_text).encode(errors="backslashreplace")


def _value_to_text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _describe_error(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError):
        return describe_invalid_byte(error)
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


def select_columns(source: CorpusInput, names: list[str]) -> list[str]:
    """Return the columns to read; raise XmtcError if a required one is missing."""
    source = source.adapt_to_header(names)
    try:
        check_predictions(names, source)
        source.fields.check_columns(names, source.labels_required)
    except BadRecord as problem:
        raise XmtcError(f"{source.name}: {problem}.") from None
    columns = (match_name(names, name) for name in source.fields.names)
    return [column for column in dict.fromkeys(columns) if column is not None]


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    pyarrow, parquet = (import_extra(name, "Writing Parquet") for name in ("pyarrow", "pyarrow.parquet"))
    text = pyarrow.string()
    schema = pyarrow.schema([("id", text), ("text", text), ("labels", pyarrow.list_(text))])
    batch: list[Document] = []

    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:

        def flush() -> None:
            columns = [[document[column] for document in batch] for column in range(3)]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))
            batch.clear()

        def add(document: Document) -> None:
            batch.append(document)
            if len(batch) == ROWS_PER_BATCH:
                flush()

        yield add
        flush()


PARQUET = CorpusFormat("parquet", read, write)

"""Parquet, read and written in batches of rows. Labels are a column of lists, or of strings as in a CSV cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.records import CELL_SEPARATOR, BadRecord, match_name, require_field
from xmtc.errors import XmtcError

ROWS_PER_BATCH = 4096


def read(source: CorpusInput) -> Iterator[Document]:
    document_of = source.make_record_parser(CELL_SEPARATOR)
    for number, row in enumerate(_read_rows(source), 1):
        try:
            if isinstance(row, BadRow):
                raise BadRecord(row.reason)
            if not any(row.values()) and all(value is None for value in row.values()):
                continue  # a row of empty cells
            document = document_of(row, number)
        except BadRecord as problem:
            raw = row.raw if isinstance(row, BadRow) else row_to_json(row)
            source.report_bad_line(number, str(problem), raw=raw, unit="row")
        else:
            yield document


class BadRow(NamedTuple):
    """A row whose values cannot be had in Python: strings that are no UTF-8, dates of other calendars."""

    reason: str
    raw: bytes


def _read_rows(source: CorpusInput) -> Iterator[dict[str, Any] | BadRow]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with source.open_seekable() as file:
        try:
            table = ParquetFile(file)
            columns = _select_columns(source, table.schema_arrow.names)
            for batch in table.iter_batches(ROWS_PER_BATCH, columns=columns):
                yield from _iter_batch_rows(batch)
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
            if isinstance(error, XmtcError):
                raise
            raise XmtcError(
                f"{source.name} cannot be read as Parquet ({_describe_error(error)}); "
                f"check that it is a whole Parquet file, or pass --input-format."
            ) from None


def _iter_batch_rows(batch: Any) -> Iterator[dict[str, Any] | BadRow]:
    """The rows of a batch; one by one only where some cannot be had."""
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
            yield BadRow(
                f"this row cannot be read ({_describe_error(error)}), expected strings in UTF-8", _row_to_bytes(row)
            )


def _row_to_bytes(row: Any) -> bytes:
    """A bad row, for the rejects: its strings as bytes, as far as they can be had."""
    found = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            (value,) = column.cast(_to_binary_type(column.type)).to_pylist()
        except (ValueError, OverflowError, TypeError, NotImplementedError):
            value = None
        found[name] = value
    return row_to_json(found)


def _to_binary_type(kind: Any) -> Any:
    import pyarrow
    from pyarrow import types

    if types.is_list(kind):
        return pyarrow.list_(_to_binary_type(kind.value_type))
    return pyarrow.binary() if types.is_string(kind) or types.is_large_string(kind) else kind


def row_to_json(row: dict[str, Any]) -> bytes:
    """A row as one line; of bytes, those that are no UTF-8 as \\xff."""
    return json.dumps(row, ensure_ascii=False, default=_value_to_text).encode(errors="backslashreplace")


def _value_to_text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _describe_error(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02x} is no UTF-8"
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


def _select_columns(source: CorpusInput, names: list[str]) -> list[str]:
    fields = source.fields
    try:
        for name in fields.text_names:
            require_field(names, name, "text")
        if source.labels_required and fields.labels is not None:
            require_field(names, fields.labels, "labels")
        for name in fields.keep:
            require_field(names, name, "keep")
    except BadRecord as problem:
        raise XmtcError(f"{source.name}: {problem}.") from None
    wanted = (*fields.text_names, fields.labels, fields.id, *fields.keep)
    found = (None if name is None else match_name(names, name) for name in wanted)
    return [name for name in dict.fromkeys(found) if name is not None]


@contextmanager
def write(stream: IO[bytes], dimensions: Dimensions) -> Iterator[Callable[[Document], None]]:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    text = pyarrow.string()
    schema = pyarrow.schema([("id", text), ("text", text), ("labels", pyarrow.list_(text))])
    batch: list[Document] = []

    with ParquetWriter(stream, schema, compression="zstd") as writer:

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

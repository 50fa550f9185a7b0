"""Parquet, read and written in batches of rows. Labels are a column of lists, or of strings as in a CSV cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from xmtc.data.document import Document
from xmtc.data.formats import Dimensions, Format
from xmtc.data.records import CELL_SEPARATOR, BadRecord, record_parser, require_field
from xmtc.data.source import Source
from xmtc.errors import XmtcError

ROWS_PER_BATCH = 4096


def read(source: Source) -> Iterator[Document]:
    document_of = record_parser(source.fields, source.labels_required, source.fields.separator or CELL_SEPARATOR)
    for number, row in enumerate(_rows(source), 1):
        try:
            document = document_of(row, number)
        except BadRecord as problem:
            raw = json.dumps(row, ensure_ascii=False, default=str).encode()
            source.refuse(number, str(problem), raw=raw, unit="row")
        else:
            yield document


def _rows(source: Source) -> Iterator[dict[str, Any]]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with source.seekable() as file:
        try:
            table = ParquetFile(file)
            columns = _columns(source, table.schema_arrow.names)
            for batch in table.iter_batches(ROWS_PER_BATCH, columns=columns):
                yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError) as error:
            raise XmtcError(
                f"{source.name} cannot be read as Parquet ({str(error).splitlines()[0].rstrip('.')}); "
                f"check that it is a whole Parquet file, or pass --input-format."
            ) from None


def _columns(source: Source, names: list[str]) -> list[str]:
    fields = source.fields
    try:
        for name in fields.text_names:
            require_field(names, name, "text")
        if source.labels_required and fields.labels is not None:
            require_field(names, fields.labels, "labels")
    except BadRecord as problem:
        raise XmtcError(f"{source.name}: {problem}.") from None
    return [name for name in dict.fromkeys([*fields.text_names, fields.labels, fields.id]) if name in names]


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


PARQUET = Format("parquet", read, write)

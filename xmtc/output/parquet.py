"""Answers as Parquet, batch by batch. Fields that are carried along are strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from xmtc.output.table import Answer, AnswerTable, Cell, Column, Write, number_in_words


@contextmanager
def parquet(stream: IO[bytes], table: AnswerTable) -> Iterator[Write]:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    kinds = {str: pyarrow.string(), int: pyarrow.int32(), float: pyarrow.float32()}
    schema = pyarrow.schema([(column.name, kinds[column.kind]) for column in table.columns])
    with ParquetWriter(stream, schema, compression="zstd") as writer:

        def write(answers: Iterable[Answer]) -> None:
            rows = [row for answer in answers for row in table.rows(answer)]
            cells = zip(*rows, strict=True)
            columns = [values(*each) for each in zip(table.columns, cells, strict=True)]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))

        yield write


def values(column: Column, cells: Iterable[Cell]) -> list[Any]:
    """Cells as the type of their column has them."""
    if column.kind is not str:
        return list(cells)
    return [number_in_words(cell) if isinstance(cell, (int, float)) else cell for cell in cells]

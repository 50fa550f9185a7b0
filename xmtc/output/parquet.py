"""Predictions as Parquet, batch by batch. Kept fields are strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from xmtc.errors import import_extra
from xmtc.output.table import Cell, Column, Prediction, PredictionTable, WriteFunction, format_plain_number


@contextmanager
def parquet(stream: IO[bytes], table: PredictionTable) -> Iterator[WriteFunction]:
    pyarrow, arrow_parquet = (import_extra(name, "A Parquet file") for name in ("pyarrow", "pyarrow.parquet"))
    kinds = {str: pyarrow.string(), int: pyarrow.int32(), float: pyarrow.float32()}
    schema = pyarrow.schema([(column.name, kinds[column.kind]) for column in table.columns])
    with arrow_parquet.ParquetWriter(stream, schema, compression="zstd") as writer:

        def write(answers: Iterable[Prediction]) -> None:
            rows = [row for answer in answers for row in table.rows(answer)]
            cells = zip(*rows, strict=True)
            columns = [convert_column(*each) for each in zip(table.columns, cells, strict=True)]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))

        yield write


def convert_column(column: Column, cells: Iterable[Cell]) -> list[Any]:
    """Return the cells of a column; numbers in a string column become strings."""
    if column.kind is not str:
        return list(cells)
    return [format_plain_number(cell) if isinstance(cell, (int, float)) else cell for cell in cells]

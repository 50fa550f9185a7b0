"""Tables in memory as corpora: pandas, polars, Arrow, DuckDB relations and Hugging Face data sets.

Tables are read through Arrow's C stream (`__arrow_c_stream__`), which all of these offer, so that none of the libraries
is imported. Hugging Face data sets convert themselves to Arrow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat, Dimensions
from xmtc.data.formats.parquet import ROWS_PER_BATCH, iter_batch_rows, read_table_rows, select_columns
from xmtc.errors import XmtcError, import_extra

TABLE_FORMAT = "table"
COLUMN_ATTRIBUTES = ("columns", "column_names", "schema")


class ArrowStream(Protocol):
    """Object with the Arrow PyCapsule interface: pandas, polars, pyarrow, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class DataSet(Protocol):
    """Data set of the library `datasets`."""

    @property
    def column_names(self) -> Any: ...

    def with_format(self, type: Any = ...) -> Any: ...


Table = ArrowStream | DataSet


def is_data_set(value: Any) -> bool:
    """Return True for a data set of the library `datasets`, in memory or mapped from its cache."""
    return hasattr(value, "with_format") and hasattr(value, "column_names")


def is_table(value: Any) -> bool:
    """Return True for an object that Arrow can read as a table with named columns; a single column is none. Raise
    XmtcError for a query that has not been run."""
    if type(value).__name__ == "LazyFrame":
        raise XmtcError(f"Found a LazyFrame of {get_library(value)}, expected a table; pass `frame.collect()`.")
    if is_data_set(value):
        return True
    return hasattr(value, "__arrow_c_stream__") and any(hasattr(value, name) for name in COLUMN_ATTRIBUTES)


def get_library(table: Any) -> str:
    """Return the name of the package that a table belongs to."""
    return type(table).__module__.partition(".")[0].strip("_")


def to_arrow(table: Any) -> Any:
    """Return a table as a pyarrow.Table, without a copy where its library holds Arrow arrays."""
    pyarrow = import_extra("pyarrow", "A table as a corpus")
    if is_data_set(table):
        return table.with_format("arrow")[:]
    try:
        return pyarrow.table(table)
    except (pyarrow.ArrowException, ValueError, TypeError, NotImplementedError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise XmtcError(
            f"The table of {get_library(table)} cannot be read through Arrow ({reason}); select the columns that are "
            "needed, such as text and labels."
        ) from None


class TablePart:
    """A table as a part of a Corpus."""

    files: tuple[str, ...] = ()
    dimensions = Dimensions()

    def __init__(self, table: Any, source: CorpusInput) -> None:
        self.table, self.source = to_arrow(table), source
        self.format = CorpusFormat(TABLE_FORMAT, self._read_rows)

    def _read_rows(self, source: CorpusInput) -> Iterator[Document]:
        return read_table_rows(source, self._iter_rows(source))

    def _iter_rows(self, source: CorpusInput) -> Iterator[Any]:
        header = list(map(str, self.table.column_names))
        yield header
        for batch in self.table.select(select_columns(source, header)).to_batches(ROWS_PER_BATCH):
            yield from iter_batch_rows(batch)

    def read(self, reject: Any, on_read: Any, run: Any = None) -> Iterator[Document]:
        return self.format.read(replace(self.source, on_bad_line=reject, on_read=on_read, n_lines=0))


def add_column(table: Any, name: str, values: list[Any]) -> Any:
    """Return a table of the same library with a further column; a pyarrow.Table for relations of DuckDB."""
    library = get_library(table)
    if library == "pandas":
        return table.assign(**{name: values})
    if library == "polars":
        return table.with_columns(sys.modules["polars"].Series(name, values))
    if is_data_set(table):
        return table.add_column(name, values)
    pyarrow = import_extra("pyarrow", "A table with predictions")
    arrow = to_arrow(table)
    return arrow.append_column(name, pyarrow.array(values))

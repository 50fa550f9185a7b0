"""Rows of a query on an SQLite database: `sqlite:///file.db?query=SELECT id, text, labels FROM books`.

The database is opened for reading only, and statements other than SELECT are refused. As in SQLAlchemy, a fourth slash
begins an absolute path."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.document import Document
from xmtc.data.formats import CorpusFormat
from xmtc.data.formats.parquet import read_table_rows, select_columns
from xmtc.errors import XmtcError

PREFIX, QUERY = "sqlite:///", "?query="
ALLOWED_ACTIONS = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)


def is_address(path: str) -> bool:
    return path.startswith(PREFIX)


def parse_address(address: str) -> tuple[str, str]:
    """Return the file and the query of an address."""
    file, separator, query = address.removeprefix(PREFIX).partition(QUERY)
    if not is_address(address) or not separator or not file or not query.strip():
        raise XmtcError(f"{address!r:.200} is no query on a database; expected {PREFIX}FILE{QUERY}SELECT ….")
    is_encoded = not any(map(str.isspace, query))  # otherwise % is that of LIKE '%text%'
    return unquote(file), unquote(query) if is_encoded else query


def resolve_files(address: str) -> tuple[str, ...]:
    return (parse_address(address)[0],)


def authorize(action: int, *details: Any) -> int:
    return sqlite3.SQLITE_OK if action in ALLOWED_ACTIONS else sqlite3.SQLITE_DENY


def read(source: CorpusInput) -> Iterator[Document]:
    return read_table_rows(source, iter_rows(source))


def iter_rows(source: CorpusInput) -> Iterator[Any]:
    """Yield the names of the columns, then the rows."""
    file, query = parse_address(source.path)
    address = f"{Path(file).resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, check_same_thread=False)) as database:
            database.set_authorizer(authorize)
            rows = database.execute(query)
            header = [column[0] for column in rows.description or ()]
            select_columns(source, header)
            yield header
            for row in rows:
                yield dict(zip(header, row, strict=True))
    except sqlite3.Error as error:
        raise XmtcError(
            f"{file}: the query failed ({error}); expected one SELECT statement on this database."
        ) from None


SQLITE = CorpusFormat("sqlite", read, resolve_files=resolve_files)

"""Predictions as a table in a terminal."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, TYPE_CHECKING, cast

from xmtc.errors import escape_controls
from xmtc.output.table import Cell, Prediction, PredictionTable, WriteFunction

if TYPE_CHECKING:
    from rich.table import Table

DOCUMENTS_PER_TABLE = 100
SNIPPET_CHARACTERS = 60


@contextmanager
def terminal(stream: IO[bytes], table: PredictionTable) -> Iterator[WriteFunction]:
    """Yield a function that prints predictions; without kept fields, the beginning of each text is shown."""
    from rich.console import Console

    text = cast(IO[str], codecs.getwriter("utf-8")(stream))
    console = Console(file=text, force_terminal=True, highlight=False)

    def write(answers: Iterable[Prediction]) -> None:
        remaining = iter(answers)
        while batch := list(islice(remaining, DOCUMENTS_PER_TABLE)):
            console.print(build_rich_table(batch, table))

    yield write


def build_rich_table(answers: list[Prediction], table: PredictionTable) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD)
    n_first = len(table.document_columns)
    names = [column.name for column in table.columns]
    kinds = [column.kind for column in table.columns]
    if not table.kept_fields:
        names, kinds = [*names[:1], "text", *names[1:]], [str, *kinds]
        n_first += 1
    for name, kind in zip(names, kinds, strict=True):
        shown.add_column(Text(escape_controls(name)), justify="left" if kind is str else "right", overflow="fold")
    for answer in answers:
        for number, row in enumerate(table.rows(answer)):
            cells = row if table.kept_fields else [row[0], make_snippet(answer.text), *row[1:]]
            first = cells[:n_first] if number == 0 else [None] * n_first  # once per document
            shown.add_row(*(Text(format_cell(cell)) for cell in (*first, *cells[n_first:])))
    return shown


def make_snippet(text: str) -> str:
    """Return the beginning of a text as one line."""
    words = " ".join(text[: 4 * SNIPPET_CHARACTERS].split())
    return words if len(words) <= SNIPPET_CHARACTERS else words[: SNIPPET_CHARACTERS - 1] + "…"


def format_cell(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:.4f}" if isinstance(cell, float) else escape_controls(str(cell))

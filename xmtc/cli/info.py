"""xmtc info: what a model folder holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xmtc.cli.options import ModelPath
from xmtc.cli.streams import echo


def info(
    model: ModelPath,
    verify: Annotated[bool, typer.Option("--verify", help="read every byte and compare checksums")] = False,
    history: Annotated[bool, typer.Option("--history", help="print how its training went, instead")] = False,
    json: Annotated[bool, typer.Option("--json", help="print JSON: of a history, a line for each event")] = False,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="draw the history to a file (png, svg, pdf)")] = None,
) -> None:
    """Print what a model is: method, parameters, sizes, data fingerprint. Or how its training went."""
    from json import dumps

    from xmtc.core.history import plot_history, to_json_lines
    from xmtc.errors import escape_json_controls
    from xmtc.tagger import Tagger

    tagger = Tagger.load(model, verify)
    if not history:
        echo(escape_json_controls(dumps(tagger.about, indent=2, ensure_ascii=False)))
    elif json:
        echo(escape_json_controls(to_json_lines(tagger.history)), nl=False)
    else:
        print_history(model, tagger.history)
    if plot is not None:
        plot_history(tagger.history, plot)
    if verify:
        echo("every byte is as it was saved", err=True)


def print_history(model: str, history: tuple[dict[str, Any], ...]) -> None:
    """A table of the stages, and one of the passes."""
    from xmtc.core.history import build_pass_rows, build_stage_rows, list_metric_names, replace_unprintable

    if not history:
        echo(f"{model} has no history; a training of today would write one.", err=True)
    print_table(["stage", "seconds", "GiB"], build_stage_rows(history))
    columns = [
        "network",
        "pass",
        "loss",
        *map(replace_unprintable, list_metric_names(history)),
        "rate",
        "seconds",
        "GiB",
        "GPU GiB",
    ]
    print_table(columns, build_pass_rows(history))


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Columns without any figure are left out, and a table without rows altogether."""
    from rich.console import Console
    from rich.table import Table

    from xmtc.cli.tune import PIPE_LINE_CHARACTERS
    from xmtc.errors import escape_controls

    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    if not kept:
        return
    table = Table(*(columns[i] for i in kept), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(escape_controls(row[i]) for i in kept))
    console = Console(highlight=False, markup=False)
    Console(highlight=False, markup=False, width=console.width if console.is_terminal else PIPE_LINE_CHARACTERS).print(
        table, ""
    )

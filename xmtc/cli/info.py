"""xmtc info: description and training history of a model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xmtc.cli.help import OUTPUT
from xmtc.cli.history import list_commands
from xmtc.cli.options import JsonOption, ModelPath
from xmtc.cli.streams import echo


def info(
    model: ModelPath,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte and compare checksums.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Print the training history instead.")] = False,
    json: JsonOption = False,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Plot of the history to write (.png, .svg, .pdf).", rich_help_panel=OUTPUT),
    ] = None,
) -> None:
    """Print the method, parameters, sizes, data fingerprint and commands of a model, or its training history.

    The description is JSON in any case; with --history --json, each event is a line of JSON.
    """
    from json import dumps

    from xmtc.core.history import plot_history, to_json_lines
    from xmtc.errors import escape_json_controls
    from xmtc.tagger import Tagger

    tagger = Tagger.load(model, verify)
    if not history:
        description = tagger.about | {"commands": list_commands(tagger.history)}
        echo(escape_json_controls(dumps(description, indent=2, ensure_ascii=False)))
    elif json:
        echo(escape_json_controls(to_json_lines(tagger.history)), nl=False)
    else:
        print_history(model, tagger.history)
    if plot is not None:
        plot_history(tagger.history, plot)
    if verify:
        echo("All checksums match.", err=True)


def print_history(model: str, history: tuple[dict[str, Any], ...]) -> None:
    """Print a table of the stages and a table of the passes."""
    from xmtc.core.history import build_pass_rows, build_stage_rows, list_metric_names, replace_unprintable

    if not history:
        echo(f"{model} has no training history.", err=True)
    print_table(["stage", "seconds", "GiB"], build_stage_rows(history))
    metrics = map(replace_unprintable, list_metric_names(history))
    columns = ["network", "pass", "loss", *metrics, "rate", "seconds", "GiB", "GPU GiB"]
    print_table(columns, build_pass_rows(history))


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table without its empty columns; nothing if it has no rows."""
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
    if not console.is_terminal:
        console.width = PIPE_LINE_CHARACTERS
    console.print(table, "")

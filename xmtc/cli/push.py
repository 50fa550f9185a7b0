"""xmtc push: upload a model to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.options import ModelPath
from xmtc.cli.streams import echo

RepositoryArgument = Annotated[str, typer.Argument(metavar="REPOSITORY", help="Repository of the hub: hf:USER/NAME.")]


def push(
    model: ModelPath,
    repository: RepositoryArgument,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON file of `xmtc report`, whose metrics the model card shows."),
    ] = None,
    license: Annotated[
        str | None, typer.Option(metavar="ID", help="Licence of the model, such as cc-by-4.0, for the model card.")
    ] = None,
    intended_use: Annotated[str, typer.Option(help="Paragraph on the intended use, for the model card.")] = "",
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the model card; upload nothing.")] = False,
) -> None:
    """Upload a model with a model card to the Hugging Face Hub."""
    from xmtc.hub import parse_repository, push_model, read_report, render_card

    parse_repository(repository)
    measured = None if report is None else read_report(report)
    card = render_card(model, repository, report=measured, license=license, intended_use=intended_use)
    if dry_run:
        echo(card, nl=False)
    else:
        echo(push_model(model, repository, card, private=private))

"""xmtc pull: download a model from the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.push import RepositoryArgument
from xmtc.cli.streams import echo


def pull(
    repository: RepositoryArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="MODEL", help="Model folder to write; a model in it is replaced.")
    ],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
) -> None:
    """Download a model from the Hugging Face Hub. Nothing of it is executed."""
    from xmtc.errors import escape_controls
    from xmtc.hub import pull_model

    tagger = pull_model(repository, output, revision=revision)
    echo(escape_controls(f"{output}: {tagger!r}. Next: xmtc predict {output} --string TEXT"))

"""xmtc info: what a model folder holds."""

from __future__ import annotations

from typing import Annotated

import typer

from xmtc.cli.options import ModelPath


def info(
    model: ModelPath,
    verify: Annotated[bool, typer.Option("--verify", help="read every byte and compare checksums")] = False,
) -> None:
    """Print what a model is: method, parameters, sizes, data fingerprint."""
    import json

    from xmtc.tagger import Tagger

    tagger = Tagger.load(model, verify)
    typer.echo(json.dumps(tagger.about, indent=2, ensure_ascii=False))
    if verify:
        typer.echo("every byte is as it was saved", err=True)

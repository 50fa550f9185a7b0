"""xmtc serve: an HTTP service for models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.help import ADVANCED, PERFORMANCE
from xmtc.cli.options import DeviceOption

if TYPE_CHECKING:
    from xmtc.server.settings import Settings

LIMITS = "Limits"  # panel


def limit_option(help: str, min: float = 1, metavar: str = "N") -> typer.models.OptionInfo:
    return typer.Option(min=min, metavar=metavar, help=help, rich_help_panel=LIMITS)


def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Model folder; NAME=FOLDER serves it under another name.")
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 accepts other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="XMTC_TOKEN", show_envvar=True, metavar="TEXT", help="Token that clients must send."),
    ] = None,
    token_file: Annotated[str | None, typer.Option(metavar="FILE", help="File with the token.")] = None,
    cors: Annotated[
        list[str] | None, typer.Option("--cors", metavar="ORIGIN", help="Allowed CORS origin (repeatable).")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Further host name of this service (repeatable; * for any)."),
    ] = None,
    report: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Page of `xmtc report`; NAME=FILE with several models (repeatable)."),
    ] = None,
    desk: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Database of the review desk, made by `xmtc desk add`; implies --watch."),
    ] = None,
    reviewers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            metavar="N",
            show_default="1",
            help="Reviewers per document of the review desk.",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Reload a model when its folder changes.")] = False,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Serve tools for assistants (MCP) on standard input and output instead.")
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            min=1, max=256, metavar="N", help="Server processes; they share memory.", rich_help_panel=PERFORMANCE
        ),
    ] = 1,
    threads: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Threads per batch of texts; 0 uses all cores.", rich_help_panel=PERFORMANCE
        ),
    ] = 1,
    device: DeviceOption = "auto",
    max_body: Annotated[int, limit_option("Bytes per request.", metavar="BYTES")] = 32 * 2**20,
    max_text: Annotated[int, limit_option("Characters per text.")] = 1_000_000,
    max_texts: Annotated[int, limit_option("Texts per request.")] = 1000,
    max_k: Annotated[int, limit_option("Labels per text.")] = 1000,
    max_queue: Annotated[int, limit_option("Texts that wait for a model.")] = 2000,
    max_per_client: Annotated[int, limit_option("Concurrent requests per address; 0: no limit.", min=0)] = 0,
    time_limit: Annotated[
        str, typer.Option(metavar="TIME", help="Time limit of a request, such as 30s or 1m.", rich_help_panel=LIMITS)
    ] = "30s",
    max_connections: Annotated[int, limit_option("Concurrent connections.")] = 4000,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Write no access log.", rich_help_panel=ADVANCED)
    ] = False,
) -> None:
    """Serve models over HTTP: a JSON API, Annif's API, and a web page."""
    from xmtc.cli.options import parse_time_limit
    from xmtc.server.settings import ServiceLimits, Settings, parse_models, parse_reports

    folders = parse_models(models)
    settings = Settings(
        folders,
        host,
        port,
        workers,
        watch_seconds=1.0 if watch or desk else 0.0,
        token=read_token(token, token_file),
        origins=tuple(cors or ()),
        hosts=tuple(allow_host or ()),
        reports=parse_reports(report or (), folders),
        threads=threads,
        device=device,
        access_log=not quiet,
        desk=check_desk(desk, reviewers),
        reviewers=reviewers or 1,
        limits=ServiceLimits(
            body=max_body,
            text=max_text,
            texts=max_texts,
            k=max_k,
            queue=max_queue,
            per_client=max_per_client,
            seconds=parse_time_limit(time_limit),
            connections=max_connections,
        ),
    )
    import_service(mcp)(settings)


def import_service(mcp: bool) -> Callable[[Settings], None]:
    """Return the function that serves over HTTP or MCP; raise XmtcError if a package is missing."""
    from xmtc.errors import as_missing_extra

    try:
        if mcp:
            from xmtc.server.mcp import serve
        else:
            import fastapi  # noqa: F401  # the worker processes need these: report a missing package here
            import prometheus_client  # noqa: F401
            import python_multipart  # noqa: F401

            from xmtc.server.startup import serve
    except ImportError as error:
        raise as_missing_extra("xmtc serve", error) from None
    return serve


def read_token(token: str | None, file: str | None) -> str | None:
    """Return the token; raise XmtcError if an HTTP header cannot contain it."""
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


def check_desk(path: str | None, reviewers: int | None) -> str | None:
    """Return the absolute path of a review desk; raise XmtcError if it does not exist, or has reviewers but no path."""
    from pathlib import Path

    from xmtc.errors import XmtcError
    from xmtc.review.store import ReviewStore

    if path is None and reviewers is not None:
        raise XmtcError("--reviewers is for a review desk; give its database with --desk, too.")
    if path is None:
        return None
    ReviewStore(path, must_exist=True).close()
    return str(Path(path).resolve())

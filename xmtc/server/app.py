"""The FastAPI application: middleware, routes, error handlers, start and shutdown."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

import xmtc
from xmtc.errors import XmtcError
from xmtc.server import annif
from xmtc.server.hosts import HostCheck, single_headers
from xmtc.server.limits import HEADERS, RequestLimits
from xmtc.server.models import Models
from xmtc.server.refusals import Refused, in_json, of_error
from xmtc.server.request_bodies import sentence_of
from xmtc.server.routes import file_routes, model_routes, operator_routes
from xmtc.server.service import Service
from xmtc.server.settings import Settings

PAGE = Path(__file__).parent / "page"


def create_app(settings: Settings) -> FastAPI:
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if not service.models.served:
            service.models.open_all_that_are_whole()
        service.models.start()
        service.start()
        with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):  # elsewhere, or within a thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, renew_now, service.models)
        service.on_start()
        yield
        await service.models.stop()
        service.stop()

    app = FastAPI(
        title="xmtc",
        version=xmtc.__version__,
        summary="Tags for texts.",
        lifespan=lifespan,
        docs_url=None,  # whose pages take scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    add_routes(app, service)
    app.add_middleware(RequestLimits, settings=settings, metrics=service.metrics, memory=service.memory)
    if settings.origins:
        app.add_middleware(
            KnownHostCORS,  # type: ignore[arg-type]
            hosts=HostCheck(settings),
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


class KnownHostCORS(CORSMiddleware):
    """CORS middleware that answers preflights only under a host name of the service.

    Other requests reach RequestLimits, which checks their host."""

    def __init__(self, app: ASGIApp, hosts: HostCheck, **options: Any) -> None:
        super().__init__(app, **options)
        self.hosts = hosts

    def preflight_response(self, request_headers: Headers) -> Response:
        try:
            self.hosts.check_host(single_headers(request_headers.raw).get(b"host", b""))
        except Refused as refused:
            status, body, kind = in_json(refused, "")
            return Response(body, status, headers=HEADERS, media_type=kind)
        return super().preflight_response(request_headers)


def renew_now(models: Models) -> None:
    models.renewing = asyncio.ensure_future(models.renew(anyway=True))  # kept, or it might be collected before its end


def add_routes(app: FastAPI, service: Service) -> None:
    for routes in (model_routes, file_routes, annif.routes, operator_routes):
        app.include_router(routes(service))
    if PAGE.is_dir():
        app.mount("/static", StaticFiles(directory=PAGE), name="static")

        @app.get("/", include_in_schema=False)
        async def page() -> Response:
            return FileResponse(PAGE / "index.html")

    for error in (Refused, XmtcError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, refuse)


async def refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        refused = Refused(422, sentence_of(error.errors()[0]))
    elif isinstance(error, HTTPException):
        refused = Refused(error.status_code, f"{error.detail}.".replace("..", "."), headers=error.headers)
    else:
        refused = of_error(error)
    status, body, kind = in_json(refused, request.url.path)
    return Response(body, status, headers=refused.headers, media_type=kind)

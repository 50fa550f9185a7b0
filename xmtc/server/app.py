"""The FastAPI application: middleware, routes, error handlers, start and shutdown."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import xmtc
from xmtc.errors import XmtcError
from xmtc.server import annif
from xmtc.server.limits import RequestLimits
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
    app.add_middleware(RequestLimits, settings=settings, metrics=service.metrics)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


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

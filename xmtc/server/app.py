"""The FastAPI application: middleware, routes, error handlers, start and shutdown."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
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
from xmtc.server import annif, desk_routes, reconciliation
from xmtc.server.hosts import HostCheck, parse_headers
from xmtc.server.middleware import RESPONSE_HEADERS, RequestMiddleware
from xmtc.server.models import ModelPool
from xmtc.server.request_bodies import format_validation_error
from xmtc.server.request_errors import RequestError, encode_error, request_error_from
from xmtc.server.routes import (
    build_file_routes,
    build_model_routes,
    build_operator_routes,
    build_prediction_routes,
)
from xmtc.server.service import Service
from xmtc.server.settings import Settings

PAGE_FOLDER = Path(__file__).parent / "page"


def create_app(settings: Settings, on_start: Callable[[], None] = lambda: None) -> FastAPI:
    """Return the application; `on_start` is called once when all models are open."""
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if not service.models.by_name:
            service.models.open_undamaged()
        service.models.start()
        service.start()
        with suppress(
            AttributeError, NotImplementedError, RuntimeError, ValueError
        ):  # no SIGHUP, or not the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload_models, service.models)
        on_start()
        yield
        await service.models.stop()
        service.stop()

    app = FastAPI(
        title="xmtc",
        version=xmtc.__version__,
        summary="Multi-label text classification.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,  # names of the functions of generated clients
    )
    app.state.service = service
    add_routes(app, service)
    app.add_middleware(
        RequestMiddleware,
        settings=settings,
        metrics=service.metrics,
        memory=service.memory,
        find_person=None if service.desk is None else service.desk.find_person,
    )
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
    """CORS middleware that answers preflight requests only for known host names.

    RequestMiddleware checks the host of all other requests."""

    def __init__(self, app: ASGIApp, hosts: HostCheck, **options: Any) -> None:
        super().__init__(app, **options)
        self.hosts = hosts

    def preflight_response(self, request_headers: Headers) -> Response:
        try:
            self.hosts.check_host(parse_headers(request_headers.raw).get(b"host", b""))
        except RequestError as error:
            status, body, content_type = encode_error(error, "")
            return Response(body, status, headers=RESPONSE_HEADERS, media_type=content_type)
        return super().preflight_response(request_headers)


def reload_models(models: ModelPool) -> None:
    # The event loop holds only a weak reference to the task.
    models.reload_task = asyncio.ensure_future(models.reload_changed(force=True))


def add_routes(app: FastAPI, service: Service) -> None:
    for build_routes in (
        build_model_routes,
        build_prediction_routes,
        build_file_routes,
        annif.build_project_routes,
        annif.build_suggestion_routes,
        reconciliation.build_reconciliation_routes,
        build_operator_routes,
    ):
        app.include_router(build_routes(service))
    if service.desk is not None:
        for build_desk_routes in desk_routes.ROUTE_BUILDERS:
            app.include_router(build_desk_routes(service, service.desk))
    if PAGE_FOLDER.is_dir():
        app.mount("/static", StaticFiles(directory=PAGE_FOLDER), name="static")

        @app.get("/", include_in_schema=False)
        async def page() -> Response:
            return FileResponse(PAGE_FOLDER / "index.html")

        if service.desk is not None:

            @app.get("/desk", include_in_schema=False)
            async def desk_page() -> Response:
                return FileResponse(PAGE_FOLDER / "desk.html")

    for error_class in (RequestError, XmtcError, RequestValidationError, HTTPException):
        app.add_exception_handler(error_class, handle_error)


async def handle_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        request_error = RequestError(422, format_validation_error(error.errors()[0]))
    elif isinstance(error, HTTPException):
        request_error = RequestError(error.status_code, f"{error.detail}.".replace("..", "."), headers=error.headers)
    else:
        request_error = request_error_from(error)
    status, body, content_type = encode_error(request_error, request.url.path)
    return Response(body, status, headers=request_error.headers, media_type=content_type)

"""Start of the service: one process, or several that share a port and, by memory-mapping, the models."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

import uvicorn

from xmtc.errors import XmtcError
from xmtc.server import log
from xmtc.server.protocol import MAX_REQUEST_HEAD_BYTES, limited_protocol
from xmtc.server.settings import METRICS_FOLDER_VARIABLE, Settings
from xmtc.server.workers import WorkerSupervisor

if TYPE_CHECKING:
    from fastapi import FastAPI

WORKER_STARTUP_SECONDS = 120  # seconds that a worker may be silent: it looks at every number of its models
BACKLOG_CONNECTIONS = 2048  # connections that wait to be accepted
SWITCH_SECONDS = 0.001  # after which a thread that computes lets the event loop run
MAX_OPEN_FILES = 65_536  # open files, and with them connections, where the system allows as many
RESERVED_FILE_DESCRIPTORS = 256  # file descriptors that are no connections: models, logs, uploads, spare connections


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration, with an HTTP protocol that limits what a connection may take."""

    timeout: float  # seconds

    def load(self) -> None:
        super().load()
        self.http_protocol_class = limited_protocol(self.http_protocol_class, self.timeout)


def serve(settings: Settings) -> None:
    """Serve until a signal ends it; requests that are running are finished."""
    raise_file_limit()
    with open_socket(settings) as opened:
        if settings.workers == 1:
            app = create_worker_app(settings)
            app.state.service.models.open_all()
            log_start(settings, opened)
            uvicorn.Server(build_config(settings, lambda: app)).run([opened])
            return
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:  # so that this process stays small
            try:
                apart.submit(check_model_folders, settings).result()
            except BrokenProcessPool:
                raise XmtcError(
                    "The process that opened the models to check them died; there may be too little memory, or a file "
                    "of a model was cut while it was read. Try `xmtc info MODEL`."
                ) from None
        log_start(settings, opened)
        with tempfile.TemporaryDirectory(prefix="xmtc-metrics-") as folder:
            os.environ[METRICS_FOLDER_VARIABLE] = folder
            WorkerSupervisor(build_config(settings, partial(start_worker_app, settings)), [opened]).run()


def log_start(settings: Settings, opened: socket.socket) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # which uvicorn sends once more at the end; here it is no failure
        signal.signal(number, lambda number, frame: None)
    log.redirect_logs()  # from now on; before, what is wrong is said to a person
    host, port = opened.getsockname()[:2]
    log.write_event(
        "serving", host=host, port=port, workers=settings.workers, models=[name for name, _ in settings.models]
    )


def build_config(settings: Settings, factory: Callable[[], FastAPI]) -> uvicorn.Config:
    config = LimitedConfig(
        factory,
        factory=True,
        workers=settings.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        ws="none",
        h11_max_incomplete_event_size=MAX_REQUEST_HEAD_BYTES,
        limit_concurrency=min(settings.limits.connections, count_available_connections()),
        timeout_graceful_shutdown=int(settings.limits.seconds) + 1,
        timeout_worker_healthcheck=WORKER_STARTUP_SECONDS,
    )
    config.timeout = settings.limits.seconds
    return config


def check_model_folders(settings: Settings) -> None:
    """Open every model once before workers start, so that a damaged one is reported in a sentence."""
    from xmtc.core.run import Run
    from xmtc.server.models import LoadedModel

    for _, folder in settings.models:
        LoadedModel.load(folder, Run(threads=settings.threads, device=settings.device))


def start_worker_app(settings: Settings) -> FastAPI:
    log.redirect_logs()
    return create_worker_app(settings)


def create_worker_app(settings: Settings) -> FastAPI:
    from xmtc.server.app import create_app

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a handler
    app = create_app(settings)
    app.openapi()  # which takes too long for the event loop when it is first asked for
    app.state.service.on_start = shorten_pauses  # once all models are open
    return app


def shorten_pauses() -> None:
    """Keep other threads and the garbage collector from holding the event loop for long."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # modules and models live until the end; a full collection would look at them for 0.1 s


def open_socket(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((settings.host, settings.port))
        opened.listen(BACKLOG_CONNECTIONS)  # before any worker accepts, so that clients wait instead of being refused
    except OSError as error:
        opened.close()
        raise XmtcError(
            f"{settings.host}:{settings.port} cannot be listened at ({error.strerror or error}); give another --port."
        ) from None
    opened.set_inheritable(True)
    return opened


def raise_file_limit() -> None:
    """Raise the limit of open files, and with it of connections, as far as the system allows."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def count_available_connections() -> int:
    """Return the number of connections for which there are file descriptors."""
    try:
        import resource
    except ImportError:
        return MAX_OPEN_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else max(16, soft - RESERVED_FILE_DESCRIPTORS)

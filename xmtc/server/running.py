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
from xmtc.server.protocol import HEAD_BYTES, limited_protocol
from xmtc.server.settings import METRICS, Settings
from xmtc.server.workers import Workers

if TYPE_CHECKING:
    from fastapi import FastAPI

STARTING = 120  # seconds that a worker may be silent: it looks at every number of its models
BACKLOG = 2048  # connections that wait to be accepted
SWITCH_SECONDS = 0.001  # after which a thread that computes lets the event loop run
FILES = 65_536  # open files, and with them connections, where the system allows as many
OTHER_FILES = 256  # file descriptors that are no connections: models, logs, uploads, spare connections


class Config(uvicorn.Config):
    """uvicorn's configuration, with an HTTP protocol that limits what a connection may take."""

    timeout: float  # seconds

    def load(self) -> None:
        super().load()
        self.http_protocol_class = limited_protocol(self.http_protocol_class, self.timeout)


def serve(settings: Settings) -> None:
    """Serve until a signal ends it; requests that are running are finished."""
    allow_many_files()
    with listening(settings) as opened:
        if settings.workers == 1:
            app = worker_app(settings)
            app.state.service.models.open()
            announce(settings, opened)
            uvicorn.Server(configuration(settings, lambda: app)).run([opened])
            return
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:  # so that this process stays small
            try:
                apart.submit(try_models, settings).result()
            except BrokenProcessPool:
                raise XmtcError(
                    "The process that opened the models to check them died; there may be too little memory, or a file "
                    "of a model was cut while it was read. Try `xmtc info MODEL`."
                ) from None
        announce(settings, opened)
        with tempfile.TemporaryDirectory(prefix="xmtc-metrics-") as folder:
            os.environ[METRICS] = folder
            Workers(configuration(settings, partial(starting_worker, settings)), [opened]).run()


def announce(settings: Settings, opened: socket.socket) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # which uvicorn sends once more at the end; here it is no failure
        signal.signal(number, lambda number, frame: None)
    log.take_over()  # from now on; before, what is wrong is said to a person
    host, port = opened.getsockname()[:2]
    log.event("serving", host=host, port=port, workers=settings.workers, models=[name for name, _ in settings.models])


def configuration(settings: Settings, factory: Callable[[], FastAPI]) -> uvicorn.Config:
    config = Config(
        factory,
        factory=True,
        workers=settings.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        ws="none",
        h11_max_incomplete_event_size=HEAD_BYTES,
        limit_concurrency=min(settings.limits.connections, max_connections()),
        timeout_graceful_shutdown=int(settings.limits.seconds) + 1,
        timeout_worker_healthcheck=STARTING,
    )
    config.timeout = settings.limits.seconds
    return config


def try_models(settings: Settings) -> None:
    """Open every model once before workers start, so that a damaged one is reported in a sentence."""
    from xmtc.core.run import Run
    from xmtc.server.models import Opened

    for _, folder in settings.models:
        Opened.load(folder, Run(threads=settings.threads, device=settings.device))


def starting_worker(settings: Settings) -> FastAPI:
    log.take_over()
    return worker_app(settings)


def worker_app(settings: Settings) -> FastAPI:
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


def listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((settings.host, settings.port))
        opened.listen(BACKLOG)  # before any worker accepts, so that clients wait instead of being refused
    except OSError as error:
        opened.close()
        raise XmtcError(
            f"{settings.host}:{settings.port} cannot be listened at ({error.strerror or error}); give another --port."
        ) from None
    opened.set_inheritable(True)
    return opened


def allow_many_files() -> None:
    """Raise the limit of open files, and with it of connections, as far as the system allows."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def max_connections() -> int:
    """Return the number of connections for which there are file descriptors."""
    try:
        import resource
    except ImportError:
        return FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES if soft == resource.RLIM_INFINITY else max(16, soft - OTHER_FILES)

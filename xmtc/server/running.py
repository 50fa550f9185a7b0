"""Starts the service: one process, or several that share a port and, through memory-mapping, the models."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from xmtc.errors import XmtcError
from xmtc.server import log
from xmtc.server.settings import METRICS, Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

STARTING = 120  # seconds that a worker may be silent: it looks at every number of its models
FILES = 65_536  # open files, and with them connections, where the system leaves so many


class Workers(Multiprocess):
    """A worker that has died is replaced; new folders are each worker's own to take over."""

    def handle_hup(self) -> None:
        for worker in self.processes:
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGHUP)


class Config(uvicorn.Config):
    """As uvicorn has it, and with an end to the patience with clients that do not finish what they have to say."""

    patience: float

    def load(self) -> None:
        super().load()
        self.http_protocol_class = with_patience(self.http_protocol_class, self.patience)


def with_patience(protocol: Any, seconds: float) -> Any:
    """A protocol that closes connections on which no request begins within some time; uvicorn waits for ever."""

    class Patient(protocol):
        last: Any = None  # request that was looked at

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(seconds, self.look)

        def look(self) -> None:
            is_idle = self.cycle is None or (self.cycle.response_complete and self.cycle is self.last)
            if is_idle or self.transport.is_closing():
                self.transport.close()
            else:
                self.last = self.cycle
                self.loop.call_later(seconds, self.look)

    return Patient


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
            apart.submit(try_models, settings).result()
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
        limit_concurrency=settings.limits.connections,
        timeout_graceful_shutdown=int(settings.limits.seconds) + 1,
        timeout_worker_healthcheck=STARTING,
    )
    config.patience = settings.limits.seconds
    return config


def try_models(settings: Settings) -> None:
    """Open them once before there are workers: what is wrong with one can be said in a sentence."""
    from xmtc.base.run import Run
    from xmtc.server.models import Opened

    for _, folder in settings.models:
        Opened.load(folder, Run(threads=settings.threads, device=settings.device))


def starting_worker(settings: Settings) -> FastAPI:
    log.take_over()
    return worker_app(settings)


def worker_app(settings: Settings) -> FastAPI:
    from xmtc.server.app import create_app

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can be heard
    return create_app(settings)


def listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((settings.host, settings.port))
    except OSError as error:
        opened.close()
        raise XmtcError(
            f"{settings.host}:{settings.port} cannot be listened at ({error.strerror or error}); give another --port."
        ) from None
    opened.set_inheritable(True)
    return opened


def allow_many_files() -> None:
    try:
        import resource
    except ImportError:  # another system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

"""Start of the service: one process, or several workers that share a port and the memory-mapped models."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING

import uvicorn

from xmtc.errors import XmtcError
from xmtc.server import log
from xmtc.server.protocol import MAX_REQUEST_HEAD_BYTES, limited_protocol
from xmtc.server.settings import METRICS_FOLDER_VARIABLE, Settings
from xmtc.server.workers import WorkerSupervisor

if TYPE_CHECKING:
    from fastapi import FastAPI

WORKER_STARTUP_SECONDS = 120  # time for a worker to start, in which it verifies its models
BACKLOG_CONNECTIONS = 2048  # connections that the system queues
SWITCH_SECONDS = 0.001  # interval after which a computing thread lets the event loop run
MAX_OPEN_FILES = 65_536  # also limits the connections; the hard limit of the system may be lower
RESERVED_FILE_DESCRIPTORS = 256  # for models, logs, uploads and spare connections


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration with the HTTP protocol of xmtc/server/protocol.py."""

    timeout: float  # seconds

    def load(self) -> None:
        super().load()
        self.http_protocol_class = limited_protocol(self.http_protocol_class, self.timeout)


def serve(settings: Settings) -> None:
    """Serve until a signal arrives; running requests are finished first."""
    raise_file_limit()
    with open_socket(settings) as listener:
        if settings.workers == 1:
            app = create_worker_app(settings)
            app.state.service.models.open_all()
            log_start(settings, listener)
            uvicorn.Server(build_config(settings, lambda: app)).run([listener])
            return
        with ProcessPoolExecutor(1, get_context("spawn")) as checker:  # keeps the supervisor small
            try:
                checker.submit(check_model_folders, settings).result()
            except BrokenProcessPool:
                raise XmtcError(
                    "The process that verifies the models died; memory may be too small, or a model file was truncated "
                    "while it was read. Run `xmtc info MODEL`."
                ) from None
        log_start(settings, listener)
        with tempfile.TemporaryDirectory(prefix="xmtc-metrics-") as folder:
            os.environ[METRICS_FOLDER_VARIABLE] = folder
            WorkerSupervisor(build_config(settings, partial(start_worker_app, settings)), [listener]).run()


def log_start(settings: Settings, listener: socket.socket) -> None:
    # Until uvicorn handles signals, and when it raises them again after a clean shutdown, they end the process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(0))
    log.redirect_logs()  # errors before this point are printed for the user
    host, port = listener.getsockname()[:2]
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
    """Load every model once before the workers start. Raise XmtcError if one is damaged."""
    from xmtc.core.run import Run
    from xmtc.server.models import LoadedModel

    for _, folder in settings.models:
        LoadedModel.load(folder, Run(threads=settings.threads, device=settings.device))


def start_worker_app(settings: Settings) -> FastAPI:
    log.redirect_logs()
    threading.Thread(target=stop_with_parent, daemon=True).start()
    return create_worker_app(settings)


def stop_with_parent() -> None:
    """Shut this worker down when its supervisor has ended; a killed supervisor sends no signal."""
    supervisor = parent_process()
    assert supervisor is not None
    supervisor.join()
    log.write_event("worker stops", cause="its supervisor has ended")
    signal.raise_signal(signal.SIGTERM)


def create_worker_app(settings: Settings) -> FastAPI:
    from xmtc.server.app import create_app

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the application installs its handler
    app = create_app(settings, on_start=shorten_pauses)
    app.openapi()  # cached, because the first call would block the event loop
    return app


def shorten_pauses() -> None:
    """Limit the time for which other threads and the garbage collector block the event loop."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # a full collection would traverse modules and models for 0.1 s


def open_socket(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG_CONNECTIONS)  # clients that connect before a worker accepts are queued
    except OSError as error:
        listener.close()
        raise XmtcError(
            f"Cannot listen on {settings.host}:{settings.port} ({error.strerror or error}); choose another --port."
        ) from None
    listener.set_inheritable(True)
    return listener


def raise_file_limit() -> None:
    """Raise the limit of open files, and thus of connections, as far as the system allows."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def count_available_connections() -> int:
    """Return the number of connections that the limit of open files allows."""
    try:
        import resource
    except ImportError:
        return MAX_OPEN_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else max(16, soft - RESERVED_FILE_DESCRIPTORS)
